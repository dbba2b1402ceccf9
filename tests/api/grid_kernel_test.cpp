// Kernels by boxes of a grid: when prepare() takes them, which boxes they have, and what they are told. Needs no GPU.
#include "tests/api/settled.h"

#include "api/mod_impl.h"
#include "families/grids/grid_plan.h"
#include "helpers/plan_parts.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace attnc;
using namespace attnc::test;

namespace {

std::shared_ptr<const passes::GridKernel> gridOf(const Mod& m) {
  auto kernelMod = take(kernelModOf(m, {}));
  REQUIRE(kernelMod->grid);
  return kernelMod->grid;
}

bool isColumnBox(const std::array<int, 3>& box) { // templates/algo/grid_box.cuh, ColumnAxis
  int pitch = 1;
  for (int axis = 2; axis >= 0; --axis) {
    const int span = pitch * box[size_t(axis)];
    const bool byLane = span <= 8 && 8 % span == 0, byGroup = pitch % 8 == 0;
    if (!byLane && !byGroup && (pitch >= 8 || span % 8 != 0)) return false;
    pitch = span;
  }
  return true;
}

/// Of 1000 queries and 3000 keys, as kNeighborhood has them.
std::string passedOver(const Case& c, Family family = Family::Sm90) {
  const Preparation p = settled(mod(kNeighborhood), c);
  CHECK(p.kernel.options().family == family);
  CHECK(p.kernel.kvLoop() != KvLoop::Boxes);
  CHECK(p.blockMask);
  return p.kernel.passedOver();
}

} // namespace

TEST_CASE("boxes of grid kernels are ones that kernels take", "[api][grid]") {
  struct Window {
    int axes;
    std::string mask;
  };
  std::vector<Window> windows{
      {2, "(abs(ky - qy) <= 6) & (abs(kx - qx) <= 6)"},                            // 13 x 13
      {2, "(ky >= qy - 40) & (ky < qy + 40) & (kx >= qx - 40) & (kx < qx + 40)"},  // FLUX
      {3, "(abs(kz - qz) <= 9) & (abs(ky - qy) <= 12) & (abs(kx - qx) <= 12)"},    // Hunyuan video
      {3, "(kz // 16 == qz // 16) & (ky // 8 == qy // 8) & (kx // 8 == qx // 8)"}, // blocks
      {2, "((ky - 4) // 8 == (qy - 4) // 8) & ((kx - 4) // 8 == (qx - 4) // 8)"},  // shifted windows
      {1, "abs(kx - qx) <= X"},
      {2, "ky <= qy"},
  };
  for (int span : {1, 2, 3, 5, 8, 17, 64, 1000}) {
    windows.push_back({1, fmt::format("(kx >= qx) & (kx < qx + {})", span)});
    windows.push_back({2, fmt::format("(ky >= qy) & (ky < qy + {}) & (abs(kx - qx) <= 3)", span)});
    windows.push_back({3, fmt::format("(kz >= qz) & (kz < qz + {}) & (abs(kx - qx) <= 3)", span)});
  }
  for (const Window& window : windows)
    for (int consumers : {2, 3})
      for (auto [headDim, mostKeys] : {std::pair(32, 128), {64, 64}, {128, 128}}) {
        INFO(window.mask << ", head dim " << headDim << ", " << consumers << " consumers");
        const std::vector<codegen::Config::Boxes> ranked =
            plan::rankBoxes(*gridOf(gridMod(window.axes, window.mask)), headDim, headDim,
                            {.consumers = consumers, .mostKeys = mostKeys}, 1);
        REQUIRE(ranked.size() == 1);
        const codegen::Config::Boxes& boxes = ranked[0];
        const auto tokens = [](const std::array<int, 3>& box) { return box[0] * box[1] * box[2]; };
        CHECK(tokens(boxes.queries) == 64);
        CHECK(tokens(boxes.keys) >= 64);
        CHECK(tokens(boxes.keys) <= mostKeys);
        CHECK(tokens(boxes.keys) % 16 == 0);
        CHECK(isColumnBox(boxes.keys));
        CHECK(boxes.splitAxis >= 3 - window.axes);
        CHECK(boxes.splitAxis < 3);
        for (int axis = 0; axis < 3 - window.axes; ++axis) {
          CHECK(boxes.queries[size_t(axis)] == 1);
          CHECK(boxes.keys[size_t(axis)] == 1);
        }
        for (int axis = 0; axis < 3; ++axis) CHECK(boxes.keys[size_t(axis)] <= 256); // of a copy
      }
}

