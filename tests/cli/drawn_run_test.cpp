// The random problems of the GPU tests: what they cover, that plans take most of them, and that a wrong result of one
// is found.
#include "helpers/drawn_run.h"
#include "tensors.h"

#include "attnc/compiler.h"
#include "tools/attnc/verify.h"

#include <catch2/catch.hpp>

#include <map>
#include <set>

using namespace attnc;
using attnc::test::DrawnRun;

namespace {

constexpr uint64_t kRuns = 48; // as in tests/gpu/fuzz_test.cpp

cli::HostTensor stored(const std::vector<double>& values, DType dtype, const std::vector<int64_t>& shape) {
  return test::tensor(dtype, shape, [&](int64_t i) { return values[size_t(i)]; });
}

/// Returns the results of a kernel without errors.
cli::RunResult exactResult(const DrawnRun& drawn, const cli::HostOperands& operands,
                           const reference::GradientResult& want) {
  cli::RunResult result;
  std::vector<int64_t> shape = cli::rowsOf(operands);
  result.lse = stored(want.forward.lse, DType::F32, shape);
  result.rowMax = stored(want.forward.rowMax, DType::F32, shape);
  shape.push_back(operands.v.shape[3]);
  result.out = stored(want.forward.out, drawn.options.fp8.outOf(operands.q.dtype), shape);
  if (!drawn.options.backward) return result;
  result.gradients["dq"] = stored(want.dQ, operands.q.dtype, operands.q.shape);
  result.gradients["dk"] = stored(want.dK, operands.k.dtype, operands.k.shape);
  result.gradients["dv"] = stored(want.dV, operands.v.dtype, operands.v.shape);
  for (const auto& [name, values] : want.captures) {
    const TensorView like = std::get<TensorView>(*operands.gradients.find(name));
    result.gradients["d_" + name] = stored(values, like.dtype, {like.shape.begin(), like.shape.begin() + like.rank});
  }
  return result;
}

} // namespace

TEST_CASE("random problems have all dtypes, scales and layouts, and plans take most of each kind") {
  std::set<std::string> seen;
  std::map<std::string, std::map<DrawnRun::Kind, int>> taken; // by architecture
  int inColumns = 0;
  for (uint64_t seed = 0; seed < kRuns; ++seed) {
    const DrawnRun drawn(seed);
    INFO(drawn.text());
    const Mod mod = drawn.mod();
    auto operands = cli::findOperands(mod, drawn.options);
    if (!operands) FAIL(operands.error().message);
    const cli::RunOptions& options = drawn.options;
    const std::string fp8 = options.fp8.kv ? "decode " : options.dtype == "e4m3" ? "forward " : "";
    seen.insert(fp8.empty() ? options.dtype : fp8 + options.fp8.scales);
    if (options.vInK) seen.insert(fmt::format("{} / {}", options.random->headDim, options.vInK));
    for (const auto& [has, what] : {std::pair(drawn.isLowRank, "low rank"),
                                    {options.sequences.ragged, "ragged"},
                                    {options.sequences.pageSize > 0, "pages"},
                                    {options.sequences.kvLengths, "lengths"},
                                    {options.gradients.deterministic, "deterministic"},
                                    {options.noBlockMask, "no lists"},
                                    {options.fp8.outDType == "fp16", "out of fp16"}})
      if (has) seen.insert(what);
    for (const char* arch : {"sm_80", "sm_89", "sm_90a"}) {
      auto settled = drawn.settledFor(arch, mod, *operands);
      if (!settled) {
        CHECK(settled.error().blame == Blame::Environment);
        continue;
      }
      ++taken[arch][drawn.kind];
      for (const KernelOptions& kernel : settled->kernels()) {
        INFO(arch);
        auto sources = Compiler().source(mod, kernel);
        if (!sources) FAIL(sources.error().message);
        for (const KernelSource& source : *sources)
          if (arch == std::string("sm_90a") && source.templateName == "low_rank.cu") ++inColumns;
      }
    }
  }
  for (const char* what : {"bf16",         "fp16",          "fp32",          "forward heads", "forward blocks",
                           "forward rows", "forward pages", "decode heads",  "decode rows",   "decode pages",
                           "576 / 512",    "512 / 512",     "192 / 128",     "low rank",      "ragged",
                           "pages",        "lengths",       "deterministic", "no lists",      "out of fp16"}) {
    INFO(what);
    CHECK(seen.count(what));
  }
  CHECK(inColumns > 5);
  for (int kind = 0; kind < DrawnRun::kKinds; ++kind) {
    INFO("kind " << kind);
    CHECK(taken["sm_90a"][DrawnRun::Kind(kind)] >= int(kRuns) / DrawnRun::kKinds / 2);
  }
  CHECK(taken["sm_89"][DrawnRun::Kind::ForwardFp8] > 0);
  CHECK(taken["sm_89"][DrawnRun::Kind::DecodeFp8] > 0);
  for (DrawnRun::Kind kind : {DrawnRun::Kind::ForwardFp8, DrawnRun::Kind::DecodeFp8, DrawnRun::Kind::Latent})
    CHECK(taken["sm_80"][kind] == 0);
}

TEST_CASE("the reference's results of random problems hold, and one wrong row does not") {
  int rows = 0;
  for (uint64_t seed = 0; seed < kRuns; ++seed) {
    const DrawnRun drawn(seed);
    INFO(drawn.text());
    const Mod mod = drawn.mod();
    auto operands = cli::findOperands(mod, drawn.options);
    REQUIRE(operands);
    auto want = cli::runReference(mod, *operands, drawn.options);
    if (!want) FAIL(want.error().message);
    cli::RunResult result = exactResult(drawn, *operands, *want);
    const cli::Verification verification = cli::verify(mod, *operands, drawn.options, result, *want);
    INFO(verification.text());
    CHECK(verification.holds());
    const int64_t columns = result.out.shape[3];
    if (result.out.elements() == 0) continue;
    for (int64_t i = 0; i < columns; ++i) // the first row, with its sign turned and larger than v
      writeElement(result.out.bytes.data(), result.out.dtype, i, -8 * (1 + std::fabs(want->forward.out[size_t(i)])));
    CHECK_FALSE(cli::verify(mod, *operands, drawn.options, result, *want).out.holds());
    ++rows;
  }
  CHECK(rows > int(kRuns) / 2);
}
