// The random problems of the GPU tests: what they cover, that plans take most of them, and that a wrong result of one
// is found.
#include "helpers/drawn_run.h"
#include "helpers/simulated_kernel.h"

#include "attnc/compiler.h"
#include "helpers/plans.h"
#include "tools/attnc/commands/verify.h"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <map>
#include <set>

using namespace attnc;
using attnc::test::DrawnRun;

namespace {

constexpr uint64_t kRuns = 72; // as in tests/gpu/fuzz_test.cpp

} // namespace

TEST_CASE("random problems have all dtypes, scales and layouts, and plans take most of each kind") {
  std::set<std::string> seen;
  std::map<std::string, std::map<DrawnRun::Kind, int>> taken; // by architecture
  int inColumns = 0;
  for (uint64_t seed = 0; seed < kRuns; ++seed) {
    const DrawnRun drawn(seed);
    INFO(drawn.text());
    const Mod mod = drawn.mod();
    auto operands = take(cli::findOperands(mod, drawn.options));
    for (const std::string& feature : drawn.features())
      seen.insert(drawn.kindName() + ": " + feature), seen.insert(feature);
    for (const char* arch : {"sm_80", "sm_89", "sm_90a"}) {
      auto settled = drawn.settledFor(arch, mod, operands);
      if (!settled) {
        CHECK(settled.error().blame == Blame::Environment);
        continue;
      }
      ++taken[arch][drawn.kind];
      for (const Plan& kernel : settled->kernels()) {
        INFO(arch);
        auto sources = kernel.sources();
        if (!sources) { // gradients of a term are long without tensor cores
          if (sources.error().message.find("too long to compile") == std::string::npos) FAIL(sources.error().message);
          continue;
        }
        for (const KernelSource& source : *sources)
          if (arch == std::string("sm_90a") && source.templateName == "low_rank.cu") ++inColumns;
      }
    }
  }
  for (const char* what : {"bf16",
                           "fp16",
                           "fp32",
                           "tf32",
                           "forward fp8: scales of heads",
                           "forward fp8: scales of blocks",
                           "forward fp8: scales of rows",
                           "forward fp8: scales of pages",
                           "decode fp8: scales of heads",
                           "decode fp8: scales of rows",
                           "decode fp8: scales of pages",
                           "576 / 512",
                           "512 / 512",
                           "192 / 128",
                           "low rank",
                           "forward: two walks",
                           "decode: two walks",
                           "backward: two walks",
                           "ragged",
                           "pages",
                           "lengths",
                           "backward: lengths",
                           "deterministic",
                           "no lists",
                           "out of fp16",
                           "amplifying",
                           "backward: amplifying",
                           "gradients of captures",
                           "forward: outputs",
                           "backward: gradients of outputs"}) {
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

TEST_CASE("a kernel's roundings of random problems hold, and one wrong row does not") {
  const char* const given = std::getenv("ATTNC_TEST_RANDOM");
  const uint64_t runs = given ? std::strtoull(given, nullptr, 10) : 2 * DrawnRun::kKinds;
  int rows = 0;
  for (uint64_t seed = 0; seed < runs; ++seed) {
    const DrawnRun drawn(seed);
    if (drawn.walksTwice && drawn.options.backward) continue; // simulated() has no gradients through prob_mod
    INFO(drawn.text());
    const Mod mod = drawn.mod();
    auto operands = take(cli::findOperands(mod, drawn.options));
    auto want = take(cli::runReference(mod, operands, drawn.options));
    cli::RunResult result = test::simulated(mod, operands, drawn.options);
    const auto verification = take(cli::verify(mod, operands, drawn.options, result, want));
    INFO(verification.text());
    CHECK(verification.holds());
    const int64_t columns = result.out.shape[3];
    if (result.out.elements() == 0 || seed >= DrawnRun::kKinds) continue;
    for (int64_t i = 0; i < columns; ++i) // the first row, with its sign turned and larger than v
      writeElement(result.out.bytes.data(), result.out.dtype, i, -8 * (1 + std::fabs(want.forward.out[size_t(i)])));
    CHECK_FALSE(cli::verify(mod, operands, drawn.options, result, want)->out.holds());
    ++rows;
  }
  CHECK(rows > 3);
}
