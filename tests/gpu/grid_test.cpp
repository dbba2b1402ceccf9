// Kernels that walk boxes of a grid against the fp64 reference.
#include "gpu.h"

#include "ir/printer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

using namespace attnc;
using namespace attnc::gputest;

namespace {

using Extents = std::vector<int64_t>; ///< the slowest axis first

int64_t tokensOf(const Extents& extents) {
  int64_t product = 1;
  for (int64_t extent : extents) product *= extent;
  return product;
}

constexpr const char* kAxes[] = {"z", "y", "x"};

/// A mod of coordinates qz, qy, qx and kz, ky, kx, the last ones of these as many as there are axes. Extents are
/// numbers of the launch: those of queries QEz, QEy, QEx, of keys KEz, KEy, KEx.
Mod gridMod(int axes, const std::string& mask, const std::string& score = "", const std::string& captures = "") {
  std::string text = "import torch\nfrom attnc import grid\n" + captures;
  std::string unpacked[2], extents[2];
  for (int side = 0; side < 2; ++side)
    for (int axis = 3 - axes; axis < 3; ++axis) {
      const std::string extent = fmt::format("{}E{}", "QK"[side], kAxes[axis]);
      text += extent + ": int\n";
      extents[side] += extent + ", ";
      unpacked[side] += fmt::format("{}{}, ", "qk"[side], kAxes[axis]);
    }
  text += "queries = grid(" + extents[0] + ")\nkeys = grid(" + extents[1] + ")\n";
  const std::string coordinates =
      fmt::format("  {}= queries.coords(q_idx)\n  {}= keys.coords(kv_idx)\n", unpacked[0], unpacked[1]);
  text += "def mask_mod(b, h, q_idx, kv_idx):\n" + coordinates + "  return " + mask + "\n";
  if (!score.empty()) text += "def score_mod(score, b, h, q_idx, kv_idx):\n" + coordinates + "  return " + score + "\n";
  return take(Mod::parse(text));
}

struct Case {
  Mod mod;
  Problem problem;
  std::map<std::string, int64_t> scalars;
  std::function<void(HostOperands&)> edit; ///< of what was drawn
};

/// Of a gridMod().
Case caseOf(const Mod& mod, const Extents& queries, const Extents& keys, Problem problem = {{1, 2, 2, 0, 0}}) {
  problem.shape.qLen = tokensOf(queries);
  problem.shape.kvLen = tokensOf(keys);
  problem.seed = uint64_t(problem.shape.qLen * 7 + problem.shape.kvLen);
  Case c{mod, problem, {}, {}};
  for (auto [side, extents] : {std::pair('Q', &queries), {'K', &keys}})
    for (size_t i = 0; i < extents->size(); ++i)
      c.scalars[fmt::format("{}E{}", side, kAxes[3 - extents->size() + i])] = (*extents)[i];
  return c;
}

/// Of a mod of the library with constant extents.
Case libraryCase(const std::string& name, const std::map<std::string, std::string>& defines, int64_t tokens,
                 Problem problem = {}) {
  problem.shape = {1, 2, 2, tokens, tokens};
  return {libraryMod(name, defines), problem, {}, {}};
}

bool hasGridKernels() {
  const Mod mod = gridMod(1, "abs(kx - qx) <= 2");
  return bool(gpu()->compiler.source(mod, {.family = Family::Grid, .arch = gpu()->context.info().arch}));
}

#define ATTNC_NEED_GRID_KERNELS()                                                                                      \
  ATTNC_NEED_GPU();                                                                                                    \
  if (!hasGridKernels()) {                                                                                             \
    WARN("SKIPPED: there are no kernels by boxes of a grid for this GPU");                                             \
    return;                                                                                                            \
  }

/// The kernel by addresses, which runs on any GPU: the arch without what is specific to it.
std::string plainArch() {
  std::string arch = gpu()->context.info().arch;
  return arch.substr(0, arch.find_first_not_of("0123456789", 3));
}

/// That made for the GPU, and the one by addresses, if they differ.
std::vector<std::string> gridArchs() {
  const std::string own = gpu()->context.info().arch;
  if (own == "sm_90a") return {own, plainArch()};
  return {own};
}

/// `asked.arch`: empty: both kernels.
void checkAll(const std::vector<Case>& cases, RunOptions asked = {.family = Family::Grid}) {
  const std::vector<std::string> archs = asked.arch.empty() ? gridArchs() : std::vector{asked.arch};
  std::vector<std::pair<Mod, KernelOptions>> jobs;
  for (const std::string& arch : archs)
    for (const Case& c : cases)
      jobs.emplace_back(c.mod,
                        kernelOptions(c.mod, c.problem, {.family = Family::Grid, .arch = arch, .tile = asked.tile}));
  compileAhead(jobs);
  for (const Case& c : cases) {
    INFO(c.problem.text() << "\n" << ir::print(c.mod.module()));
    HostOperands operands = draw(c.mod, c.problem, c.scalars);
    if (c.edit) c.edit(operands);
    const auto expected = runReference(c.mod, c.problem, operands, asked.scale);
    for (const std::string& arch : archs) {
      INFO(arch << " " << asked.tile);
      asked.arch = arch;
      checkClose(runKernel(c.mod, c.problem, operands, asked), expected, c.problem);
    }
  }
}

const Mod& near2d() {
  static const Mod mod = gridMod(2, "(abs(ky - qy) <= 3) & (abs(kx - qx) <= 4)");
  return mod;
}

/// Fills an i32 capture.
void fill(HostOperands& operands, const std::string& name, const std::function<int32_t()>& draw) {
  cli::HostTensor& tensor = operands.tensors.at(name);
  std::vector<int32_t> values(size_t(tensor.elements()));
  std::generate(values.begin(), values.end(), draw);
  REQUIRE(tensor.bytes.size() == values.size() * 4);
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
}

} // namespace