TEST_CASE("tokens of a launch lie on its grids, or others take them", "[api][grid]") {
  plan::LaunchOperands operands;
  operands.problem = {.qLen = 1000, .kvLen = 3000};
  CHECK(plan::checkGrids(operands).error().message == "which tokens lie on the grid is not known without captures");
  operands.grids = {{1, 20, 50}, {5, 20, 30}};
  CHECK(plan::checkGrids(operands));
  operands.problem.kvLen = 3001;
  const Error status = refusalOf(plan::checkGrids(operands));
  CHECK(status.blame == Blame::Environment);
  CHECK(status.message == "a grid of 5 x 20 x 30 has 3000 tokens, KV_LEN is 3001");
  operands.problem = {.qLen = 999, .kvLen = 3000};
  CHECK(plan::checkGrids(operands).error().message == "a grid of 20 x 50 has 1000 tokens, Q_LEN is 999");
  operands.grids = {{1, 1, 1}, {5, 20, 30}};
  CHECK(plan::checkGrids(operands).error().message == "a grid of 1 has 1 token, Q_LEN is 999");
}

TEST_CASE("tokens of a launch may lie beside its grids where the mod means such", "[api][grid]") {
  plan::LaunchOperands operands;
  operands.problem = {.qLen = 1007, .kvLen = 3077};
  operands.grids = {{1, 20, 50}, {5, 20, 30}};
  CHECK_FALSE(plan::checkGrids(operands, true)); // this one does not
  operands.grids->before = {7, 70};
  CHECK(plan::checkGrids(operands, true));
  CHECK_FALSE(plan::checkGrids(operands)); // the kernel does not take them
  CHECK(plan::queriesBeside(*operands.grids, operands.problem) == std::array<int64_t, 2>{7, 0});
  CHECK(plan::keysBeside(*operands.grids, operands.problem) == std::array<int64_t, 2>{70, 7});
  operands.problem.kvLen = 3069;
  CHECK(plan::checkGrids(operands, true).error().message ==
        "a grid of 5 x 20 x 30 has 3000 tokens, the first behind 70 others, KV_LEN is 3069");
  operands.problem = {.qLen = 1000, .kvLen = 3000}; // all on the grids: any kernel takes them
  operands.grids->before = {0, 0};
  CHECK(plan::checkGrids(operands));
  operands.grids->before = {0, 1};
  CHECK_FALSE(plan::checkGrids(operands));
}

