// Random problems on the GPU against the fp64 reference. tests/cli/drawn_run_test.cpp says what they cover.
#include "gpu.h"

#include "helpers/drawn_run.h"
#include "tools/attnc/gpu.h"
#include "tools/attnc/oracle.h"
#include "tools/attnc/verify.h"

#include <deque>

using namespace attnc;
using gputest::take;

TEST_CASE("random problems agree with the reference", "[gpu][backward]") {
  ATTNC_NEED_GPU();
  constexpr uint64_t kRuns = 48;
  const std::string arch = gputest::gpu()->context.info().arch;
  struct Run {
    test::DrawnRun drawn;
    Mod mod;
    cli::HostOperands operands;
  };
  std::deque<Run> runs; // captures point into their operands
  std::vector<std::pair<Mod, KernelOptions>> kernels;
  int refused = 0;
  for (uint64_t seed = 0; seed < kRuns; ++seed) {
    const test::DrawnRun drawn(seed);
    const Mod mod = drawn.mod();
    INFO(drawn.text());
    runs.push_back({drawn, mod, take(cli::findOperands(mod, drawn.options))});
    auto settled = drawn.settledFor(arch, mod, runs.back().operands);
    if (settled) {
      for (const KernelOptions& kernel : settled->kernels()) kernels.emplace_back(mod, kernel);
      continue;
    }
    CHECK(settled.error().blame == Blame::Environment);
    runs.pop_back();
    ++refused;
  }
  gputest::compileAhead(kernels);
  for (const auto& [drawn, mod, operands] : runs) {
    INFO(drawn.text());
    const cli::RunResult result = take(cli::runOnGpu(gputest::gpu()->context, mod, operands, drawn.options));
    const reference::GradientResult want = take(cli::runReference(mod, operands, drawn.options));
    const cli::Verification verification = cli::verify(mod, operands, drawn.options, result, want);
    INFO(result.summary << verification.text());
    CHECK(verification.holds());
  }
  WARN(runs.size() << " problems were computed, and " << refused << " are refused on " << arch);
  CHECK(!runs.empty());
}
