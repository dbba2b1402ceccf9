// Choices of tune() as prepare() looks them up: taken, or ignored with a line in the log. Needs no GPU: the device is
// named.
#include "api/mod_impl.h"
#include "api/pack_maker.h"
#include "api/tune_choice.h"
#include "api/tune_results.h"
#include "api/tuned.h"
#include "helpers/temp_directory.h"
#include "tests/api/settled.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>

using namespace attnc;
using namespace attnc::test;
using Catch::Contains;
namespace fs = std::filesystem;

namespace {

const char* const kDevice = "NVIDIA H200";

/// A cache directory with a choice for a case, and a compiler that looks there.
struct Tuned {
  TempDirectory home;
  std::vector<std::string> lines;
  Case c;
  Mod mod = Mod::identity();

  CompilerOptions options(std::string device = kDevice) {
    CompilerOptions all{.cacheDirectory = home / "cache", .tunedDevice = std::move(device)};
    all.log = [this](LogLevel, std::string_view line) { lines.emplace_back(line); };
    return all;
  }
  Preparation settled(CompilerOptions all) {
    return take(Compiler(std::move(all)).settle(mod, c.operands, c.outputs, c.options));
  }
  Preparation settled() { return settled(options()); }
  Expected<Preparation> training(CompilerOptions all) {
    const TensorView lse = TensorView::contiguous(nullptr, DType::F32, {2, 8, 1000}), out = tensor(2, 8, 1000, 32);
    return Compiler(std::move(all))
        .settleTraining(mod, BackwardOperands{{c.operands}, out, lse, out, {}}, {.out = out, .lse = lse},
                        {.dQ = c.operands.q, .dK = c.operands.k, .dV = c.operands.v}, c.options);
  }
  Preparation trained() { return take(training(options())); }

  cache::TunedChoice choice(std::string tile) { return choice(std::move(tile), settled(options("")).kernel.options()); }
  cache::TunedChoice backwardChoice(std::string tile) {
    auto model = take(training(options("")));
    return choice(std::move(tile), model.backward->options());
  }
  cache::TunedChoice choice(std::string tile, const KernelOptions& of) {
    return {.key = tunedKey(kDevice, mod, of, "gqa 4, q 2^9, kv 2^11"),
            .kernel = "forward",
            .tile = std::move(tile),
            .times = {},
            .date = "2026-02-03T04:05:06Z",
            .maker = packMaker()};
  }
  std::string pathOf(const cache::TunedChoice& of) {
    return home / ("cache/v1/tuned/" + cache::digestOf(of.key).hex() + ".json");
  }
  void write(const cache::TunedChoice& of, const std::string& text) {
    cache::Directory(std::make_shared<FileOps>(), home / "cache", cache::Directory::Access::ReadWrite,
                     cache::Directory::Layer::User, cache::Log())
        .publishTuned(cache::digestOf(of.key), text);
  }
  void write(const cache::TunedChoice& of) { write(of, cache::encodeTuned(of)); }
};

} // namespace