TEST_CASE("prepare() takes a kernel by boxes for joint attention of text and an image", "[api][grid]") {
  const Mod m = mod("from attnc import grid\nTEXT: int\nqueries = grid(20, 50, before=TEXT)\nkeys = grid(60, 50)\n"
                    "def mask_mod(b, h, q_idx, kv_idx):\n"
                    "  (qy, qx), (ky, kx) = queries.coords(q_idx), keys.coords(kv_idx)\n"
                    "  near = (abs(ky - qy) <= 3) & (abs(kx - qx) <= 3)\n"
                    "  return near | ~queries.contains(q_idx) | ~keys.contains(kv_idx)\n");
  Case c;
  Captures captures;
  c.operands.captures = &captures;
  c.operands.q = tensor(2, 8, 1007, 64);
  c.outputs.out = tensor(2, 8, 1007, 32);
  c.operands.k = tensor(2, 2, 3001, 64), c.operands.v = tensor(2, 2, 3001, 32);
  captures.set("TEXT", int64_t(7));
  const Preparation p = settled(m, c);
  CHECK(p.kernel.options().family == Family::Grid);
  CHECK(p.kernel.kvLoop() == KvLoop::Boxes);
  CHECK(p.kernel.passedOver().empty());
  captures.set("TEXT", int64_t(0)); // behind the image
  CHECK(settled(m, c).kernel.options().family == Family::Grid);
  captures.set("TEXT", int64_t(8));
  CHECK(settled(m, c).kernel.options().family == Family::Sm90);
  CHECK(settled(m, c).kernel.passedOver() ==
        "a grid of 20 x 50 has 1000 tokens, the first behind 8 others, Q_LEN is 1007");
  c.options.family = Family::Grid;
  const auto refused = [&] { return Compiler().settle(m, c.operands, c.outputs, c.options).error().message; };
  CHECK(refused() == "a grid of 20 x 50 has 1000 tokens, the first behind 8 others, Q_LEN is 1007");
  c.operands.captures = nullptr;
  CHECK(refused() == "which tokens lie on the grid is not known without captures");
}

TEST_CASE("training takes boxes for joint attention of text and an image in both passes, or in none", "[api][grid]") {
  const Mod m = mod("from attnc import grid\nTEXT: int\nimage = grid(20, 50, before=TEXT)\n"
                    "def mask_mod(b, h, q_idx, kv_idx):\n"
                    "  (qy, qx), (ky, kx) = image.coords(q_idx), image.coords(kv_idx)\n"
                    "  near = (abs(ky - qy) <= 3) & (abs(kx - qx) <= 3)\n"
                    "  return near | ~image.contains(q_idx) | ~image.contains(kv_idx)\n");
  BackwardOperands operands;
  Captures captures;
  operands.captures = &captures;
  const auto settledFor = [&](int64_t tokens, int64_t text, Family family, bool deterministic = false) {
    operands.q = operands.k = operands.v = operands.out = operands.dOut = tensor(2, 8, tokens, 64);
    operands.lse = TensorView::contiguous(nullptr, DType::F32, {2, 8, tokens});
    captures.set("TEXT", text);
    return Compiler().settleTraining(m, operands, {.out = operands.q, .lse = operands.lse},
                                     {.dQ = operands.q, .dK = operands.q, .dV = operands.q},
                                     {.family = family, .arch = "sm_90a", .deterministic = deterministic});
  };
  for (auto [tokens, text] : {std::pair<int64_t, int64_t>(1077, 77), {1077, 0}, {1200, 77}, {1000, 0}}) {
    INFO(tokens << " tokens, the image behind " << text);
    const Preparation p = take(settledFor(tokens, text, Family::Grid));
    CHECK(p.kernel.options().family == Family::Grid);
    CHECK(p.backward->options().family == Family::Grid);
    CHECK(p.kernel.kvLoop() == KvLoop::Boxes);
    CHECK(p.backward->kvLoop() == KvLoop::Boxes);
    CHECK_FALSE(p.blockMask);
  }
  for (bool deterministic : {false, true}) {
    const Preparation p = take(settledFor(1077, 77, Family::Auto, deterministic));
    CHECK(p.kernel.options().family == Family::Grid);
    CHECK(p.backward->options().family == Family::Grid);
    CHECK_FALSE(p.blockMask);
  }
  CHECK(refusalOf(settledFor(1000, 77, Family::Grid)).message ==
        "a grid of 20 x 50 has 1000 tokens, the first behind 77 others, Q_LEN is 1000");
}

