// Kernels that go by lists of boxes of a grid, and the kernel that builds these, against the fp64 reference and the
// lists that the CPU builds.
#include "grid_cases.h"

#include "api/compiler_access.h"
#include "helpers/plan_parts.h"

#include <random>

using namespace attnc;
using namespace attnc::gputest;

namespace {

const RunOptions kListed = {.family = Family::Grid, .preparesMask = true};

constexpr const char* kCrissCross = "(ky == qy) | (kx == qx)";

/// Fills a capture of 0 and 1.
std::function<void(HostOperands&)> withTable(const std::string& name, unsigned seed, int oneIn) {
  return [=](HostOperands& operands) {
    std::mt19937 random{seed};
    for (char& byte : operands.tensors.at(name).bytes) byte = char(random() % unsigned(oneIn) == 0);
  };
}

/// An image whose tiles of 8 x 8 see those that a table names, which may be none.
const Mod& tiles2d() {
  static const Mod mod =
      gridMod(2, "live[h, (qy // 8 * 5 + qx // 8) % 16, (ky // 8 * 5 + kx // 8) % 16]", "", "live: bool[H, 16, 16]\n");
  return mod;
}

Case withTiles(Case c, int oneIn) {
  c.edit = withTable("live", unsigned(c.problem.shape.qLen), oneIn);
  return c;
}

/// Neighbors, and keys that all see.
const Mod& global2d() {
  static const Mod mod =
      gridMod(2, "((abs(ky - qy) <= 2) & (abs(kx - qx) <= 3)) | seen[ky, kx]", "", "seen: bool[N, M]\n");
  return mod;
}

} // namespace

GRID_TEST_CASE(Forward, "lists of boxes: what a kernel is prepared for", "[gpu][grid]") {
  const Case c = caseOf(gridMod(2, kCrissCross), {20, 30}, {20, 30});
  const HostOperands operands = draw(c.mod, c.problem, c.scalars);
  Operands inputs{
      .q = operands.q.view(), .k = operands.k.view(), .v = operands.v.view(), .captures = &operands.captures};
  const TensorView out = operands.q.view();
  const Preparation settled = take(gpu()->compiler.settle(c.mod, inputs, {.out = out}));
  CHECK(settled.kernel.options().family == Family::Grid);
  CHECK(settled.kernel.kvLoop() == KvLoop::BoxMask);
}

GRID_TEST_CASE(Forward, "lists of boxes: criss-cross attention", "[gpu][grid]") {
  std::vector<Case> cases;
  const Mod mod = gridMod(2, kCrissCross);
  for (const Extents& extents : {Extents{1, 1}, {3, 5}, {31, 37}, {40, 24}, {16, 64}, {1, 300}, {300, 1}})
    cases.push_back(caseOf(mod, extents, extents));
  for (auto [qk, v] : {std::pair(32, 32), {128, 128}, {128, 64}, {40, 72}})
    for (DType dtype : {DType::BF16, DType::F16, DType::F32})
      cases.push_back(caseOf(mod, {21, 19}, {21, 19}, {{2, 4, 2, 0, 0}, qk, v, dtype}));
  const Mod half = gridMod(2, "(ky == qy // 2) | (kx == qx // 2)");
  cases.push_back(caseOf(half, {32, 40}, {16, 20}));
  cases.push_back(caseOf(half, {31, 37}, {16, 19}));
  const Mod volume = gridMod(3, "((kz == qz) & (ky == qy)) | ((ky == qy) & (kx == qx)) | ((kz == qz) & (kx == qx))");
  for (const Extents& extents : {Extents{7, 11, 13}, {2, 16, 16}, {1, 1, 130}})
    cases.push_back(caseOf(volume, extents, extents));
  checkForward(cases, kListed);
}

GRID_TEST_CASE(Forward, "lists of boxes: tiles that a captured table names, by head, and queries that see none",
               "[gpu][grid]") {
  std::vector<Case> cases;
  for (int oneIn : {2, 8, 60})
    for (const Extents& extents : {Extents{64, 64}, {33, 47}, {8, 100}})
      cases.push_back(withTiles(caseOf(tiles2d(), extents, extents, {{1, 3, 1, 0, 0}}), oneIn));
  Case none = caseOf(tiles2d(), {24, 24}, {24, 24});
  none.edit = [](HostOperands& operands) {
    std::vector<char>& bytes = operands.tensors.at("live").bytes;
    std::fill(bytes.begin(), bytes.end(), char(0));
  };
  cases.push_back(none);
  cases.push_back(withTiles(caseOf(tiles2d(), {32, 32}, {16, 48}), 3));
  checkForward(cases, kListed);
}

GRID_TEST_CASE(Forward, "lists of boxes: neighbors and pixels that all see, and heads that see by rules of their own",
               "[gpu][grid]") {
  std::vector<Case> cases;
  for (const Extents& extents : {Extents{40, 40}, {31, 37}, {5, 3}}) {
    Case c = caseOf(global2d(), extents, extents);
    c.edit = withTable("seen", 7, 50);
    cases.push_back(c);
  }
  const Mod byHead =
      gridMod(2, "torch.where(h % 2 == 0, (ky == qy) | (kx == qx), (abs(ky - qy) <= 1) | (kx % 5 == qx % 7))");
  cases.push_back(caseOf(byHead, {29, 35}, {29, 35}, {{2, 4, 2, 0, 0}}));
  const Mod byBatch = gridMod(2, "(ky == qy + b) | (kx == qx)");
  cases.push_back(caseOf(byBatch, {29, 35}, {29, 35}, {{3, 2, 2, 0, 0}}));
  checkForward(cases, kListed);
}

