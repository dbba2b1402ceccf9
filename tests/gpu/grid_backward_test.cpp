// Gradients by boxes of a grid against the fp64 reference.
#include "grid_cases.h"
#include "helpers/plans.h"
#include "helpers/turns.h"

#include <algorithm>
#include <cmath>
#include <random>

using namespace attnc;
using namespace attnc::gputest;

namespace {

KernelOptions backwardOptions(const Case& c, const std::string& arch, const std::string& tile = {}) {
  return {.kind = KernelKind::Backward,
          .family = Family::Grid,
          .arch = arch,
          .dtype = c.problem.dtype,
          .headDim = c.problem.headDim,
          .headDimV = c.problem.headDimV,
          .tile = tile};
}

/// `asked.arch`: empty: both kernels. `asked.deterministic`: checks that two launches give the same bits.
void checkAll(const std::vector<Case>& cases, bool withLse = false, BackwardRun asked = {.family = Family::Grid}) {
  const auto archsOf = [given = asked.arch](const Case& c) {
    return given.empty() ? gridArchs(c.mod, KernelKind::Backward) : std::vector{given};
  };
  std::vector<std::pair<Mod, KernelOptions>> jobs;
  for (const Case& c : cases)
    for (const std::string& arch : archsOf(c)) {
      jobs.emplace_back(c.mod, backwardOptions(c, arch, asked.tile));
      jobs.back().second.features.set(Feature::Deterministic, asked.deterministic);
      KernelOptions forward = backwardOptions(c, arch);
      forward.kind = KernelKind::Forward;
      jobs.emplace_back(c.mod, forward);
    }
  compileAhead(jobs);
  for (const Case& c : cases) {
    INFO(c.problem.text() << "\n" << c.mod.irText());
    HostOperands operands = draw(c.mod, c.problem, c.scalars);
    if (c.edit) c.edit(operands);
    const ResultGradients given = drawGradients(c.problem, withLse);
    const Gradients expected = runReferenceBackward(c.mod, operands, given);
    for (const std::string& arch : archsOf(c)) {
      INFO(arch << " " << asked.tile);
      asked.arch = arch;
      const Gradients gradients = runBackward(c.mod, c.problem, operands, given, asked);
      checkGradients(gradients, expected, c.problem);
      if (!asked.deterministic) continue;
      const Gradients again = runBackward(c.mod, c.problem, operands, given, asked);
      for (const auto& [first, second] :
           {std::pair(&gradients.dQ, &again.dQ), {&gradients.dK, &again.dK}, {&gradients.dV, &again.dV}})
        CHECK((*first == *second)); // in parentheses: no one reads a million numbers
    }
  }
}

/// With each tile that tuning may choose.
void checkTiles(int headDim, DType dtype = DType::BF16) {
  ATTNC_NEED_GRID_KERNELS(KernelKind::Backward);
  std::vector<Case> cases = casesOfTiles(headDim);
  if (dtype != DType::F32)
    cases.push_back(besideCase(joint2d(), {17, 13}, {77, 2}, {17, 13}, {77, 2}, {{1, 2, 1, 0, 0}, headDim, headDim}));
  for (Case& c : cases) c.problem.dtype = dtype;
  for (const Case& c : cases)
    for (const std::string& arch : gridArchs(c.mod, KernelKind::Backward)) {
      const std::vector<std::string> tiles = take(test::tilesOf(gpu()->compiler, c.mod, backwardOptions(c, arch)));
      CHECK(tiles.size() > 1);
      for (const std::string& tile : tiles)
        if (test::isCaseDue()) checkAll({c}, /*withLse=*/false, {.family = Family::Grid, .arch = arch, .tile = tile});
    }
}

} // namespace