TEST_CASE("prepare() takes a kernel by boxes for a neighborhood, and tells why it does not", "[api][grid]") {
  Case c;
  const Preparation p = settled(mod(kNeighborhood), c);
  CHECK(p.kernel.options().family == Family::Grid);
  CHECK(p.kernel.kvLoop() == KvLoop::Boxes);
  CHECK(p.kernel.passedOver().empty());
  CHECK_FALSE(p.blockMask);
  CHECK_FALSE(p.kernel.options().blockSparse);
  CHECK(p.kernels().size() == 1);

  SECTION("tokens beside the grid") {
    c.operands.k = tensor(2, 2, 3001, 64);
    c.operands.v = tensor(2, 2, 3001, 32);
    CHECK(passedOver(c) == "a grid of 60 x 50 has 3000 tokens, KV_LEN is 3001");
    c.options.family = Family::Grid;
    CHECK(errorOf(mod(kNeighborhood), c) == "a grid of 60 x 50 has 3000 tokens, KV_LEN is 3001");
  }
  SECTION("a layout") {
    c.operands.q = tensor(2, 8, 1000, 64);
    c.operands.q.stride[0] += 8; // no multiple of the heads' stride
    CHECK(passedOver(c) == "q has a batch stride of 512008, which is no multiple of its head stride, 64000");
  }
  SECTION("rows of all heads side by side are a grid's as well") {
    c.operands.q.stride[1] = 64, c.operands.q.stride[2] = 8 * 64;
    CHECK(settled(mod(kNeighborhood), c).kernel.options().family == Family::Grid);
  }
  SECTION("head dims and dtypes") {
    c.operands.q = tensor(2, 8, 1000, 192);
    c.operands.k = tensor(2, 2, 3000, 192);
    CHECK(passedOver(c) == "grid takes head dims up to 128");
  }
  SECTION("another GPU has one as well, which takes any layout") {
    for (const char* arch : {"sm_80", "sm_89", "compute_90", "sm_120"}) {
      c.options.arch = arch;
      c.options.family = Family::Auto;
      c.operands.q = tensor(2, 8, 1000, 64);
      c.operands.q.stride[2] = 65, c.operands.q.stride[1] = 65000, c.operands.q.stride[0] = 8 * 65000;
      const Preparation other = settled(mod(kNeighborhood), c);
      CHECK(other.kernel.options().family == Family::Grid);
      CHECK(other.kernel.kvLoop() == KvLoop::Boxes);
      CHECK_FALSE(other.blockMask);
      CHECK(other.kernel.passedOver().empty());
      c.options.family = Family::Grid;
      CHECK(settled(mod(kNeighborhood), c).kernel.options().family == Family::Grid);
      c.operands.q = tensor(2, 8, 1000, 192);
      c.operands.k = tensor(2, 2, 3000, 192);
      CHECK(errorOf(mod(kNeighborhood), c) ==
            "the grid family does not serve this request: it takes head dims up to 128");
      c.operands.k = tensor(2, 2, 3000, 64);
    }
    c.options = {.arch = "sm_80"};
    c.operands.q = tensor(2, 8, 1000, 192);
    c.operands.k = tensor(2, 2, 3000, 192);
    CHECK(passedOver(c, Family::Sm80) == "grid takes head dims up to 128");
  }
  SECTION("a mod without a grid is not meant") {
    CHECK(settled(mod("abs(q_idx - kv_idx) <= 5"), c).kernel.passedOver().empty());
  }
  SECTION("a block mask that is given") {
    const BlockMaskView mask{.shape = {1, 1, 1000, 3000}};
    c.operands.blockMask = &mask;
    const Preparation given = settled(mod(kNeighborhood), c);
    CHECK(given.kernel.options().family == Family::Sm90);
    CHECK(given.kernel.passedOver() == "grid takes no block masks");
  }
  SECTION("training") {
    size_t bytes[2];
    for (bool deterministic : {false, true}) {
      c.options.deterministic = deterministic;
      const Preparation byBoxes = trained(mod(kNeighborhood), c);
      CHECK(byBoxes.kernel.options().family == Family::Grid);
      CHECK(byBoxes.backward->options().family == Family::Grid);
      CHECK(byBoxes.backward->tile() == (deterministic ? "q1x8x16 kv1x16x8" : "q1x4x32 kv1x16x8"));
      CHECK(!byBoxes.blockMask);
      bytes[deterministic] = byBoxes.workspaceBytes;
    }
    CHECK(bytes[1] - bytes[0] >= 2 * 8 * 1000 * 8); // turns
    CHECK(bytes[1] - bytes[0] < 2 * 8 * 1000 * 8 + 256);
    std::string slanted = kNeighborhood;
    slanted.replace(slanted.find("<= 2"), 4, "<= q[1]");
    const Preparation byLists = trained(mod(slanted.c_str()), c);
    CHECK(byLists.kernel.options().family == Family::Sm90);
    CHECK(byLists.kernel.passedOver() == "grid goes by no lists, which the backward pass of this training walks");
    CHECK(byLists.backward->options().family == Family::Sm90);
    CHECK(byLists.backward->passedOver() == "grid takes boxes that each axis of the query decides by itself");
    CHECK(byLists.blockMask);
    for (const char* arch : {"sm_80", "sm_86", "compute_90", "sm_120"}) { // by addresses, whatever the strides
      INFO(arch);
      c.options.arch = arch;
      c.operands.k.stride[2] = 65;
      for (bool deterministic : {false, true}) {
        c.options.deterministic = deterministic;
        const Preparation byAddresses = trained(mod(kNeighborhood), c);
        CHECK(byAddresses.kernel.options().family == Family::Grid);
        CHECK(byAddresses.backward->options().family == Family::Grid);
        CHECK(byAddresses.backward->kvLoop() == KvLoop::Boxes);
        CHECK(byAddresses.backward->tile() == "q1x4x8 kv1x16x8");
      }
    }
  }
}

