// Random problems on the GPU against the fp64 reference. tests/cli/drawn_run_test.cpp says what they cover.
//
// ATTNC_TEST_RANDOM=2000 computes that many problems, and ATTNC_TEST_RANDOM=2000,6000 those of seeds 6000 to 7999. An
// H100 with 16 cores takes about five minutes for 2000.
#include "gpu.h"

#include "helpers/drawn_run.h"
#include "support/parallel.h"
#include "tools/attnc/commands/gpu.h"
#include "tools/attnc/commands/verify.h"
#include "tools/attnc/problem/oracle.h"

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>

using namespace attnc;

namespace {

struct Run {
  test::DrawnRun drawn;
  std::optional<Mod> mod = {};
  std::optional<cli::HostOperands> operands = {};
  std::vector<Plan> kernels = {};
  std::optional<cli::RunResult> result = {};
  bool isRefused = false, holds = false;
  double share = 0;    ///< the largest error, as a share of its limit
  std::string problem; ///< what went wrong
};

void draw(Run& run, const std::string& arch) {
  run.mod = run.drawn.mod();
  auto operands = cli::findOperands(*run.mod, run.drawn.options);
  if (!operands) return void(run.problem = operands.error().message);
  run.operands = *std::move(operands);
  auto settled = run.drawn.settledFor(arch, *run.mod, *run.operands);
  if (settled) return void(run.kernels = settled->kernels());
  run.isRefused = settled.error().blame == Blame::Environment;
  if (!run.isRefused) run.problem = settled.error().message;
}

void judge(Run& run) {
  auto want = cli::runReference(*run.mod, *run.operands, run.drawn.options);
  if (!want) return void(run.problem = want.error().message);
  auto verification = cli::verify(*run.mod, *run.operands, run.drawn.options, *run.result, *want);
  if (!verification) return void(run.problem = verification.error().message);
  run.holds = verification->holds();
  run.share = verification->largestShare();
  if (!run.holds) run.problem = run.result->summary + verification->text();
}

} // namespace

GPU_TEST_CASE("random problems agree with the reference", "[gpu][backward]") {
  uint64_t count = 72, first = 0;
  if (const char* given = std::getenv("ATTNC_TEST_RANDOM")) {
    char* end;
    count = std::strtoull(given, &end, 10);
    if (*end == ',') first = std::strtoull(end + 1, nullptr, 10);
  }
  const std::string arch = gputest::gpu()->context.info().arch;
  std::map<std::string, int> counts, refused;
  std::map<std::string, double> shares;
  int computed = 0;
  constexpr uint64_t kAtOnce = 480;
  for (uint64_t begin = first; begin < first + count; begin += kAtOnce) {
    std::deque<Run> runs; // captures point into their operands
    for (uint64_t seed = begin; seed < std::min(begin + kAtOnce, first + count); ++seed)
      runs.push_back({test::DrawnRun(seed)});
    parallelForEach(int64_t(runs.size()), [&](int64_t i) { draw(runs[size_t(i)], arch); });
    std::vector<std::pair<Mod, KernelOptions>> kernels;
    for (const Run& run : runs)
      for (const Plan& kernel : run.kernels) kernels.emplace_back(*run.mod, kernel.options());
    gputest::compileAhead(kernels);
    for (Run& run : runs) {
      if (run.isRefused || !run.problem.empty()) continue;
      auto result = cli::runOnGpu(gputest::gpu()->context, *run.mod, *run.operands, run.drawn.options);
      if (result)
        run.result = *std::move(result);
      else if (result.error().blame != Blame::Internal)
        run.isRefused = true; // such as a mod that is too long
      else
        run.problem = result.error().message;
    }
    parallelForEach(int64_t(runs.size()), [&](int64_t i) {
      if (runs[size_t(i)].result) judge(runs[size_t(i)]);
    });
    for (const Run& run : runs) {
      const std::string kind = run.drawn.kindName();
      if (run.isRefused) {
        ++refused[kind];
        continue;
      }
      ++computed;
      ++counts[kind];
      for (const std::string& feature : run.drawn.features()) ++counts["  " + feature];
      shares[kind] = std::max(shares[kind], run.share);
      INFO(run.drawn.text() << "\n"
                            << run.problem << "\nagain: ATTNC_TEST_RANDOM=1," << run.drawn.options.seed
                            << " build/tests/attnc_test_gpu \"random problems*\"");
      CHECK(run.holds);
    }
    std::printf("random problems of seeds %llu to %llu: %d computed so far\n", (unsigned long long)begin,
                (unsigned long long)(begin + runs.size() - 1), computed);
    std::fflush(stdout);
  }
  std::string told =
      fmt::format("seeds {} to {} on {}: {} problems were computed\n", first, first + count - 1, arch, computed);
  for (const auto& [what, number] : counts)
    told += fmt::format("{:32} {:5}{}{}\n", what, number,
                        refused.count(what) ? fmt::format(", and {} are refused", refused[what]) : "",
                        shares.count(what) ? fmt::format(", errors up to {:.2f} of a limit", shares[what]) : "");
  WARN(told);
  CHECK(computed > 0);
}