GRID_TEST_CASE(Backward, "gradients on grids: images and volumes, and grids smaller than a box",
               "[gpu][grid][backward]") {
  std::vector<Case> cases;
  const Mod even = gridMod(2, "(ky >= qy - 2) & (ky < qy + 2) & (kx >= qx - 8) & (kx < qx + 8)");
  const Mod causal = gridMod(2, "(ky <= qy) & (ky > qy - 9) & (abs(kx - qx) <= 9)");
  const Mod rows = gridMod(2, "abs(ky - qy) <= 1");
  for (const Mod& mod : {near2d(), even, causal, rows})
    for (const Extents& extents : {Extents{31, 37}, {3, 5}, {1, 1}, {1, 300}, {300, 1}, {16, 64}, {9, 17}})
      for (int headDim : {64, 128}) cases.push_back(caseOf(mod, extents, extents, {{1, 2, 2, 0, 0}, headDim, headDim}));
  const Mod near = gridMod(3, "(abs(kz - qz) <= 1) & (abs(ky - qy) <= 2) & (abs(kx - qx) <= 3)");
  const Mod frames = gridMod(3, "abs(kz - qz) <= 1");
  for (const Mod& mod : {near, frames})
    for (const Extents& extents : {Extents{7, 11, 13}, {2, 2, 2}, {1, 7, 1}, {1, 1, 130}, {13, 1, 11}})
      for (int headDim : {64, 128}) cases.push_back(caseOf(mod, extents, extents, {{1, 2, 2, 0, 0}, headDim, headDim}));
  checkAll(cases);
}

GRID_TEST_CASE(Backward, "gradients on grids: neighborhoods of the library, with dilation, stride and causal axes",
               "[gpu][grid][backward]") {
  std::vector<Case> cases;
  const auto image = [&](auto... of) {
    for (int headDim : {64, 128}) cases.push_back(neighborhoodCase(0, of..., Problem{{}, headDim, headDim}));
  };
  image(31, 29, "(13, 13)", "(1, 1)", "(1, 1)", "(False, False)");
  image(24, 40, "(4, 6)", "(1, 1)", "(1, 1)", "(False, False)");
  image(24, 40, "(5, 7)", "(2, 3)", "(1, 1)", "(False, False)");
  image(32, 32, "(8, 12)", "(1, 1)", "(4, 8)", "(False, False)");
  image(24, 40, "(5, 7)", "(1, 1)", "(1, 1)", "(True, False)");
  const auto video = [&](const char* window, const char* stride, const char* causal) {
    cases.push_back(neighborhoodCase(6, 10, 14, window, "(1, 1, 1)", stride, causal, {{}, 128, 128}));
  };
  video("(3, 5, 7)", "(1, 1, 1)", "(False, False, False)");
  video("(3, 6, 6)", "(2, 2, 3)", "(False, False, False)");
  video("(4, 5, 5)", "(1, 1, 1)", "(True, False, False)");
  cases.push_back(libraryCase("shifted_window", {{"HEIGHT", "24"}, {"WIDTH", "32"}, {"WINDOW", "8"}, {"SHIFT", "4"}},
                              24 * 32, {{}, 32, 32}));
  checkAll(cases);
}

GRID_TEST_CASE(Backward, "gradients on grids: lines whose keys are a multiple of a step away",
               "[gpu][grid][backward]") {
  checkAll(casesOfSteps(DType::BF16));
  checkAll(casesOfSteps(DType::F32));
}