TEST_CASE("numbers of a launch say where its tokens lie", "[api][grid]") {
  const Mod m = gridMod(2, "(abs(ky - qy) <= 3) & (abs(kx - qx) <= 3)");
  Case c;
  c.operands.k = tensor(2, 2, 1000, 64), c.operands.v = tensor(2, 2, 1000, 32);
  Captures captures;
  c.operands.captures = &captures;
  captures.set("X", int64_t(50)).set("Y", int64_t(20)).set("Z", int64_t(1));
  CHECK(settled(m, c).kernel.options().family == Family::Grid);
  captures.set("X", int64_t(49));
  const Preparation beside = settled(m, c);
  CHECK(beside.kernel.options().family == Family::Sm90);
  CHECK(beside.kernel.passedOver() == "a grid of 20 x 49 has 980 tokens, Q_LEN is 1000");

  c.operands.captures = nullptr;
  const Preparation unknown = settled(m, c);
  CHECK(unknown.kernel.options().family == Family::Sm90);
  CHECK(unknown.kernel.passedOver() == "which tokens lie on the grid is not known without captures");
  // Of constant extents it is.
  const Mod constant = mod((std::string("bias: f32[H]\n") + kNeighborhood +
                            "\ndef score_mod(score, b, h, q_idx, kv_idx):\n    return score + bias[h]\n")
                               .c_str());
  CHECK(settled(constant, Case()).kernel.options().family == Family::Grid);
}