TEST_CASE("grid kernels: lines of tokens", "[gpu][grid]") {
  ATTNC_NEED_GRID_KERNELS();
  std::vector<Case> cases;
  for (const char* mask : {"abs(kx - qx) <= 6", "(kx >= qx - 4) & (kx < qx + 4)", "(kx <= qx) & (kx > qx - 100)",
                           "kx // 50 == qx // 50", "kx <= qx", "abs(kx - qx) <= 2000"}) {
    const Mod mod = gridMod(1, mask);
    for (int64_t length : {1, 7, 64, 129, 1009}) cases.push_back(caseOf(mod, {length}, {length}));
  }
  checkAll(cases);
}

TEST_CASE("grid kernels: images, with windows even and odd, and grids smaller than a box", "[gpu][grid]") {
  ATTNC_NEED_GRID_KERNELS();
  std::vector<Case> cases;
  const Mod even = gridMod(2, "(ky >= qy - 2) & (ky < qy + 2) & (kx >= qx - 8) & (kx < qx + 8)");
  const Mod causal = gridMod(2, "(ky <= qy) & (ky > qy - 9) & (abs(kx - qx) <= 9)");
  const Mod rows = gridMod(2, "abs(ky - qy) <= 1");
  const Mod wide = gridMod(2, "(abs(ky - qy) <= 100) & (abs(kx - qx) <= 100)");
  for (const Mod& mod : {near2d(), even, causal, rows, wide})
    for (const Extents& extents : {Extents{31, 37}, {40, 24}, {3, 5}, {1, 1}, {1, 300}, {300, 1}, {16, 64}, {9, 17}})
      cases.push_back(caseOf(mod, extents, extents));
  checkAll(cases);
}

TEST_CASE("grid kernels: volumes", "[gpu][grid]") {
  ATTNC_NEED_GRID_KERNELS();
  std::vector<Case> cases;
  const Mod near = gridMod(3, "(abs(kz - qz) <= 1) & (abs(ky - qy) <= 2) & (abs(kx - qx) <= 3)");
  const Mod causal = gridMod(3, "(kz <= qz) & (abs(ky - qy) <= 4) & (abs(kx - qx) <= 4)");
  const Mod frames = gridMod(3, "abs(kz - qz) <= 1");
  for (const Mod& mod : {near, causal, frames})
    for (const Extents& extents :
         {Extents{7, 11, 13}, {2, 2, 2}, {1, 7, 1}, {1, 1, 130}, {4, 16, 16}, {13, 1, 11}, {130, 2, 1}})
      cases.push_back(caseOf(mod, extents, extents));
  checkAll(cases);
}