GRID_TEST_CASE(Backward, "gradients on grids: deterministic sums have the same bits in each launch",
               "[gpu][grid][backward][deterministic]") {
  std::vector<Case> cases;
  std::mt19937 random{5};
  const Mod wide = gridMod(2, "(abs(ky - qy) <= 13) & (abs(kx - qx) <= 20)");
  const Mod scattered = gridMod(2, "(ky >= low[qy]) & (ky < low[qy] + 9) & (abs(kx - qx) <= 5)", "", "low: i32[40]\n");
  const Mod volume = gridMod(3, "(abs(kz - qz) <= 1) & (abs(ky - qy) <= 2) & (abs(kx - qx) <= 3)");
  for (int headDim : {64, 128}) {
    const Problem problem{{2, 8, 2, 0, 0}, headDim, headDim};
    cases.push_back(caseOf(near2d(), {40, 56}, {40, 56}, problem));
    cases.push_back(caseOf(wide, {40, 56}, {40, 56}, problem));
    cases.push_back(caseOf(volume, {7, 11, 13}, {7, 11, 13}, problem));
    cases.push_back(caseOf(scattered, {40, 24}, {40, 24}, problem));
    cases.back().edit = [&random](HostOperands& operands) {
      fill(operands, "low", [&] { return std::uniform_int_distribution<int32_t>(-9, 40)(random); });
    };
    cases.push_back(caseOf(near2d(), {17, 13}, {17, 13}, {{3, 6, 1, 0, 0}, headDim, headDim, DType::BF16, true}));
    cases.push_back(besideCase(joint2d(), {31, 37}, {300, 2}, {31, 37}, {300, 2}, problem));
  }
  checkAll(cases, /*withLse=*/false, {.family = Family::Grid, .deterministic = true});
}

GRID_TEST_CASE(Backward, "gradients on grids: keys whose scores are hopeless", "[gpu][grid][backward]") {
  checkAll(hopelessCases());
}

GRID_TEST_CASE(Backward, "gradients on grids: head dims, dtypes, GQA and layouts", "[gpu][grid][backward]") {
  std::vector<Case> cases;
  for (DType dtype : {DType::BF16, DType::F16, DType::F32})
    for (auto [qk, v] : {std::pair(8, 8), {24, 24}, {40, 64}, {72, 16}, {96, 96}, {128, 128}, {104, 72}})
      cases.push_back(caseOf(near2d(), {21, 19}, {21, 19}, {{1, 2, 2, 0, 0}, qk, v, dtype}));
  for (const ProblemShape& shape : {ProblemShape{2, 8, 2, 0, 0}, {3, 6, 1, 0, 0}, {3, 1, 1, 0, 0}})
    for (bool kvBatchOne : {false, true})
      for (int64_t padding : {0, 8})
        for (int headDim : {64, 128})
          cases.push_back(
              caseOf(near2d(), {17, 13}, {17, 13}, {shape, headDim, headDim, DType::BF16, kvBatchOne, false, padding}));
  checkAll(cases);
  checkAll({cases.front(), cases.back()}, /*withLse=*/true);
}

GRID_TEST_CASE(Backward, "gradients on grids: by addresses, any strides will do, and any head dims up to 128",
               "[gpu][grid][backward]") {
  std::vector<Case> cases;
  for (DType dtype : {DType::BF16, DType::F16, DType::F32})
    for (auto [qk, v] : {std::pair(8, 8), {24, 16}, {40, 128}, {64, 64}, {120, 56}, {128, 128}})
      for (int64_t padding : {1, 3, 8})
        cases.push_back(
            caseOf(near2d(), {17, 13}, {17, 13}, {{2, 4, 2, 0, 0}, qk, v, dtype, padding == 3, padding == 1, padding}));
  checkAll(cases, /*withLse=*/false, {.family = Family::Grid, .arch = plainArch()});
}

TEST_CASE("gradients on grids: whatever the tile, at head dim 32", "[gpu][grid][backward]") { checkTiles(32); }
TEST_CASE("gradients on grids: whatever the tile, at head dim 64", "[gpu][grid][backward]") { checkTiles(64); }
TEST_CASE("gradients on grids: whatever the tile, at head dim 128", "[gpu][grid][backward]") { checkTiles(128); }
TEST_CASE("gradients on grids: whatever the tile, of f32", "[gpu][grid][backward]") {
  for (int headDim : {32, 64, 128}) checkTiles(headDim, DType::F32);
}