TEST_CASE("a choice is taken where its device, mod, options and class of problems are those", "[tuned]") {
  Tuned t;
  CHECK(t.settled().kernel.tile() == "192x128x12");
  CHECK(t.settled().kernel.tileFrom() == TileFrom::Model);
  t.write(t.choice("128x96x8"));
  const Preparation p = t.settled();
  CHECK(p.kernel.tile() == "128x96x8");
  CHECK(p.kernel.options().tile == "128x96x8");
  CHECK(p.kernel.tileFrom() == TileFrom::Tuned);
  CHECK(p.kernel.tunedBy() == t.pathOf(t.choice("")) + ", 2026-02-03T04:05:06Z");
  CHECK(p.kernels()[0].options().tile == "128x96x8");
  CHECK(t.lines.empty());
  SECTION("lengths of the same power of two, the family by name, a row maximum") {
    t.c.operands.q = tensor(1, 16, 513, 64), t.c.operands.k = tensor(1, 4, 2048, 64),
    t.c.operands.v = tensor(1, 4, 2048, 32);
    t.c.outputs = {.out = tensor(1, 16, 513, 32), .rowMax = TensorView::contiguous(nullptr, DType::F32, {1, 16, 513})};
    t.c.options.family = Family::Sm90;
    CHECK(t.settled().kernel.tile() == "128x96x8");
  }
  SECTION("training") {
    const Preparation trained = t.trained();
    CHECK(trained.kernel.tile() == "128x96x8");
    CHECK(trained.backward->options().tile.empty());
    CHECK(trained.backward->tile() == "128x128x8");
    CHECK(trained.backward->tileFrom() == TileFrom::Model);
  }
  SECTION("another class, mod, option, device") {
    SECTION("queries") { t.c.operands.q = tensor(2, 8, 1024, 64), t.c.outputs.out = tensor(2, 8, 1024, 32); }
    SECTION("heads") { t.c.operands.q = tensor(2, 4, 1000, 64), t.c.outputs.out = tensor(2, 4, 1000, 32); }
    SECTION("mod") { t.mod = test::mod("score * 2"); }
    SECTION("family") { t.c.options.family = Family::Sm80; }
    SECTION("pins") { t.c.options.pins = {{"KV_LEN", 3000}}; }
    CHECK(t.settled().kernel.tileFrom() == TileFrom::Model);
  }
  SECTION("another device") { CHECK(t.settled(t.options("NVIDIA GH200")).kernel.tileFrom() == TileFrom::Model); }
  SECTION("none looked up") {
    CompilerOptions off = t.options();
    off.tuned = false;
    CHECK(t.settled(off).kernel.tileFrom() == TileFrom::Model);
  }
  SECTION("the environment says no, and an option yes") {
    ::setenv("ATTNC_TUNED", "0", 1);
    CHECK(t.settled().kernel.tileFrom() == TileFrom::Model);
    CompilerOptions on = t.options();
    on.tuned = true;
    CHECK(t.settled(on).kernel.tileFrom() == TileFrom::Tuned);
    ::unsetenv("ATTNC_TUNED");
  }
  SECTION("a tile is asked for") {
    t.c.options.tile = "192x128x12";
    CHECK(t.settled().kernel.tile() == "192x128x12");
    CHECK(t.settled().kernel.tileFrom() == TileFrom::Asked);
    t.c.options.tile = "1x2x3";
    CHECK_THAT(refusalOf(Compiler(t.options()).settle(t.mod, t.c.operands, t.c.outputs, t.c.options)).remedy,
               Contains("it has 192x128x12, "));
  }
}

TEST_CASE("training takes the choice of its backward kernel", "[tuned]") {
  Tuned t;
  t.write(t.backwardChoice("64x128x8"));
  const Preparation p = t.trained();
  CHECK(p.kernel.tileFrom() == TileFrom::Model);
  CHECK(p.backward->tile() == "64x128x8");
  CHECK(p.backward->options().tile == "64x128x8");
  CHECK(p.backward->tileFrom() == TileFrom::Tuned);
  CHECK(p.backward->tunedBy() == t.pathOf(t.backwardChoice("")) + ", 2026-02-03T04:05:06Z");
  CHECK(p.kernels()[1].options().tile == "64x128x8");
  CHECK(t.lines.empty());
  CHECK(t.settled().kernel.tileFrom() == TileFrom::Model); // it is not the forward kernel's
  SECTION("with one of the forward kernel beside it") {
    t.write(t.choice("128x96x8"));
    CHECK(t.trained().kernel.tile() == "128x96x8");
    CHECK(t.trained().backward->tile() == "64x128x8");
  }
  SECTION("not where it is another kernel") {
    t.c.options.deterministic = true;
    CHECK(t.trained().backward->tileFrom() == TileFrom::Model);
  }
  SECTION("not where a tile is asked for") {
    t.c.options.backwardTile = "128x128x8";
    CHECK(t.trained().backward->tile() == "128x128x8");
    CHECK(t.trained().backward->tileFrom() == TileFrom::Asked);
    t.c.options.backwardTile = "192x128x12";
    CHECK_THAT(refusalOf(t.training(t.options())).remedy, Contains("it has 128x128x8, 64x128x8"));
  }
  SECTION("a tile of the forward kernel leaves it alone") {
    t.c.options.tile = "128x64x8";
    CHECK(t.trained().kernel.tile() == "128x64x8");
    CHECK(t.trained().backward->tile() == "64x128x8");
  }
  SECTION("not what is none of its tiles") {
    t.write(t.backwardChoice("192x128x12"));
    CHECK(t.trained().backward->tileFrom() == TileFrom::Model);
    REQUIRE(t.lines.size() == 1);
    CHECK_THAT(t.lines[0], Contains("ignored: there is no tile `192x128x12`"));
  }
}