TEST_CASE("a mod that declares no grid has one where its lengths say so, and no slower kernel elsewhere",
          "[api][grid]") {
  const auto neighborhood = [](const std::string& declared, const std::string& more) {
    return mod((declared +
                "w: int\ndef mask_mod(b, h, q_idx, kv_idx):\n"
                "  qy, qx, ky, kx = q_idx // w, q_idx % w, kv_idx // w, kv_idx % w\n"
                "  return (abs(qy - ky) <= 3) & (abs(qx - kx) <= 3)" +
                more + "\n")
                   .c_str());
  };
  const Mod m = neighborhood("", "");
  Case c; // 1000 queries, 3000 keys
  Captures captures;
  c.operands.captures = &captures;
  captures.set("w", int64_t(50));
  const Preparation p = settled(m, c);
  CHECK(p.kernel.options().family == Family::Grid);
  CHECK(p.kernel.kvLoop() == KvLoop::Boxes);
  CHECK(p.kernel.passedOver().empty());
  CHECK_FALSE(p.blockMask);
  CHECK_FALSE(*test::gainsFromBlockMask(Compiler(), m, p.kernel.options()));

  const auto passedOverAt = [&](int64_t w) {
    captures.set("w", w);
    const Preparation beside = settled(m, c);
    CHECK(beside.kernel.options().family == Family::Sm90);
    CHECK(beside.blockMask);
    return beside.kernel.passedOver();
  };
  const std::string rule = ", by which the mod takes positions apart";
  CHECK(passedOverAt(49) == "Q_LEN is 1000, no multiple of 49" + rule);
  CHECK(passedOverAt(2000) == "Q_LEN is 1000, no multiple of 2000" + rule);
  CHECK(passedOverAt(0) == "Q_LEN is 1000, no multiple of 0" + rule);
  CHECK(passedOverAt(-50) == "Q_LEN is 1000, no multiple of -50" + rule);
  CHECK(passedOverAt(-1) == "Q_LEN is 1000, no multiple of -1" + rule);
  // A length of 0 is none of a grid.
  captures.set("w", int64_t(50));
  Case empty = c;
  empty.operands.k = tensor(2, 2, 0, 64), empty.operands.v = tensor(2, 2, 0, 32);
  CHECK(settled(m, empty).kernel.options().family == Family::Sm90);
  CHECK(settled(m, empty).kernel.passedOver() == "a grid of 0 x 50 has an extent below 1");
  // What boxes are computed of does not wrap around.
  const Mod clamped = neighborhood("height: int\n", " & (ky <= height - 1)");
  captures.set("w", int64_t(50)).set("height", int64_t(1) << 25);
  CHECK(settled(clamped, c).kernel.passedOver() ==
        "a capture is 33554432; with grids that the mod does not declare they lie in -16777216..16777216");
  captures.set("height", int64_t(20));
  CHECK(settled(clamped, c).kernel.options().family == Family::Grid);
  captures = Captures();
  c.operands.k = tensor(2, 2, 1000, 64), c.operands.v = tensor(2, 2, 1000, 32);
  const Mod whole = mod("w: int\nv: int\ndef mask_mod(b, h, q, k):\n"
                        "  return (abs(q // w % v - k // w % v) <= 3) & (abs(q % w - k % w) <= 3)\n");
  captures.set("w", int64_t(50)).set("v", int64_t(20));
  CHECK(settled(whole, c).kernel.options().family == Family::Grid);
  captures.set("w", int64_t(-50)).set("v", int64_t(-20)); // 1000 as well
  CHECK(settled(whole, c).kernel.passedOver() == "a grid of -20 x -50 has an extent below 1");
  c.operands.captures = nullptr;
  CHECK(settled(m, c).kernel.passedOver() == "which tokens lie on the grid is not known without captures");
  c.options.family = Family::Grid;
  CHECK(errorOf(m, c) == "which tokens lie on the grid is not known without captures");

  // Where no length is known, a kernel is for all of them; asked for, it is one by boxes.
  const KernelOptions any{.arch = "sm_90a", .headDim = 64, .headDimV = 32};
  CHECK(test::choosePlan(m, any)->options.family == Family::Sm90);
  KernelOptions asked = any;
  asked.family = Family::Grid;
  CHECK(test::choosePlan(m, asked)->options.family == Family::Grid);
  // A declared grid has these tokens and no others.
  CHECK(test::choosePlan(mod(kNeighborhood), any)->options.family == Family::Grid);
}

TEST_CASE("lengths that leave no rest of a found grid are known without captures", "[api][grid]") {
  const char* const text =
      "bias: f32[H]\ndef score_mod(s, b, h, q, k):\n  return s + bias[h]\n"
      "def mask_mod(b, h, q, k):\n  return (abs(q // 50 - k // 50) <= 3) & (abs(q % 50 - k % 50) <= 3)\n";
  Case c;
  CHECK(settled(mod(text), c).kernel.options().family == Family::Grid);
  c.operands.k = tensor(2, 2, 3020, 64), c.operands.v = tensor(2, 2, 3020, 32);
  CHECK(settled(mod(text), c).kernel.passedOver() ==
        "KV_LEN is 3020, no multiple of 50, by which the mod takes positions apart");
  // Intervals of positions are walked by their bounds, as ever.
  CHECK(settled(mod("q_idx // 50 == kv_idx // 50"), Case()).kernel.kvLoop() == KvLoop::Bounds);
}