GRID_TEST_CASE(Backward, "gradients on grids of f32: images, volumes, scores by coordinates, equal bits",
               "[gpu][grid][backward]") {
  std::vector<Case> cases;
  const Mod volume = gridMod(3, "(kz <= qz) & (abs(ky - qy) <= 2) & (abs(kx - qx) <= 3)");
  const Mod tilted = gridMod(2, kNearby, "score * 0.7 + 0.01 * (kx - qx)");
  const Mod holes = gridMod(2, std::string(kNearby) + " & ((kx + 3 * qy) % 4 != 1)");
  for (int headDim : {64, 128}) {
    const Problem problem{{2, 4, 2, 0, 0}, headDim, headDim, DType::F32};
    for (const Extents& extents : {Extents{31, 37}, {3, 5}, {1, 300}})
      for (const Mod& mod : {near2d(), tilted, holes}) cases.push_back(caseOf(mod, extents, extents, problem));
    cases.push_back(caseOf(volume, {5, 11, 23}, {5, 11, 23}, problem));
    cases.push_back(caseOf(near2d(), {17, 13}, {17, 13}, {{3, 6, 1, 0, 0}, headDim, headDim, DType::F32, true}));
  }
  checkAll(cases, /*withLse=*/true, {.family = Family::Grid, .deterministic = true});
}

GRID_TEST_CASE(Backward,
               "gradients on grids: text before an image or behind it, in mods that take positions apart by hand",
               "[gpu][grid][backward]") {
  checkAll(casesBehindText());
}

GRID_TEST_CASE(Backward, "gradients on grids: grids of queries and keys that differ, windows that differ by head",
               "[gpu][grid][backward]") {
  std::vector<Case> cases;
  const Mod half = gridMod(2, "(abs(ky - qy // 2) <= 2) & (abs(kx - qx // 2) <= 3)");
  cases.push_back(caseOf(half, {32, 40}, {16, 20}));
  cases.push_back(caseOf(half, {31, 37}, {4, 4})); // most queries see no key
  const Mod twice = gridMod(2, "(abs(ky - qy * 2) <= 2) & (abs(kx - qx * 2) <= 3)");
  cases.push_back(caseOf(twice, {16, 19}, {31, 37}));
  cases.push_back(caseOf(twice, {4, 4}, {31, 37}, {{1, 2, 2, 0, 0}, 128, 128})); // most keys are seen by no query
  std::mt19937 random{11};
  const Mod table =
      gridMod(2, "(abs(ky - qy) <= radius[b, h]) & (abs(kx - qx) <= radius[b, h] // 2)", "", "radius: i32[B, H]\n");
  for (int headDim : {64, 128}) {
    cases.push_back(caseOf(table, {23, 29}, {23, 29}, {{2, 6, 3, 0, 0}, headDim, headDim}));
    cases.back().edit = [&](HostOperands& operands) {
      fill(operands, "radius", [&] { return std::uniform_int_distribution<int32_t>(-1, 12)(random); });
    };
  }
  checkAll(cases);
}

GRID_TEST_CASE(Backward, "gradients on grids: any bounds of an axis, empty ones too", "[gpu][grid][backward]") {
  for (uint32_t seed = 0; seed < 4; ++seed) {
    std::mt19937 random{seed};
    const Mod mod = gridMod(3,
                            "(kz >= lo[b, h, 0, qz]) & (kz < hi[b, h, 0, qz]) & (ky >= qy + lo[b, h, 1, qy]) &"
                            " (ky < qy + hi[b, h, 1, qy]) & (kx >= lo[b, h, 2, qx]) & (kx < hi[b, h, 2, qx])",
                            "", "lo: i32[B, H, 3, 40]\nhi: i32[B, H, 3, 40]\n");
    std::vector<Case> cases;
    for (int headDim : {64, 128}) {
      cases.push_back(caseOf(mod, {3, 13, 17}, {5, 7, 19}, {{2, 2, 1, 0, 0}, headDim, headDim}));
      cases.back().edit = [&random](HostOperands& operands) {
        fill(operands, "lo", [&] { return std::uniform_int_distribution<int32_t>(-6, 4)(random); });
        fill(operands, "hi", [&] { return std::uniform_int_distribution<int32_t>(0, 12)(random); });
      };
    }
    cases.push_back(cases.back()); // all are empty
    cases.back().edit = [](HostOperands& operands) {
      fill(operands, "lo", [] { return 5; });
      fill(operands, "hi", [] { return 5; });
    };
    checkAll(cases);
  }
}