TEST_CASE("a choice of the model's own tile shares its kernel", "[tuned]") {
  Tuned t;
  t.write(t.choice("192x128x12"));
  CHECK(t.settled().kernel.tileFrom() == TileFrom::Tuned);
  CHECK(t.settled().kernel.options().tile.empty());
}

TEST_CASE("a choice that cannot be used is ignored, and the log has one line of it", "[tuned]") {
  Tuned t;
  const cache::TunedChoice good = t.choice("128x96x8");
  cache::TunedChoice bad = good;
  std::string why;
  SECTION("damaged") {
    t.write(good, "{\"format\": 1");
    why = "it is damaged";
  }
  SECTION("of another device, under this one's name") {
    bad.key.device = "NVIDIA A100";
    t.write(good, cache::encodeTuned(bad));
    why = "it is of another kernel, problem or device (NVIDIA A100)";
  }
  SECTION("of other templates") {
    bad.maker = "attnc 0.0.9 (templates 000000000000)";
    t.write(bad);
    why = "it was made by attnc 0.0.9 (templates 000000000000), and this is " + packMaker();
  }
  SECTION("a tile that there is no more") {
    bad.tile = "128x1024x8";
    t.write(bad);
    why = "there is no tile `128x1024x8`";
  }
  const Compiler compiler(t.options());
  for (int i = 0; i < 2; ++i) {
    auto p = take(compiler.settle(t.mod, t.c.operands, t.c.outputs, t.c.options));
    CHECK(p.kernel.tile() == "192x128x12");
    CHECK(p.kernel.tileFrom() == TileFrom::Model);
  }
  REQUIRE(t.lines.size() == 1);
  CHECK(t.lines[0] == "tuned choice " + t.pathOf(good) + " ignored: " + why);
}

TEST_CASE("a choice of grids is of their extents", "[tuned]") {
  const auto shaped = [](std::array<int64_t, 3> extents) {
    plan::LaunchOperands operands;
    operands.problem = {2, 24, 24, 4096, 4096};
    operands.grids = {extents, extents};
    return shapeClassOf(operands, KernelKind::Forward);
  };
  CHECK(shaped({1, 64, 64}) == "gqa 1, q 2^12, kv 2^12, grids 1x64x64 and 1x64x64");
  CHECK(shaped({1, 32, 128}) != shaped({1, 64, 64}));
  plan::LaunchOperands behind;
  behind.problem = {2, 24, 24, 4608, 4608};
  behind.grids = {.queries = {1, 64, 64}, .keys = {1, 64, 64}, .before = {{512, 512}}};
  CHECK(shapeClassOf(behind, KernelKind::Backward) ==
        "gqa 1, q 2^12, kv 2^12, grids 1x64x64 and 1x64x64 behind 512 and 512");
}

