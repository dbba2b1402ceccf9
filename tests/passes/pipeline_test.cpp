// The runner: it names the pass that broke something, times, prints, and refuses what it cannot do.
#include "helpers/take.h"
#include "ir/reader.h"
#include "passes/pipeline.h"

#include <catch2/catch.hpp>

#include <ctime>

using namespace attnc;
using namespace attnc::passes;

namespace {

const char kCausal[] = "%0 = sub i32 %q_idx, %kv_idx\n%1 = le i32 0, %0\noutput mask(b, h, q_idx, kv_idx) -> %1\n";

ir::Module moduleOf(std::string_view text) { return take(ir::read(text)); }

Status breakTypes(ir::Module& module, const PassContext&) {
  module.setOutput(ir::kMask, module.param(ir::ParamKind::QIdx));
  return {};
}

Status breakCaptures(ir::Module& module, const PassContext&) {
  module.setOutput(ir::kMask, module.make(ir::Op::Scalar, ir::Type::Bool, {}, 3));
  return {};
}

} // namespace

TEST_CASE("a pass that breaks the IR is named, with the IR before and after") {
  ir::Module module = moduleOf(kCausal);
  const Pass passes[] = {*findPass("simplify"), {"break-types", "", breakTypes}, *findPass("dce")};
  const Error ok = refusalOf(runPasses(module, passes, {.verify = true}));
  CHECK(ok.blame == Blame::Internal);
  CHECK_THAT(ok.message, Catch::Contains("pass break-types broke the IR: output mask has type i32, not bool"));
  CHECK_THAT(ok.message,
             Catch::Contains("--- before\n%0 = le i32 %kv_idx, %q_idx\noutput mask(b, h, q_idx, kv_idx) -> %0\n"));
  CHECK_THAT(ok.message, Catch::Contains("output mask(b, h, q_idx, kv_idx) -> %q_idx"));
}

TEST_CASE("a module that cannot be printed any more is reported all the same") {
  ir::Module module = moduleOf(kCausal);
  const Pass passes[] = {{"break-captures", "", breakCaptures}};
  CHECK_THAT(refusalOf(runPasses(module, passes, {.verify = true})).message,
             Catch::Contains("pass break-captures broke the IR"));
}

TEST_CASE("without verification after each pass, the result is verified still") {
  ir::Module module = moduleOf(kCausal);
  const Pass passes[] = {{"break-types", "", breakTypes}};
  CHECK(refusalOf(runPasses(module, passes, {.verify = false})).blame == Blame::Internal);
}

TEST_CASE("printing and timing go to the sink") {
  std::string text;
  auto sink = [&](std::string_view more) { text += more; };
  ir::Module module = moduleOf(kCausal);
  REQUIRE(runPipeline(module, {.printAfter = "dce", .sink = sink}));
  CHECK(text == "; after dce\n%0 = le i32 %kv_idx, %q_idx\noutput mask(b, h, q_idx, kv_idx) -> %0\n");
  text.clear();
  REQUIRE(runPipeline(module, {.time = true, .sink = sink}));
  CHECK_THAT(text, Catch::StartsWith("sequences ") && Catch::Contains("simplify") && Catch::Contains(" us "));
  text.clear();
  REQUIRE(runPipeline(module, {.printAfter = "all", .sink = sink}));
  CHECK_THAT(text, Catch::Contains("; after pin\n") && Catch::Contains("; after order-captures\n"));
  REQUIRE(runPipeline(module, {.time = true, .printAfter = "all"})); // no sink: nowhere to print
}

TEST_CASE("an unknown pass and pins that do not fit are errors of the environment") {
  auto errorOf = [](std::string_view text, const PipelineOptions& options) {
    ir::Module module = moduleOf(text);
    auto ok = runPipeline(module, options);
    if (ok) return std::string();
    CHECK(ok.error().blame == Blame::Environment);
    return ok.error().message;
  };
  const char* scalars = "scalar w: i32\nscalar on: bool\nscalar s: f32";
  CHECK(errorOf(kCausal, {.printAfter = "frob"}) == "there is no pass 'frob'");
  CHECK_THAT(errorOf(kCausal, {.pins = {{"KVLEN", 4}}}),
             Catch::Contains("pin KVLEN=4") && Catch::Contains("no extent"));
  CHECK_THAT(errorOf(kCausal, {.pins = {{"KV_LEN", -4}}}), Catch::Contains("must lie in 0..16777216"));
  CHECK_THAT(errorOf(scalars, {.pins = {{"on", 2}}}), Catch::Contains("does not fit a bool"));
  CHECK_THAT(errorOf(scalars, {.pins = {{"w", 1ll << 31}}}), Catch::Contains("does not fit 32 bits"));
  CHECK(errorOf(scalars, {.pins = {{"w", -1}, {"on", 1}, {"s", 3}, {"H", 8}}}) == "");
}

TEST_CASE("a module of a hundred thousand operations goes through in reasonable time") {
  ir::Module module;
  ir::Value sum = module.param(ir::ParamKind::QIdx), mask = module.constBool(true);
  for (int i = 0; i < 50000; ++i) {
    sum =
        module.make(ir::Op::Add, ir::Type::I32, {sum, i % 2 ? module.param(ir::ParamKind::KvIdx) : module.dim(i % 5)});
    if (i % 100) continue;
    ir::Value test = module.make(ir::Op::Le, ir::Type::Bool, {sum, module.constInt(ir::Type::I32, i)});
    mask = module.make(ir::Op::Xor, ir::Type::Bool, {mask, test});
  }
  module.setOutput(ir::kMask, mask);
  std::clock_t start = std::clock(); // of this process: other processes do not count
  REQUIRE(runPipeline(module));
  double seconds = double(std::clock() - start) / CLOCKS_PER_SEC;
  INFO(seconds << " s");
#ifdef NDEBUG
  CHECK(seconds < 10);
#endif
}