TEST_CASE("grid kernels: neighborhoods of the library, with dilation, stride and causal axes", "[gpu][grid]") {
  ATTNC_NEED_GRID_KERNELS();
  std::vector<Case> cases;
  const auto image = [&](int height, int width, const char* window, const char* dilation, const char* stride,
                         const char* causal, Problem problem = {}) {
    cases.push_back(libraryCase("neighborhood2d",
                                {{"HEIGHT", std::to_string(height)},
                                 {"WIDTH", std::to_string(width)},
                                 {"WINDOW", window},
                                 {"DILATION", dilation},
                                 {"STRIDE", stride},
                                 {"CAUSAL", causal}},
                                height * width, problem));
  };
  image(31, 29, "(13, 13)", "(1, 1)", "(1, 1)", "(False, False)");
  image(24, 40, "(4, 6)", "(1, 1)", "(1, 1)", "(False, False)");
  image(24, 40, "(5, 7)", "(2, 3)", "(1, 1)", "(False, False)");
  image(26, 40, "(13, 13)", "(2, 3)", "(1, 1)", "(False, False)"); // along one axis all keys of a dilation group
  image(32, 32, "(8, 12)", "(1, 1)", "(4, 8)", "(False, False)");
  image(30, 34, "(9, 9)", "(1, 1)", "(3, 5)", "(False, False)");
  image(26, 26, "(13, 13)", "(1, 1)", "(13, 13)", "(False, False)"); // blocked
  image(24, 40, "(5, 7)", "(1, 1)", "(1, 1)", "(True, False)");
  image(24, 40, "(5, 7)", "(1, 1)", "(1, 1)", "(True, True)");
  image(24, 40, "(6, 8)", "(2, 1)", "(1, 4)", "(False, True)");
  const auto video = [&](const char* window, const char* dilation, const char* stride, const char* causal) {
    cases.push_back(libraryCase("neighborhood3d",
                                {{"FRAMES", "6"},
                                 {"HEIGHT", "10"},
                                 {"WIDTH", "14"},
                                 {"WINDOW", window},
                                 {"DILATION", dilation},
                                 {"STRIDE", stride},
                                 {"CAUSAL", causal}},
                                6 * 10 * 14));
  };
  video("(3, 5, 7)", "(1, 1, 1)", "(1, 1, 1)", "(False, False, False)");
  video("(6, 4, 2)", "(1, 2, 7)", "(1, 1, 1)", "(False, False, False)");
  video("(3, 6, 6)", "(1, 1, 1)", "(2, 2, 3)", "(False, False, False)");
  video("(4, 5, 5)", "(1, 1, 1)", "(1, 1, 1)", "(True, False, False)");
  cases.push_back(libraryCase("shifted_window", {{"HEIGHT", "24"}, {"WIDTH", "32"}, {"WINDOW", "8"}, {"SHIFT", "4"}},
                              24 * 32, {{}, 32, 32}));
  cases.push_back(
      libraryCase("shifted_window", {{"HEIGHT", "24"}, {"WIDTH", "32"}, {"WINDOW", "8"}, {"SHIFT", "0"}}, 24 * 32));
  cases.push_back(
      libraryCase("shifted_window", {{"HEIGHT", "21"}, {"WIDTH", "35"}, {"WINDOW", "7"}, {"SHIFT", "3"}}, 21 * 35));
  checkAll(cases);
}