TEST_CASE("a choice of a decode kernel is also of how many heads share the GPU", "[tuned]") {
  plan::LaunchOperands operands;
  operands.problem = {3, 32, 8, 1, 16384};
  CHECK(shapeClassOf(operands, KernelKind::Decode) == "gqa 4, q 2^0, kv 2^14, heads 2^4");
  CHECK(shapeClassOf(operands, KernelKind::Forward) == "gqa 4, q 2^0, kv 2^14");
}

TEST_CASE("the median is that of the samples that lie closest together", "[tuned]") {
  CHECK(steadyMs({1.f}) == Approx(1));
  CHECK(steadyMs({1.f, 1.02f, 1.01f, 3.f, 7.f}) == Approx(1.01));
  CHECK(steadyMs({0.1f, 5.f, 2.f, 2.01f, 2.02f, 2.03f, 9.f}) == Approx(2.02).epsilon(0.006));
}

TEST_CASE("the model's tile stays unless another one gains more than noise", "[tuned]") {
  CHECK(byGain({1.0}) == std::vector<size_t>{0});
  CHECK(byGain({1.0, 0.985, 1.2}) == std::vector<size_t>{0});
  CHECK(byGain({1.0, 0.97, 0, 0.9, 0.99}) == std::vector<size_t>{3, 1, 0});
}

TEST_CASE("results of two tiles are the same up to rounding in another order", "[tuned]") {
  const auto resultsOf = [](TensorView view, const std::vector<float>& elements) {
    BroughtTensor brought;
    brought.bytes.resize(elements.size() * sizeof(float));
    std::memcpy(brought.bytes.data(), elements.data(), brought.bytes.size());
    return LaunchResults{{{view, brought}}};
  };
  const TensorView dense = TensorView::contiguous(nullptr, DType::F32, {2, 2});
  const LaunchResults model = resultsOf(dense, {1, -4, 0, 0.5f});
  CHECK(differenceOf(model, model, false).empty());
  // All elements may be off by as much as the largest one.
  CHECK(differenceOf(model, resultsOf(dense, {1.0003f, -4, 0.0003f, 0.5f}), false).empty());
  CHECK_THAT(differenceOf(model, resultsOf(dense, {1, -4, 0.001f, 0.5f}), false), Contains("element 2 is 0.001"));
  CHECK(differenceOf(model, resultsOf(dense, {1, -4, 0.001f, 0.5f}), true).empty());
  CHECK_THAT(differenceOf(model, resultsOf(dense, {1, -4, 0, std::nanf("")}), false), Contains("element 3 is nan"));
  TensorView column = dense; // of rows of 4 elements, of which the others do not count
  column.stride[0] = 4;
  const LaunchResults rows = resultsOf(column, {1, 2, 7, 7, 3, 4});
  CHECK(differenceOf(rows, resultsOf(column, {1, 2, 8, 9, 3, 4}), false).empty());
  CHECK_THAT(differenceOf(rows, resultsOf(column, {1, 2, 7, 7, 3, 5}), false), Contains("element 3 is 5"));
}

TEST_CASE("tuning without a GPU says so, and takes no tile", "[tuned]") {
  Case c;
  c.options.tile = "128x64x8";
  CHECK(refusalOf(Compiler().tune(Mod::identity(), c.operands, c.outputs, c.options)).message ==
        "tuning chooses a tile, and one is asked for");
  const BackwardOperands operands{{c.operands}, *c.outputs.out, {}, *c.outputs.out, {}};
  CHECK_THAT(refusalOf(Compiler().tuneTraining(Mod::identity(), operands, c.outputs, {}, c.options)).message,
             Contains("gradients of q, k and v are not all given"));
  c.options.backwardTile = "64x128x8";
  CHECK(refusalOf(Compiler().tuneTraining(Mod::identity(), operands, c.outputs, {}, c.options)).message ==
        "tuning chooses a tile, and one is asked for");
}