GRID_TEST_CASE(Backward, "gradients on grids: scores by coordinates, and masks that are more than a box",
               "[gpu][grid][backward]") {
  const std::string window = "(abs(ky - qy) <= 5) & (abs(kx - qx) <= 4)";
  std::vector<Case> cases;
  const auto add = [&](const Mod& mod) {
    for (int headDim : {64, 128})
      for (const Extents& extents : {Extents{19, 23}, {3, 5}})
        cases.push_back(caseOf(mod, extents, extents, {{2, 4, 2, 0, 0}, headDim, headDim}));
  };
  add(gridMod(2, window, "score + bias[h, ky - qy + 5, kx - qx + 4]", "bias: f32[H, 11, 9]\n"));
  add(gridMod(2, window, "score - 0.25 * (abs(ky - qy) + abs(kx - qx)).to(torch.float32)"));
  add(gridMod(2, window, "score + slope[h] * (kv_idx - q_idx)", "slope: f32[H]\n"));
  add(gridMod(2, window, "8.0 * torch.tanh(score / 8.0)"));
  add(gridMod(2, window, "torch.where(kx == qx, score * 2.0, score - 1.0)"));
  add(gridMod(2, window, "score * slope[h] + key[b, kv_idx]", "slope: f32[H]\nkey: f32[B, KV_LEN]\n"));
  add(gridMod(2, window, "torch.where(score == 0.0, 1.0 / score, score)"));
  add(gridMod(2, window, "score.detach() * score"));
  add(gridMod(2, window, "4.0 * torch.sin(score)")); // by addresses, boxes of 64 keys
  add(gridMod(2, window + " & ((kx + qx * 2 + ky) % 5 != 0)"));
  add(gridMod(2, window + " & valid[b, kv_idx]", "", "valid: bool[B, KV_LEN]\n"));
  checkAll(cases);
}

GRID_TEST_CASE(Backward, "gradients on grids: joint attention of an image with text before it, behind it, or both",
               "[gpu][grid][backward]") {
  std::vector<Case> cases;
  const Mod volume = gridMod(3, "((kz <= qz) & (abs(ky - qy) <= 2) & (abs(kx - qx) <= 3)) | ~qin | ~kin", "", "", true);
  for (int headDim : {32, 64, 128}) {
    const Problem problem{{1, 2, 2, 0, 0}, headDim, headDim};
    for (int64_t text : {0, 1, 7, 64, 77, 128, 300})
      for (const Extents& extents : {Extents{21, 19}, {3, 5}}) {
        cases.push_back(besideCase(joint2d(), extents, {text, 0}, extents, {text, 0}, problem));
        cases.push_back(besideCase(joint2d(), extents, {0, text}, extents, {0, text}, problem));
      }
    cases.push_back(besideCase(joint2d(), {21, 19}, {5, 150}, {21, 19}, {5, 150}, problem));
    cases.push_back(besideCase(joint2d(), {1, 1}, {1, 1}, {1, 1}, {1, 1}, problem));
    cases.push_back(besideCase(volume, {5, 7, 11}, {77, 3}, {5, 7, 11}, {77, 3}, problem));
    cases.push_back(libraryCase("joint_image", {{"HEIGHT", "18"}, {"WIDTH", "22"}, {"TEXT", "77"}, {"WINDOW", "7"}},
                                18 * 22 + 77, problem));
    cases.push_back(libraryCase("sparse_video", {{"FRAMES", "5"}, {"HEIGHT", "10"}, {"WIDTH", "12"}, {"TEXT", "40"}},
                                5 * 10 * 12 + 40, problem));
  }
  checkAll(cases);
  checkAll({cases[8], cases[9]}, /*withLse=*/true);
  checkAll({cases[8], cases[9]}, false, {.family = Family::Auto});
}