TEST_CASE("grid kernels: head dims, dtypes, GQA and layouts", "[gpu][grid]") {
  ATTNC_NEED_GRID_KERNELS();
  std::vector<Case> cases;
  for (DType dtype : {DType::BF16, DType::F16})
    for (auto [qk, v] :
         {std::pair(8, 8), {32, 32}, {40, 40}, {64, 64}, {96, 96}, {128, 128}, {128, 64}, {32, 128}, {104, 72}})
      cases.push_back(caseOf(near2d(), {21, 19}, {21, 19}, {{1, 2, 2, 0, 0}, qk, v, dtype}));
  for (const ProblemShape& shape : {ProblemShape{2, 8, 2, 0, 0}, {3, 6, 1, 0, 0}, {2, 5, 5, 0, 0}, {3, 1, 1, 0, 0}})
    for (bool kvBatchOne : {false, true})
      for (int64_t padding : {0, 8})
        cases.push_back(caseOf(near2d(), {17, 13}, {17, 13}, {shape, 64, 64, DType::BF16, kvBatchOne, false, padding}));
  checkAll(cases);
}

TEST_CASE("grid kernels: whatever the layout, a kernel is right", "[gpu][grid]") {
  ATTNC_NEED_GRID_KERNELS();
  std::vector<Case> cases;
  for (const ProblemShape& shape : {ProblemShape{2, 4, 2, 0, 0}, {3, 1, 1, 0, 0}})
    for (bool headsLast : {false, true})
      for (bool kvBatchOne : {false, true})
        for (int64_t padding : {0, 1, 8})
          cases.push_back(
              caseOf(near2d(), {17, 13}, {17, 13}, {shape, 64, 64, DType::BF16, kvBatchOne, headsLast, padding}));
  checkAll(cases, {.family = Family::Auto});
}

TEST_CASE("grid kernels: by addresses, any strides will do, and any head dims up to 128", "[gpu][grid]") {
  ATTNC_NEED_GRID_KERNELS();
  std::vector<Case> cases;
  for (DType dtype : {DType::BF16, DType::F16})
    for (auto [qk, v] : {std::pair(8, 8), {24, 16}, {40, 72}, {64, 64}, {120, 56}})
      for (int64_t padding : {1, 3, 8})
        cases.push_back(
            caseOf(near2d(), {17, 13}, {17, 13}, {{2, 4, 2, 0, 0}, qk, v, dtype, padding == 3, padding == 1, padding}));
  checkAll(cases, {.family = Family::Grid, .arch = plainArch()});
}

TEST_CASE("grid kernels: by addresses, whatever the tile", "[gpu][grid]") {
  ATTNC_NEED_GRID_KERNELS();
  const Mod volume = gridMod(3, "(kz <= qz) & (abs(ky - qy) <= 2) & (abs(kx - qx) <= 3)");
  const Mod biased = gridMod(2, "(abs(ky - qy) <= 6) & (abs(kx - qx) <= 6)",
                             "score + bias[h, ky - qy + 6, kx - qx + 6]", "bias: f32[H, 13, 13]\n");
  for (int dim : {32, 64, 128}) {
    const Problem problem{{1, 2, 1, 0, 0}, dim, dim};
    for (const Case& c :
         {caseOf(near2d(), {37, 41}, {37, 41}, problem), caseOf(volume, {5, 11, 23}, {5, 11, 23}, problem),
          caseOf(biased, {37, 41}, {37, 41}, problem)}) {
      const RunOptions asked{.family = Family::Grid, .arch = plainArch()};
      for (const std::string& tile : take(gpu()->compiler.tiles(c.mod, kernelOptions(c.mod, c.problem, asked))))
        checkAll({c}, {.family = Family::Grid, .arch = plainArch(), .tile = tile});
    }
  }
}