TEST_CASE("a found grid behind text serves the lengths that its slices make up", "[api][grid]") {
  const Mod m = mod("w: int\ntext: int\ndef mask_mod(b, h, q, k):\n  i, j = q - text, k - text\n"
                    "  return (abs(i // w - j // w) <= 3) & (abs(i % w - j % w) <= 3) | (q < text) | (k < text)\n");
  Case c;
  c.options.family = Family::Grid;
  Captures captures;
  c.operands.captures = &captures;
  const auto at = [&](int64_t w, int64_t text) -> const Case& {
    captures.set("w", w).set("text", text);
    return c;
  };
  CHECK(settled(m, at(50, 0)).kernel.options().family == Family::Grid);
  CHECK(settled(m, at(50, 100)).kernel.kvLoop() == KvLoop::Boxes);
  CHECK(settled(m, at(8, 24)).kernel.kvLoop() == KvLoop::Boxes);
  const std::string rule = ", by which the mod takes positions apart";
  CHECK(errorOf(m, at(50, 24)) == "Q_LEN is 1000, counted from 24, no multiple of 50" + rule);
  CHECK(errorOf(m, at(50, 1000)) == "a grid of 0 x 50 has an extent below 1"); // only text
  CHECK(errorOf(m, at(50, 1050)) == "a grid of 0 x 50 has an extent below 1");
  CHECK(errorOf(m, at(50, -50)) == "a grid of 21 x 50 has 1050 tokens, the first behind -50 others, Q_LEN is 1000");
  CHECK(errorOf(m, at(-50, 0)) == "Q_LEN is 1000, no multiple of -50" + rule);
  CHECK(errorOf(m, at(50, int64_t(1) << 30))
            .rfind("a capture is 1073741824; with grids that the mod does not declare", 0) == 0);
  c.options.family = Family::Auto;
  CHECK(settled(m, at(50, 24)).kernel.options().family == Family::Sm90);
  const Preparation both = trained(m, at(50, 100));
  CHECK(both.kernel.options().family == Family::Grid);
  CHECK(both.backward->options().family == Family::Grid);
  // The reason is what rules boxes out, not that a block mask is built for lack of them.
  const Preparation neither = trained(m, at(50, 24));
  CHECK(neither.backward->kvLoop() == KvLoop::BlockMask);
  CHECK(neither.backward->passedOver() == "Q_LEN is 1000, counted from 24, no multiple of 50" + rule);

  // Rows that end: whatever stands behind them.
  const Mod ends = mod("text: int\ndef mask_mod(b, h, q, k):\n  i, j = q - text, k - text\n"
                       "  return (abs(i // 50 - j // 50) <= 3) & (abs(i % 50 - j % 50) <= 3) | (i < 0) | (i >= 500) | "
                       "(j < 0) | (j >= 500)\n");
  c.options.family = Family::Grid;
  captures = Captures();
  for (int64_t text : {0, 77, 500}) {
    captures.set("text", text);
    CHECK(settled(ends, c).kernel.kvLoop() == KvLoop::Boxes);
  }
  captures.set("text", int64_t(501));
  CHECK(errorOf(ends, c) == "a grid of 10 x 50 has 500 tokens, the first behind 501 others, Q_LEN is 1000");
  captures.set("text", int64_t(-1));
  CHECK(errorOf(ends, c) == "a grid of 10 x 50 has 500 tokens, the first behind -1 others, Q_LEN is 1000");
}

