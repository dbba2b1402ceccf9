// Cases for box kernels.
#pragma once

#include "gpu.h"

#include "helpers/plans.h"
#include "ir/printer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>

namespace attnc::gputest {

using Extents = std::vector<int64_t>; ///< the slowest axis first

inline int64_t tokensOf(const Extents& extents) {
  int64_t product = 1;
  for (int64_t extent : extents) product *= extent;
  return product;
}

constexpr const char* kAxes[] = {"z", "y", "x"};

/// Returns a mod over coordinates qz, qy, qx and kz, ky, kx, of which it uses the last `axes`. Extents are numbers of
/// the launch: QEz, QEy, QEx for queries, KEz, KEy, KEx for keys. With `mayLieBeside`, qin and kin say whether the
/// tokens lie on their grids, which begin after QB and KB other tokens.
inline Mod gridMod(int axes, const std::string& mask, const std::string& score = "", const std::string& captures = "",
                   bool mayLieBeside = false) {
  std::string text = "import torch\nfrom attnc import grid\n" + captures;
  std::string unpacked[2], extents[2];
  for (int side = 0; side < 2; ++side)
    for (int axis = 3 - axes; axis < 3; ++axis) {
      const std::string extent = fmt::format("{}E{}", "QK"[side], kAxes[axis]);
      text += extent + ": int\n";
      extents[side] += extent + ", ";
      unpacked[side] += fmt::format("{}{}, ", "qk"[side], kAxes[axis]);
    }
  if (mayLieBeside) text += "QB: int\nKB: int\n", extents[0] += "before=QB", extents[1] += "before=KB";
  text += "queries = grid(" + extents[0] + ")\nkeys = grid(" + extents[1] + ")\n";
  std::string coordinates =
      fmt::format("  {}= queries.coords(q_idx)\n  {}= keys.coords(kv_idx)\n", unpacked[0], unpacked[1]);
  if (mayLieBeside) coordinates += "  qin, kin = queries.contains(q_idx), keys.contains(kv_idx)\n";
  text += "def mask_mod(b, h, q_idx, kv_idx):\n" + coordinates + "  return " + mask + "\n";
  if (!score.empty()) text += "def score_mod(score, b, h, q_idx, kv_idx):\n" + coordinates + "  return " + score + "\n";
  return take(Mod::parse(text));
}

struct Case {
  Mod mod;
  Problem problem;
  std::map<std::string, int64_t> scalars;
  std::function<void(HostOperands&)> edit; ///< edits the drawn operands
};

/// Returns a case of a gridMod().
inline Case caseOf(const Mod& mod, const Extents& queries, const Extents& keys, Problem problem = {{1, 2, 2, 0, 0}}) {
  problem.shape.qLen = tokensOf(queries);
  problem.shape.kvLen = tokensOf(keys);
  problem.seed = uint64_t(problem.shape.qLen * 7 + problem.shape.kvLen);
  Case c{mod, problem, {}, {}};
  for (auto [side, extents] : {std::pair('Q', &queries), {'K', &keys}})
    for (size_t i = 0; i < extents->size(); ++i)
      c.scalars[fmt::format("{}E{}", side, kAxes[3 - extents->size() + i])] = (*extents)[i];
  return c;
}

/// Tokens before a grid, and after it.
struct BesideGrid {
  int64_t before, behind;
};

/// Returns a case of a gridMod() with tokens outside its grids.
inline Case besideCase(const Mod& mod, const Extents& queries, const BesideGrid& besideQueries, const Extents& keys,
                       const BesideGrid& besideKeys, Problem problem = {{1, 2, 2, 0, 0}}) {
  Case c = caseOf(mod, queries, keys, problem);
  c.problem.shape.qLen += besideQueries.before + besideQueries.behind;
  c.problem.shape.kvLen += besideKeys.before + besideKeys.behind;
  c.scalars["QB"] = besideQueries.before, c.scalars["KB"] = besideKeys.before;
  return c;
}

/// Returns a case of a mod of the library with constant extents.
inline Case libraryCase(const std::string& name, const std::map<std::string, std::string>& defines, int64_t tokens,
                        Problem problem = {}) {
  problem.shape = {1, 2, 2, tokens, tokens};
  return {libraryMod(name, defines), problem, {}, {}};
}

/// Returns a case of neighborhood2d, if `frames` is 0, else of neighborhood3d.
inline Case neighborhoodCase(int frames, int height, int width, const char* window, const char* dilation,
                             const char* stride, const char* causal, const Problem& problem = {}) {
  std::map<std::string, std::string> defines{{"HEIGHT", std::to_string(height)},
                                             {"WIDTH", std::to_string(width)},
                                             {"WINDOW", window},
                                             {"DILATION", dilation},
                                             {"STRIDE", stride},
                                             {"CAUSAL", causal}};
  if (frames) defines["FRAMES"] = std::to_string(frames);
  return libraryCase(frames ? "neighborhood3d" : "neighborhood2d", defines, std::max(frames, 1) * height * width,
                     problem);
}

/// Returns cases with keys whose scores are hopeless.
inline std::vector<Case> hopelessCases() {
  std::vector<Case> cases;
  const char* mask = "(abs(ky - qy) <= 4) & (abs(kx - qx) <= 6)";
  for (const char* score :
       {"score + torch.where(kx > qx, -1e9, 0.0)", "score + torch.where(ky < qy, -3.4028234663852886e38, 0.0)",
        "torch.where((kx + ky + qx + qy) % 2 == 0, score, score - 1e6)"})
    for (int headDim : {64, 128})
      cases.push_back(caseOf(gridMod(2, mask, score), {21, 35}, {21, 35}, {{1, 2, 2, 0, 0}, headDim, headDim}));
  return cases;
}

/// Checks that cases lie on grids, and drops those that do not: what is no grid holds nothing here.
inline void keepGrids(std::vector<Case>& cases) {
  std::erase_if(cases, [](const Case& c) {
    const bool isOne =
        bool(test::sourcesOf(gpu()->compiler, c.mod, kernelOptions(c.mod, c.problem, {.family = Family::Grid})));
    CHECK(isOne);
    return !isOne;
  });
}

inline bool hasGridKernels(KernelKind kind) {
  const Mod mod = gridMod(2, "(abs(ky - qy) <= 2) & (abs(kx - qx) <= 2)");
  return bool(test::sourcesOf(gpu()->compiler, mod,
                              {.kind = kind, .family = Family::Grid, .arch = gpu()->context.info().arch}));
}

/// Returns the GPU's arch without its specific features. Its kernels load by address and run on any GPU.
inline std::string plainArch() {
  const std::string arch = gpu()->context.info().arch;
  return arch == "sm_90a" ? "compute_90" : arch;
}

/// Returns the archs to test: that of the kernels made for the GPU, and that of the kernels by addresses, if they
/// differ and serve the mod. The latter take no tokens outside a grid.
inline std::vector<std::string> gridArchs(const Mod& mod, KernelKind kind) {
  const std::string own = gpu()->context.info().arch;
  if (own == "sm_90a" &&
      test::sourcesOf(gpu()->compiler, mod, {.kind = kind, .family = Family::Grid, .arch = plainArch()}))
    return {own, plainArch()};
  return {own};
}

#define ATTNC_NEED_GRID_KERNELS(kind)                                                                                  \
  ATTNC_NEED_GPU();                                                                                                    \
  if (!hasGridKernels(kind)) {                                                                                         \
    WARN("SKIPPED: there are no kernels by boxes of a grid for this GPU");                                             \
    return;                                                                                                            \
  }

#define GRID_TEST_CASE(kind, ...) ATTNC_TEST_CASE(ATTNC_NEED_GRID_KERNELS(KernelKind::kind), __VA_ARGS__)

constexpr const char* kNearby = "(abs(ky - qy) <= 3) & (abs(kx - qx) <= 4)";

inline const Mod& near2d() {
  static const Mod mod = gridMod(2, kNearby);
  return mod;
}
/// Text and image see all of each other. Image tokens see image tokens nearby.
inline const Mod& joint2d() {
  static const Mod mod = gridMod(2, std::string("(") + kNearby + ") | ~qin | ~kin", "", "", true);
  return mod;
}

/// Returns the cases that kernels must pass with every tile: an image, a volume, and scores that read memory.
inline std::vector<Case> casesOfTiles(int headDim) {
  const Mod volume = gridMod(3, "(kz <= qz) & (abs(ky - qy) <= 2) & (abs(kx - qx) <= 3)");
  const Mod biased = gridMod(2, "(abs(ky - qy) <= 6) & (abs(kx - qx) <= 6)",
                             "score + bias[h, ky - qy + 6, kx - qx + 6]", "bias: f32[H, 13, 13]\n");
  const Problem problem{{1, 2, 1, 0, 0}, headDim, headDim};
  return {caseOf(near2d(), {37, 41}, {37, 41}, problem), caseOf(volume, {5, 11, 23}, {5, 11, 23}, problem),
          caseOf(biased, {37, 41}, {37, 41}, problem)};
}

/// Returns cases with text before or after an image, for mods that split positions by hand.
inline std::vector<Case> casesBehindText() {
  std::vector<Case> cases;
  const auto add = [&](const std::string& body, int64_t qLen, int64_t kvLen, std::map<std::string, int64_t> scalars,
                       const std::string& score = "") {
    Problem problem{{1, 4, 2, qLen, kvLen}};
    problem.seed = uint64_t(qLen + 3 * kvLen);
    const std::string near = "  near = (abs(qy - ky) <= 3) & (abs(qx - kx) <= 4)\n";
    std::string text = "import torch\n";
    for (const auto& [name, value] : scalars) text += name + ": int\n";
    text += score + "def mask_mod(b, h, q, k):\n" + body.substr(0, body.find("  return")) + near +
            body.substr(body.find("  return"));
    cases.push_back({take(Mod::parse(text)), problem, std::move(scalars), {}});
  };
  const std::string byWidth = "  i, j = q - t, k - t\n  qy, qx, ky, kx = i // w, i % w, j // w, j % w\n";
  for (int64_t t : {0, 1, 77, 300})
    for (auto [width, qRows, kRows] : {std::tuple(21, 19, 19), {64, 8, 20}, {5, 3, 1}}) {
      const int64_t qLen = t + width * qRows, kvLen = t + width * kRows;
      add(byWidth + "  return near | (q < t) | (k < t)\n", qLen, kvLen, {{"w", width}, {"t", t}});
      add(byWidth + "  return torch.where(i < 0, k <= q, near | (j < 0))\n", qLen, kvLen, {{"w", width}, {"t", t}});
    }
  add(byWidth + "  return near\n", 77 + 21 * 19, 77 + 21 * 19, {{"w", 21}, {"t", 77}}); // by coordinates of text
  add(byWidth + "  return near | (q < t) | (k < t)\n", 77 + 21 * 19, 77 + 21 * 19, {{"w", 21}, {"t", 77}},
      "def score_mod(s, b, h, q, k):\n  return s + 0.01 * ((q - t) // w - (k - t) % w)\n");
  for (int64_t behind : {0, 5, 150}) { // rows that end
    add(byWidth + "  return near | (i < 0) | (i >= v * w) | (j < 0) | (j >= v * w)\n", 77 + 23 * 17 + behind,
        77 + 23 * 17 + behind, {{"w", 23}, {"v", 17}, {"t", 77}});
    add("  qy, qx, ky, kx = q // 23, q % 23, k // 23 % 17, k % 23\n  return near | (q >= 17 * 23)\n", 17 * 23 + behind,
        17 * 23 + behind, {});
  }
  return cases;
}

/// Returns cases of dilated windows of a line, with no grid declared and with one.
inline std::vector<Case> casesOfSteps(DType dtype) {
  std::vector<Case> cases;
  for (auto [step, rows] : {std::pair(2, 300), {5, 77}, {24, 40}, {3, 1}}) {
    const std::string same = fmt::format("(q % {0} == k % {0})", step), far = std::to_string(9 * step);
    for (const std::string& mask : {same + " & (abs(q - k) <= " + far + ")",
                                    fmt::format("((q - k) % {} == 0) & (k <= q) & (q - k <= w)", step)}) {
      const bool hasScalar = mask.find("w") != std::string::npos;
      const Mod mod = take(Mod::parse((hasScalar ? "w: int\n" : "") + ("def mask_mod(b, h, q, k):\n  return " + mask)));
      for (int headDim : {64, 128}) {
        const int64_t length = step * rows;
        Case c{mod, {{1, 2, 1, length, length}, headDim, headDim, dtype}, {}, {}};
        if (hasScalar) c.scalars["w"] = 7 * step + 1;
        cases.push_back(std::move(c));
      }
    }
  }
  return cases;
}

/// Fills an i32 capture.
inline void fill(HostOperands& operands, const std::string& name, const std::function<int32_t()>& draw) {
  cli::HostTensor& tensor = operands.tensors.at(name);
  std::vector<int32_t> values(size_t(tensor.elements()));
  std::generate(values.begin(), values.end(), draw);
  REQUIRE(tensor.bytes.size() == values.size() * 4);
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
}

/// Compares kernels of family Grid with the fp64 reference. If `asked.arch` is empty, tests both kernels.
/// `asked.preparesMask` is for mods for which prepare() lists boxes.
inline void checkForward(const std::vector<Case>& cases, RunOptions asked = {.family = Family::Grid}) {
  const auto archsOf = [given = asked.arch](const Case& c) {
    return given.empty() ? gridArchs(c.mod, KernelKind::Forward) : std::vector{given};
  };
  std::vector<std::pair<Mod, KernelOptions>> jobs;
  for (const Case& c : cases)
    for (const std::string& arch : archsOf(c)) {
      jobs.emplace_back(c.mod,
                        kernelOptions(c.mod, c.problem, {.family = Family::Grid, .arch = arch, .tile = asked.tile}));
      jobs.back().second.blockSparse = jobs.back().second.maskByBoxes = asked.preparesMask;
    }
  compileAhead(jobs);
  for (const Case& c : cases) {
    INFO(c.problem.text() << "\n" << ir::print(c.mod.module()));
    HostOperands operands = draw(c.mod, c.problem, c.scalars);
    if (c.edit) c.edit(operands);
    const auto expected = runReference(c.mod, c.problem, operands, asked.scale);
    for (const std::string& arch : archsOf(c)) {
      INFO(arch << " " << asked.tile);
      asked.arch = arch;
      checkClose(runKernel(c.mod, c.problem, operands, asked), expected, c.problem);
    }
  }
}

} // namespace attnc::gputest