TEST_CASE("grid kernels: grids of queries and keys that differ", "[gpu][grid]") {
  ATTNC_NEED_GRID_KERNELS();
  std::vector<Case> cases;
  const Mod half = gridMod(2, "(abs(ky - qy // 2) <= 2) & (abs(kx - qx // 2) <= 3)");
  cases.push_back(caseOf(half, {32, 40}, {16, 20}));
  cases.push_back(caseOf(half, {31, 37}, {16, 19}));
  cases.push_back(caseOf(half, {31, 37}, {4, 4})); // most queries see no key
  const Mod twice = gridMod(2, "(abs(ky - qy * 2) <= 2) & (abs(kx - qx * 2) <= 3)");
  cases.push_back(caseOf(twice, {16, 19}, {31, 37}));
  const Mod frames = gridMod(3, "(kz <= qz // 2) & (abs(ky - qy) <= 2) & (abs(kx - qx) <= 2)");
  cases.push_back(caseOf(frames, {6, 8, 9}, {3, 8, 9}));
  checkAll(cases);
}

TEST_CASE("grid kernels: windows that differ by head and batch entry", "[gpu][grid]") {
  ATTNC_NEED_GRID_KERNELS();
  std::mt19937 random{11};
  const auto small = [&] { return std::uniform_int_distribution<int32_t>(-1, 12)(random); };
  std::vector<Case> cases;
  const Mod chosen = gridMod(2, "torch.where(h == 0, abs(ky - qy) <= 2, abs(ky - qy) <= 9) & (abs(kx - qx) <= 4)");
  cases.push_back(caseOf(chosen, {23, 29}, {23, 29}, {{2, 4, 2, 0, 0}}));
  const Mod table =
      gridMod(2, "(abs(ky - qy) <= radius[b, h]) & (abs(kx - qx) <= radius[b, h] // 2)", "", "radius: i32[B, H]\n");
  cases.push_back(caseOf(table, {23, 29}, {23, 29}, {{2, 6, 3, 0, 0}}));
  cases.back().edit = [&](HostOperands& operands) { fill(operands, "radius", small); };
  checkAll(cases);
}

TEST_CASE("grid kernels: random boxes, empty ones too", "[gpu][grid]") {
  ATTNC_NEED_GRID_KERNELS();
  for (uint32_t seed = 0; seed < 6; ++seed) {
    std::mt19937 random{seed};
    const bool areWild = seed % 2; // far from their queries, many of them empty
    std::vector<Case> cases;
    const Mod mod = gridMod(
        3,
        "(kz >= lo[b, h, 0, qz * QEy + qy]) & (kz < hi[b, h, 0, qz * QEy + qy]) & (ky >= qy + lo[b, h, 1, qx]) &"
        " (ky < qy + hi[b, h, 1, qx]) & (kx >= lo[b, h, 2, q_idx]) & (kx < hi[b, h, 2, q_idx])",
        "", "lo: i32[B, H, 3, Q_LEN]\nhi: i32[B, H, 3, Q_LEN]\n");
    for (auto [queries, keys] :
         {std::pair(Extents{3, 13, 17}, Extents{5, 7, 19}), {Extents{1, 20, 31}, Extents{1, 31, 20}}}) {
      cases.push_back(caseOf(mod, queries, keys, {{2, 2, 1, 0, 0}}));
      cases.back().edit = [&random, areWild](HostOperands& operands) {
        fill(operands, "lo",
             [&] { return std::uniform_int_distribution<int32_t>(areWild ? -40 : -6, areWild ? 40 : 4)(random); });
        fill(operands, "hi",
             [&] { return std::uniform_int_distribution<int32_t>(areWild ? -40 : 0, areWild ? 40 : 12)(random); });
      };
    }
    // All boxes of a head are empty.
    cases.push_back(cases.back());
    cases.back().edit = [](HostOperands& operands) {
      fill(operands, "lo", [] { return 5; });
      fill(operands, "hi", [] { return 5; });
    };
    checkAll(cases);
  }
}

TEST_CASE("grid kernels: queries that see nothing have 0 and minus infinity", "[gpu][grid]") {
  ATTNC_NEED_GRID_KERNELS();
  const Mod mod = gridMod(2, "(abs(ky - qy) <= 1) & (kx >= 10) & (kx < qx)");
  const Case c = caseOf(mod, {20, 30}, {20, 30});
  const HostOperands operands = draw(c.mod, c.problem, c.scalars);
  const Outcome outcome = runKernel(c.mod, c.problem, operands, {.family = Family::Grid});
  checkClose(outcome, runReference(c.mod, c.problem, operands), c.problem);
  for (int64_t row = 0; row < 2 * 600; ++row) {
    if (row % 30 > 10) continue;
    REQUIRE(outcome.lse[size_t(row)] == -INFINITY);
    for (int64_t d = 0; d < 64; ++d) REQUIRE(outcome.out[size_t(row * 64 + d)] == 0);
  }
}