GRID_TEST_CASE(Forward, "lists of boxes: scores by coordinates, layouts, several launches, and whatever the tile",
               "[gpu][grid]") {
  const Mod biased = gridMod(2, kCrissCross, "score + bias[h, ky - qy + 50, kx - qx + 50]", "bias: f32[H, 101, 101]\n");
  const Mod scaled = gridMod(2, kCrissCross, "20 * torch.tanh(score / 20) + (ky - qy) * 0.1");
  std::vector<Case> cases;
  for (const Mod& mod : {biased, scaled}) cases.push_back(caseOf(mod, {37, 41}, {37, 41}));
  for (bool headsLast : {false, true})
    for (int64_t padding : {0, 8})
      cases.push_back(caseOf(gridMod(2, kCrissCross), {17, 13}, {17, 13},
                             {{2, 4, 2, 0, 0}, 64, 64, DType::BF16, true, headsLast, padding}));
  RunOptions twice = kListed;
  twice.launches = 3;
  checkForward(cases, twice);
  const Case tiled = withTiles(caseOf(tiles2d(), {37, 41}, {37, 41}), 4);
  for (const std::string& arch : gridArchs(tiled.mod, KernelKind::Forward)) {
    RunOptions asked = kListed;
    asked.arch = arch;
    KernelOptions options = kernelOptions(tiled.mod, tiled.problem, asked);
    options.blockSparse = options.maskByBoxes = true;
    for (const std::string& tile : take(test::tilesOf(gpu()->compiler, tiled.mod, options))) {
      asked.tile = tile;
      checkForward({tiled}, asked);
    }
  }
}

GRID_TEST_CASE(Forward, "lists of boxes: a kernel by boxes without lists asks each pair", "[gpu][grid]") {
  checkForward(
      {caseOf(gridMod(2, kCrissCross), {21, 30}, {21, 30}), withTiles(caseOf(tiles2d(), {33, 47}, {33, 47}), 8)});
}

GRID_TEST_CASE(Forward, "lists of boxes: the GPU builds those that the CPU builds", "[gpu][grid]") {
  Gpu& device = *gpu();
  std::mt19937 random{11};
  const auto draw = [&](int most) { return 1 + int(random() % unsigned(most)); };
  // The last one bounds what a query sees: the kernel looks no further.
  const Mod bounded = gridMod(2, "(abs(ky - qy) <= 3) & ((kx == qx) | seen[ky, kx])", "", "seen: bool[N, M]\n");
  for (const Mod& mod : {gridMod(2, kCrissCross), tiles2d(), global2d(), bounded})
    for (int round = 0; round < 12; ++round) {
      const Extents queries{draw(40), draw(40)}, keys{draw(40), draw(40)};
      Case c = caseOf(mod, queries, keys, {{2, 2, 2, 0, 0}});
      HostOperands operands = gputest::draw(mod, c.problem, c.scalars);
      for (const char* table : {"live", "seen"})
        if (operands.tensors.count(table)) withTable(table, unsigned(round), 4)(operands);
      const ProblemShape& s = c.problem.shape;
      const BlockMaskShape shape{.batch = round % 2 ? 2 : 1,
                                 .heads = 2,
                                 .qLen = s.qLen,
                                 .kvLen = s.kvLen,
                                 .boxes = {{{{1, queries[0], queries[1]}, {1, draw(16), draw(16)}},
                                            {{1, keys[0], keys[1]}, {1, draw(16), draw(16)}}}}};
      INFO(queries[0] << " x " << queries[1] << " queries in boxes of " << shape.boxes->queries.box[1] << " x "
                      << shape.boxes->queries.box[2] << ", " << keys[0] << " x " << keys[1] << " keys in boxes of "
                      << shape.boxes->keys.box[1] << " x " << shape.boxes->keys.box[2]);
      const BlockMask expected = take(BlockMask::build(mod, operands.captures, s, shape));
      const DeviceCaptures captures = uploadCaptures(operands.captures);
      device::Buffer memory = take(device::Buffer::allocate(BlockMask::storageBytes(shape)));
      take(memory.fill(0xff));
      const BlockMaskKernel builder = take(test::loadBlockMask(device.compiler, mod, {.maskByBoxes = true}));
      take(builder.launch(BlockMask::viewInto(memory.data(), shape), s, captures.captures, device.stream.get()));
      take(device.stream.synchronize());
      std::vector<char> host(memory.bytes());
      take(memory.download(host.data(), host.size()));
      const BlockMaskView built = BlockMask::viewInto(host.data(), shape), wanted = expected.view();
      for (int64_t row = 0; row < shape.batch * shape.heads * shape.qBlocks(); ++row) {
        const auto listOf = [&](const BlockMaskView& of, const int32_t* counts, const int32_t* indices) {
          const int32_t* const first = indices + row * of.indexStride;
          return std::vector<int32_t>(first, first + counts[row]);
        };
        CHECK(listOf(built, built.partialCount, built.partialIndex) ==
              listOf(wanted, wanted.partialCount, wanted.partialIndex));
        CHECK(listOf(built, built.fullCount, built.fullIndex) == listOf(wanted, wanted.fullCount, wanted.fullIndex));
      }
    }
}