TEST_CASE("a kernel by boxes reads the captures of its launch", "[api][grid]") {
  // A walk over its module meets captures in another order than one over the module that launches bind to.
  const Mod m = gridMod(2, "(abs(ky - qy) <= radius[h]) & (abs(kx - qx) <= r1) & (kx >= low[b, qy])",
                        "r1: int\nlow: i32[B, N]\nradius: i32[H]\n");
  const passes::Algebra algebra{.scale = true, .kvBounds = false};
  auto onGrid = take(kernelModOf(m, {algebra, false, true}));
  const ir::Module &own = onGrid->module, &bound = m.module();
  const auto namesOf = [](const auto& declared) {
    std::vector<std::string> names;
    for (const auto& one : declared) names.push_back(one.name);
    return names;
  };
  CHECK(namesOf(own.scalars) == namesOf(bound.scalars));
  CHECK(namesOf(own.tensors) == namesOf(bound.tensors));
  CHECK(own.dims == bound.dims);
  const ir::Grid& grid = onGrid->grid->ofKeys;
  REQUIRE(grid.extents.size() == 2);
  CHECK(bound.scalars[size_t(grid.extents[0].value)].name == "Y");
  CHECK(bound.scalars[size_t(grid.extents[1].value)].name == "X");
}

TEST_CASE("a kernel by boxes asks mask_mod where the box does not say all", "[api][grid]") {
  const auto boxIsMask = [](const std::string& mask) {
    auto kernelMod = take(kernelModOf(gridMod(1, mask), {{.scale = true, .kvBounds = false}, false, true}));
    const bool is = kernelMod->source.text.find("kBoxIsMask = true") != std::string::npos;
    CHECK(is == (kernelMod->source.text.find("kBoxIsMask = false") == std::string::npos));
    return is;
  };
  CHECK(boxIsMask("abs(kx - qx) <= 5"));
  CHECK_FALSE(boxIsMask("(abs(kx - qx) <= 5) & (kx * qx % 3 != 1)"));
  CHECK_FALSE(boxIsMask("(abs(kx - qx) <= 6) & (kx % 2 == qx % 2)")); // a step apart
}

TEST_CASE("gradients by boxes are refused with the reason where there is no kernel for them", "[api][grid]") {
  const auto refusal = [](const Mod& m, KernelOptions options, const char* arch) {
    options.kind = KernelKind::Backward;
    options.family = Family::Grid;
    options.arch = arch;
    auto derived = take(derive(m, options));
    auto plan = test::choosePlan(derived, options);
    return plan ? std::string() : plan.error().message;
  };
  const std::string refuses = "the grid family does not serve this request: it ";
  const Mod image = gridMod(2, "(abs(ky - qy) <= 3) & (abs(kx - qx) <= 3)");
  for (const char* arch : {"sm_80", "sm_90a", "sm_120"}) {
    INFO(arch);
    CHECK(refusal(image, {.headDim = 128}, arch).empty());
    CHECK(refusal(image, {.headDim = 136}, arch).find(refuses + "takes head dims up to 128") == 0);
    CHECK(refusal(image, {.dtype = DType::F32, .headDim = 64}, arch).empty());
    CHECK(refusal(image, {.headDim = 64, .features = {Feature::Deterministic}}, arch).empty());
    CHECK(refusal(image, {.headDim = 64, .blockSparse = true}, arch) == refuses + "takes no block masks");
    CHECK(refusal(gridMod(1, "abs(kx - qx) <= 3"), {.headDim = 64}, arch) ==
          refuses + "takes grids of two or three axes");
    CHECK(refusal(gridMod(2, "(abs(ky - qy) <= qx) & (abs(kx - qx) <= 3)"), {.headDim = 64}, arch) ==
          refuses + "takes boxes that each axis of the query decides by itself");
    CHECK(refusal(mod("q_idx >= kv_idx"), {.headDim = 64}, arch) ==
          refuses + "takes mods whose mask is a box of keys on a grid");
  }
  CHECK(refusal(image, {.headDim = 40, .headDimV = 128}, "sm_80").empty());
  CHECK_FALSE(refusal(image, {.headDim = 40, .headDimV = 128}, "sm_90a").empty());
}