GRID_TEST_CASE(Backward, "gradients on grids: different tokens beside grids of queries and keys, heads and layouts",
               "[gpu][grid][backward]") {
  std::vector<Case> cases;
  const Mod half = gridMod(2, "((abs(ky - qy // 2) <= 2) & (abs(kx - qx // 2) <= 3)) | ~qin | ~kin", "", "", true);
  for (int headDim : {64, 128}) {
    const Problem problem{{1, 2, 2, 0, 0}, headDim, headDim};
    cases.push_back(besideCase(half, {31, 37}, {7, 0}, {16, 19}, {77, 0}, problem));
    cases.push_back(besideCase(half, {31, 37}, {0, 0}, {16, 19}, {300, 5}, problem));
    cases.push_back(besideCase(half, {31, 37}, {300, 1}, {16, 19}, {0, 0}, problem));
    cases.push_back(besideCase(half, {31, 37}, {9, 9}, {4, 4}, {0, 0}, problem)); // most of the image sees no key
    for (const ProblemShape& shape : {ProblemShape{2, 8, 2, 0, 0}, {3, 6, 1, 0, 0}, {3, 1, 1, 0, 0}})
      for (bool kvBatchOne : {false, true})
        for (int64_t padding : {0, 8})
          cases.push_back(besideCase(joint2d(), {17, 13}, {77, 2}, {17, 13}, {77, 2},
                                     {shape, headDim, headDim, DType::BF16, kvBatchOne, false, padding}));
  }
  for (auto [qk, v] : {std::pair(8, 8), {40, 64}, {72, 16}, {96, 96}})
    cases.push_back(besideCase(joint2d(), {17, 13}, {7, 70}, {17, 13}, {7, 70}, {{1, 2, 2, 0, 0}, qk, v, DType::F16}));
  checkAll(cases);
}

GRID_TEST_CASE(Backward,
               "gradients on grids: what masks say of tokens beside the grid, and scores by coordinates and distances",
               "[gpu][grid][backward]") {
  std::vector<Case> cases;
  const auto add = [&](const std::string& mask, const std::string& score = "", const std::string& captures = "") {
    const Mod mod = gridMod(2, mask, score, captures, true);
    for (int headDim : {64, 128}) {
      const Problem problem{{1, 4, 2, 0, 0}, headDim, headDim};
      cases.push_back(besideCase(mod, {19, 23}, {77, 0}, {19, 23}, {77, 0}, problem));
      cases.push_back(besideCase(mod, {16, 16}, {3, 140}, {16, 16}, {3, 140}, problem));
      cases.push_back(besideCase(mod, {3, 5}, {0, 0}, {3, 5}, {0, 0}, problem));
    }
  };
  const std::string near = std::string("(") + kNearby + ")", joint = near + " | ~qin | ~kin";
  const std::string causalText = "torch.where(qin & kin, " + near + ", kv_idx <= q_idx)";
  add("(" + near + " & qin) | ~kin");               // text sees only text
  add("(" + near + " | ~qin) & kin");               // registers see the image, and are not seen
  add(near + " & qin & kin");                       // tokens outside the grid see nothing
  add("torch.where(kin, " + near + " & qin, qin)"); // and are seen only by the image
  add("(" + near + " & qin & kin) | ~(qin | kin)"); // image and text apart
  add(causalText);
  add("torch.where(qin, " + near + " | ~kin, kv_idx <= q_idx)"); // for queries of text
  add("torch.where(kin, " + near + " | ~qin, kv_idx <= q_idx)"); // for keys of text
  add(near);                                                     // by coordinates outside the grid
  add("(" + near + " & ((kx + qx * 2 + ky) % 5 != 0)) | ~qin | ~kin");
  add("(" + joint + ") & valid[b, kv_idx]", "", "valid: bool[B, KV_LEN]\n");
  for (const std::string& mask : {joint, causalText}) {
    add(mask, "score + 0.01 * (ky * 3 - qy * 2 + kx - qx).to(torch.float32)");
    add(mask, "torch.where(qin & kin, score + bias[h, abs(ky - qy), abs(kx - qx)], score * 0.5)",
        "bias: f32[H, 40, 40]\n");
    add(mask, "score + slope[h] * (kv_idx - q_idx)", "slope: f32[H]\n");
    add(mask, "8.0 * torch.tanh(score / 8.0)");
    add(mask, "score * slope[h] + key[b, kv_idx]", "slope: f32[H]\nkey: f32[B, KV_LEN]\n");
    add(mask, "torch.where(score == 0.0, 1.0 / score, score)");
  }
  checkAll(cases);
}