TEST_CASE("grid kernels: scores by coordinates, and masks that are more than a box", "[gpu][grid]") {
  ATTNC_NEED_GRID_KERNELS();
  const std::string window = "(abs(ky - qy) <= 5) & (abs(kx - qx) <= 4)";
  std::vector<Case> cases;
  const auto add = [&](const Mod& mod, Problem problem = {{2, 4, 2, 0, 0}}) {
    for (const Extents& extents : {Extents{19, 23}, {3, 5}, {16, 16}})
      cases.push_back(caseOf(mod, extents, extents, problem));
  };
  add(gridMod(2, window, "score + bias[h, ky - qy + 5, kx - qx + 4]", "bias: f32[H, 11, 9]\n"));
  add(gridMod(2, window, "score + bias[h, ky - qy + 5]", "bias: f32[H, 11]\n"), {{1, 2, 2, 0, 0}, 128, 128});
  add(gridMod(2, window, "score - 0.25 * (abs(ky - qy) + abs(kx - qx)).to(torch.float32)"));
  add(gridMod(2, window, "8.0 * torch.tanh(score / 8.0)"));
  add(gridMod(2, window, "torch.where(kx == qx, score * 2.0, score - 1.0)"), {{1, 2, 2, 0, 0}, 64, 64, DType::F16});
  add(gridMod(2, window, "score * slope[h] + key[b, kv_idx]", "slope: f32[H]\nkey: f32[B, KV_LEN]\n"));
  add(gridMod(2, window, "-score"));
  add(gridMod(2, window + " & ((kx + qx * 2 + ky) % 5 != 0)"));
  add(gridMod(2, window + " & valid[b, kv_idx]", "", "valid: bool[B, KV_LEN]\n"));
  add(gridMod(2, window + " & (q_idx != kv_idx)", "score + 0.5"));
  add(gridMod(2, window + " & (kx % 2 == qx % 2)", "score * 0.5"), {{1, 2, 2, 0, 0}, 128, 128});
  checkAll(cases);
}

TEST_CASE("grid kernels: scale, row max left out, no workspace, several launches", "[gpu][grid]") {
  ATTNC_NEED_GRID_KERNELS();
  const Case c = caseOf(near2d(), {29, 31}, {29, 31}, {{4, 24, 6, 0, 0}});
  checkAll({c}, {.family = Family::Grid, .scale = 0.7f});
  checkAll({c}, {.family = Family::Grid, .rowMax = false});
  checkAll({c}, {.family = Family::Grid, .workspace = false}); // tiles are dealt round robin
  checkAll({c}, {.family = Family::Grid, .launches = 4});
}

TEST_CASE("grid kernels: prepare() takes them, and others where tokens lie beside the grid", "[gpu][grid]") {
  ATTNC_NEED_GRID_KERNELS();
  Case c = caseOf(near2d(), {20, 20}, {20, 20});
  checkAll({c}, {.family = Family::Auto});
  c.problem.shape.qLen += 37; // text behind the image
  c.problem.shape.kvLen += 37;
  checkAll({c}, {.family = Family::Auto});
}