GRID_TEST_CASE(Backward, "gradients on grids: what lies behind the end of a run reaches nothing",
               "[gpu][grid][backward]") {
  // All scores are about -160, so that a weight of a key of zeros, as there are behind the end, would be infinite.
  for (int headDim : {64, 128}) {
    const Case c = besideCase(joint2d(), {17, 13}, {77, 2}, {17, 13}, {77, 2}, {{1, 2, 2, 0, 0}, headDim, headDim});
    HostOperands operands = draw(c.mod, c.problem, c.scalars);
    for (auto [tensor, bits] : {std::pair(&operands.q, uint16_t(0x3f80)), {&operands.k, uint16_t(0xc1a0)}}) { // 1, -20
      const std::vector<uint16_t> values(tensor->bytes.size() / 2, bits);
      std::memcpy(tensor->bytes.data(), values.data(), tensor->bytes.size());
    }
    const Gradients gradients =
        runBackward(c.mod, c.problem, operands, drawGradients(c.problem, false), {.family = Family::Grid});
    for (const std::vector<double>* values : {&gradients.dQ, &gradients.dK, &gradients.dV})
      CHECK(std::all_of(values->begin(), values->end(), [](double x) { return std::isfinite(x); }));
  }
}

GRID_TEST_CASE(Backward, "gradients on grids: training takes boxes in both passes, or lists in both",
               "[gpu][grid][backward]") {
  const auto settledFor = [&](const Case& c, const std::string& arch, bool deterministic) {
    const HostOperands operands = draw(c.mod, c.problem, c.scalars);
    BackwardOperands inputs{
        {.q = operands.q.view(), .k = operands.k.view(), .v = operands.v.view(), .captures = &operands.captures}};
    inputs.out = inputs.q;
    inputs.dOut = inputs.q;
    const ProblemShape& s = c.problem.shape;
    inputs.lse = TensorView::contiguous(nullptr, DType::F32, {s.batch, s.qHeads, s.qLen});
    return take(gpu()->compiler.settleTraining(c.mod, inputs, {.out = inputs.q, .lse = inputs.lse},
                                               {.dQ = inputs.q, .dK = inputs.k, .dV = inputs.v},
                                               {.arch = arch, .deterministic = deterministic}));
  };
  const Case c = caseOf(near2d(), {21, 19}, {21, 19});
  for (const std::string& arch : gridArchs(c.mod, KernelKind::Backward)) {
    INFO(arch);
    for (bool deterministic : {false, true}) {
      const Preparation byBoxes = settledFor(c, arch, deterministic);
      CHECK(byBoxes.kernel.options().family == Family::Grid);
      CHECK(byBoxes.backward->options().family == Family::Grid);
      CHECK(!byBoxes.blockMask);
    }
    const Mod slanted = gridMod(2, "(abs(ky - qy) <= qx) & (abs(kx - qx) <= 3)"); // not axis by axis
    const Preparation byLists = settledFor(caseOf(slanted, {21, 19}, {21, 19}), arch, false);
    CHECK(byLists.kernel.options().family == (arch == "sm_90a" ? Family::Sm90 : Family::Sm80));
    CHECK(byLists.backward->options().family == byLists.kernel.options().family);
    CHECK(byLists.blockMask);
  }
  checkAll({c}, false, {.family = Family::Auto, .arch = gpu()->context.info().arch});
}