TEST_CASE("grid kernels: what lies around tensors in memory does not matter; a launch is captured in a graph",
          "[gpu][grid]") {
  ATTNC_NEED_GRID_KERNELS();
  Gpu& device = *gpu();
  const Case c = caseOf(near2d(), {13, 21}, {13, 21}, {{2, 4, 2, 0, 0}, 72, 72});
  const ProblemShape& s = c.problem.shape;
  const HostOperands operands = draw(c.mod, c.problem, c.scalars);
  const int64_t kAround = 1 << 16; // bytes before and behind: NaNs
  std::vector<device::Buffer> buffers;
  const auto place = [&](const cli::HostTensor& tensor) {
    std::vector<char> bytes(tensor.bytes.size() + 2 * kAround, char(0xff));
    std::memcpy(bytes.data() + kAround, tensor.bytes.data(), tensor.bytes.size());
    buffers.push_back(take(device::Buffer::allocate(bytes.size())));
    take(buffers.back().upload(bytes.data(), bytes.size()));
    TensorView view = tensor.view();
    view.data = static_cast<char*>(buffers.back().data()) + kAround;
    return view;
  };
  const DeviceCaptures captures = uploadCaptures(operands.captures);
  const Operands inputs{
      .q = place(operands.q), .k = place(operands.k), .v = place(operands.v), .captures = &captures.captures};
  const size_t outBytes = size_t(s.batch * s.qHeads * s.qLen * 72 * 2), rows = size_t(s.batch * s.qHeads * s.qLen);
  device::Buffer out = take(device::Buffer::allocate(outBytes + 2 * kAround)),
                 lse = take(device::Buffer::allocate(rows * 4));
  take(out.fill(0xff));
  take(lse.fill(0xff));
  const Outputs outputs{.out = TensorView::contiguous(static_cast<char*>(out.data()) + kAround, DType::BF16,
                                                      {s.batch, s.qHeads, s.qLen, 72}),
                        .lse = TensorView::contiguous(lse.data(), DType::F32, {s.batch, s.qHeads, s.qLen})};
  const Prepared prepared = take(device.compiler.prepare(c.mod, inputs, outputs, {.family = Family::Grid}));
  const device::Buffer workspace = take(device::Buffer::allocate(prepared.workspaceBytes()));
  take(prepared.initialise(inputs, workspace.data(), device.stream.get()));
  take(prepared.launch(inputs, outputs, workspace.data(), device.stream.get()));
  take(device.stream.synchronize());
  const auto resultOf = [&] {
    std::vector<char> bytes(out.bytes());
    take(out.download(bytes.data(), bytes.size()));
    return bytes;
  };
  const std::vector<char> first = resultOf();
  for (size_t i = 0; i < size_t(kAround); ++i) // nothing is written there
    if (first[i] != char(0xff) || first[first.size() - 1 - i] != char(0xff)) FAIL("written outside out, byte " << i);
  const auto check = [&](const HostOperands& given) {
    const std::vector<char> bytes = resultOf();
    const cli::HostTensor result{.dtype = DType::BF16,
                                 .shape = {s.batch, s.qHeads, s.qLen, 72},
                                 .bytes = {bytes.begin() + kAround, bytes.end() - kAround}};
    std::vector<float> lseHost(rows);
    take(lse.download(lseHost.data(), lse.bytes()));
    checkClose({toDoubles(result), {lseHost.begin(), lseHost.end()}, {}, {}, {}}, runReference(c.mod, c.problem, given),
               c.problem);
  };
  check(operands);

  take(device.stream.beginCapture());
  take(prepared.launch(inputs, outputs, workspace.data(), device.stream.get()));
  const device::Graph graph = take(device.stream.endCapture());
  take(out.fill(0xff));
  for (int i = 0; i < 50; ++i) take(graph.launch(device.stream.get()));
  take(device.stream.synchronize());
  CHECK(resultOf() == first);

  // Other extents of as many tokens: no new kernel.
  HostOperands turned = operands;
  turned.captures.set("QEy", int64_t(21)).set("QEx", int64_t(13)).set("KEy", int64_t(21)).set("KEx", int64_t(13));
  Operands again = inputs;
  again.captures = &turned.captures;
  take(prepared.launch(again, outputs, workspace.data(), device.stream.get()));
  take(device.stream.synchronize());
  check(turned);
  turned.captures.set("KEx", int64_t(12));
  const Status beside = prepared.launch(again, outputs, workspace.data(), device.stream.get());
  REQUIRE_FALSE(beside);
  CHECK(beside.error().message == "a grid of 21 x 12 has 252 tokens, KV_LEN is 273");
}
