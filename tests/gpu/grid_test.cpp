// Kernels that walk boxes of a grid against the fp64 reference.
#include "grid_cases.h"
#include "helpers/plans.h"
#include "helpers/turns.h"

#include <cmath>
#include <random>

using namespace attnc;
using namespace attnc::gputest;

GRID_TEST_CASE(Forward, "grid kernels: lines of tokens", "[gpu][grid]") {
  std::vector<Case> cases;
  for (const char* mask : {"abs(kx - qx) <= 6", "(kx >= qx - 4) & (kx < qx + 4)", "(kx <= qx) & (kx > qx - 100)",
                           "kx // 50 == qx // 50", "kx <= qx", "abs(kx - qx) <= 2000"}) {
    const Mod mod = gridMod(1, mask);
    for (int64_t length : {1, 7, 64, 129, 1009}) cases.push_back(caseOf(mod, {length}, {length}));
  }
  checkForward(cases);
}

GRID_TEST_CASE(Forward, "grid kernels: images, with windows even and odd, and grids smaller than a box",
               "[gpu][grid]") {
  std::vector<Case> cases;
  const Mod even = gridMod(2, "(ky >= qy - 2) & (ky < qy + 2) & (kx >= qx - 8) & (kx < qx + 8)");
  const Mod causal = gridMod(2, "(ky <= qy) & (ky > qy - 9) & (abs(kx - qx) <= 9)");
  const Mod rows = gridMod(2, "abs(ky - qy) <= 1");
  const Mod wide = gridMod(2, "(abs(ky - qy) <= 100) & (abs(kx - qx) <= 100)");
  const Mod sunk = gridMod(2, "(ky < qy) & (abs(kx - qx) <= 9)", "", // the first row of queries sees nothing
                           "sink: f32[H]\ndef sink_mod(b, h, q_idx):\n    return sink[h] + 0.001 * q_idx\n");
  for (const Mod& mod : {near2d(), even, causal, rows, wide, sunk})
    for (const Extents& extents : {Extents{31, 37}, {40, 24}, {3, 5}, {1, 1}, {1, 300}, {300, 1}, {16, 64}, {9, 17}})
      cases.push_back(caseOf(mod, extents, extents));
  checkForward(cases);
}

GRID_TEST_CASE(Forward, "grid kernels: lines whose keys are a multiple of a step away", "[gpu][grid]") {
  checkForward(casesOfSteps(DType::BF16));
  checkForward(casesOfSteps(DType::F32));
}

GRID_TEST_CASE(Forward, "grid kernels: volumes", "[gpu][grid]") {
  std::vector<Case> cases;
  const Mod near = gridMod(3, "(abs(kz - qz) <= 1) & (abs(ky - qy) <= 2) & (abs(kx - qx) <= 3)");
  const Mod causal = gridMod(3, "(kz <= qz) & (abs(ky - qy) <= 4) & (abs(kx - qx) <= 4)");
  const Mod frames = gridMod(3, "abs(kz - qz) <= 1");
  for (const Mod& mod : {near, causal, frames})
    for (const Extents& extents :
         {Extents{7, 11, 13}, {2, 2, 2}, {1, 7, 1}, {1, 1, 130}, {4, 16, 16}, {13, 1, 11}, {130, 2, 1}})
      cases.push_back(caseOf(mod, extents, extents));
  checkForward(cases);
}

GRID_TEST_CASE(Forward, "grid kernels: neighborhoods of the library, with dilation, stride and causal axes",
               "[gpu][grid]") {
  std::vector<Case> cases;
  const auto image = [&](auto... of) { cases.push_back(neighborhoodCase(0, of...)); };
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
  const auto video = [&](auto... of) { cases.push_back(neighborhoodCase(6, 10, 14, of...)); };
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
  checkForward(cases);
}

GRID_TEST_CASE(Forward, "grid kernels: keys whose scores are hopeless", "[gpu][grid]") {
  checkForward(hopelessCases());
}

GRID_TEST_CASE(Forward, "grid kernels: head dims, dtypes, GQA and layouts", "[gpu][grid]") {
  std::vector<Case> cases;
  for (DType dtype : {DType::BF16, DType::F16, DType::F32})
    for (auto [qk, v] :
         {std::pair(8, 8), {32, 32}, {40, 40}, {64, 64}, {96, 96}, {128, 128}, {128, 64}, {32, 128}, {104, 72}})
      cases.push_back(caseOf(near2d(), {21, 19}, {21, 19}, {{1, 2, 2, 0, 0}, qk, v, dtype}));
  for (const ProblemShape& shape : {ProblemShape{2, 8, 2, 0, 0}, {3, 6, 1, 0, 0}, {2, 5, 5, 0, 0}, {3, 1, 1, 0, 0}})
    for (bool kvBatchOne : {false, true})
      for (int64_t padding : {0, 8})
        cases.push_back(caseOf(near2d(), {17, 13}, {17, 13}, {shape, 64, 64, DType::BF16, kvBatchOne, false, padding}));
  checkForward(cases);
}

GRID_TEST_CASE(Forward, "grid kernels: whatever the layout, a kernel is right", "[gpu][grid]") {
  std::vector<Case> cases;
  for (const ProblemShape& shape : {ProblemShape{2, 4, 2, 0, 0}, {3, 1, 1, 0, 0}})
    for (bool headsLast : {false, true})
      for (bool kvBatchOne : {false, true})
        for (int64_t padding : {0, 1, 8})
          cases.push_back(
              caseOf(near2d(), {17, 13}, {17, 13}, {shape, 64, 64, DType::BF16, kvBatchOne, headsLast, padding}));
  checkForward(cases, {.family = Family::Auto});
}

GRID_TEST_CASE(Forward, "grid kernels: by addresses, any strides will do, and any head dims up to 128", "[gpu][grid]") {
  std::vector<Case> cases;
  for (DType dtype : {DType::BF16, DType::F16, DType::F32})
    for (auto [qk, v] : {std::pair(8, 8), {24, 16}, {40, 72}, {64, 64}, {120, 56}})
      for (int64_t padding : {1, 3, 8})
        cases.push_back(
            caseOf(near2d(), {17, 13}, {17, 13}, {{2, 4, 2, 0, 0}, qk, v, dtype, padding == 3, padding == 1, padding}));
  checkForward(cases, {.family = Family::Grid, .arch = plainArch()});
}

GRID_TEST_CASE(Forward, "grid kernels: by addresses, whatever the tile", "[gpu][grid]") {
  for (DType dtype : {DType::BF16, DType::F32})
    for (int headDim : {32, 64, 128})
      for (Case& c : casesOfTiles(headDim)) {
        c.problem.dtype = dtype;
        const RunOptions asked{.family = Family::Grid, .arch = plainArch()};
        for (const std::string& tile :
             take(test::tilesOf(gpu()->compiler, c.mod, kernelOptions(c.mod, c.problem, asked))))
          if (test::isCaseDue()) checkForward({c}, {.family = Family::Grid, .arch = plainArch(), .tile = tile});
      }
}

GRID_TEST_CASE(Forward, "grid kernels of f32: lines, images, volumes, and scores by coordinates", "[gpu][grid]") {
  std::vector<Case> cases;
  const Mod dilated = gridMod(1, "(abs(kx - qx) <= 60) & (kx % 4 == qx % 4)");
  const Mod volume = gridMod(3, "(kz <= qz) & (abs(ky - qy) <= 2) & (abs(kx - qx) <= 3)");
  const Mod tilted = gridMod(2, kNearby, "score * 0.7 + 0.01 * (kx - qx)");
  for (int headDim : {64, 128}) {
    const Problem problem{{2, 4, 2, 0, 0}, headDim, headDim, DType::F32};
    cases.push_back(caseOf(dilated, {1009}, {1009}, problem));
    for (const Extents& extents : {Extents{31, 37}, {3, 5}, {1, 300}})
      for (const Mod& mod : {near2d(), tilted}) cases.push_back(caseOf(mod, extents, extents, problem));
    cases.push_back(caseOf(volume, {5, 11, 23}, {5, 11, 23}, problem));
  }
  checkForward(cases);
  for (Case& c : cases) c.problem.shape = {1, 1, 1, c.problem.shape.qLen, c.problem.shape.kvLen};
  checkForward(cases, {.family = Family::Auto});
}

GRID_TEST_CASE(Forward, "grid kernels: grids of queries and keys that differ", "[gpu][grid]") {
  std::vector<Case> cases;
  const Mod half = gridMod(2, "(abs(ky - qy // 2) <= 2) & (abs(kx - qx // 2) <= 3)");
  cases.push_back(caseOf(half, {32, 40}, {16, 20}));
  cases.push_back(caseOf(half, {31, 37}, {16, 19}));
  cases.push_back(caseOf(half, {31, 37}, {4, 4})); // most queries see no key
  const Mod twice = gridMod(2, "(abs(ky - qy * 2) <= 2) & (abs(kx - qx * 2) <= 3)");
  cases.push_back(caseOf(twice, {16, 19}, {31, 37}));
  const Mod frames = gridMod(3, "(kz <= qz // 2) & (abs(ky - qy) <= 2) & (abs(kx - qx) <= 2)");
  cases.push_back(caseOf(frames, {6, 8, 9}, {3, 8, 9}));
  checkForward(cases);
}

GRID_TEST_CASE(Forward, "grid kernels: windows that differ by head and batch entry", "[gpu][grid]") {
  std::mt19937 random{11};
  const auto small = [&] { return std::uniform_int_distribution<int32_t>(-1, 12)(random); };
  std::vector<Case> cases;
  const Mod chosen = gridMod(2, "torch.where(h == 0, abs(ky - qy) <= 2, abs(ky - qy) <= 9) & (abs(kx - qx) <= 4)");
  cases.push_back(caseOf(chosen, {23, 29}, {23, 29}, {{2, 4, 2, 0, 0}}));
  const Mod table =
      gridMod(2, "(abs(ky - qy) <= radius[b, h]) & (abs(kx - qx) <= radius[b, h] // 2)", "", "radius: i32[B, H]\n");
  cases.push_back(caseOf(table, {23, 29}, {23, 29}, {{2, 6, 3, 0, 0}}));
  cases.back().edit = [&](HostOperands& operands) { fill(operands, "radius", small); };
  checkForward(cases);
}

GRID_TEST_CASE(Forward, "grid kernels: random boxes, empty ones too", "[gpu][grid]") {
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
    checkForward(cases);
  }
}

GRID_TEST_CASE(Forward, "grid kernels: queries that see nothing have 0 and minus infinity", "[gpu][grid]") {
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

GRID_TEST_CASE(Forward, "grid kernels: scores by coordinates, and masks that are more than a box", "[gpu][grid]") {
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
  checkForward(cases);
}

GRID_TEST_CASE(Forward, "grid kernels: mods that take positions apart by hand", "[gpu][grid]") {
  std::vector<Case> cases;
  const auto add = [&](const std::string& text, int64_t qLen, int64_t kvLen,
                       std::map<std::string, int64_t> scalars = {}) {
    Problem problem{{2, 4, 2, qLen, kvLen}};
    problem.seed = uint64_t(qLen + 3 * kvLen);
    cases.push_back({take(Mod::parse("import torch\n" + text)), problem, std::move(scalars), {}});
  };
  const auto mask = [](const std::string& of) { return "def mask_mod(b, h, q, k):\n  return " + of + "\n"; };
  const std::string near = mask("(abs(q // w - k // w) <= 3) & (abs(q % w - (k - k // w * w)) <= 4)");
  for (auto [width, qRows, kRows] : {std::tuple(37, 31, 31), {64, 8, 20}, {1, 70, 50}, {300, 1, 3}})
    add("w: int\n" + near, width * qRows, width * kRows, {{"w", width}});
  // Centers that stay inside, by numbers of the launch; scores of coordinates and of positions.
  add("w: int\nv: int\nslopes: f32[H]\ndef score_mod(s, b, h, q, k):\n"
      "  return s - slopes[h] * abs(q % w - k % w) + (k - q) * 0.001\n" +
          mask("(((q // w).clamp(2, v - 3) - k // w).abs() <= 2) & (((q % w).clamp(3, w - 4) - k % w).abs() <= 3)"),
      40 * 24, 40 * 24, {{"w", 24}, {"v", 40}});
  const std::string video = "T, Y, X = 6, 14, 18\n";
  add(video + mask("(abs(q // (Y * X) - k // (Y * X)) <= 1) & (abs(q // X % Y - k % (Y * X) // X) <= 3) & (abs(q % X - "
                   "k % X) <= 5)"),
      6 * 14 * 18, 4 * 14 * 18);
  add(video +
          mask("(q // (Y * X) >= k // (Y * X)) & (q // X % Y // 7 == k // X % Y // 7) & (q % X // 6 == k % X // 6)"),
      6 * 14 * 18, 6 * 14 * 18);
  add(mask("(abs(q // 32 // 2 - k // 16) <= 2) & (abs(q % 32 // 2 - k % 16) <= 3)"), 32 * 24,
      16 * 12); // of two resolutions
  add(mask("(q < 24 * 32) & (k < 24 * 32) & (abs(q // 32 - k // 32) <= 4) & (q % 32 >= k % 32) | (q >= 24 * 32)"),
      24 * 32, 24 * 32);
  add(mask("(q < 576) & (k < 576) & (abs(q // 16 // 6 - k // 16 // 6) <= 1) & (abs(q // 16 % 6 - k // 16 % 6) <= 1) | "
           "(q >= 576)"),
      576, 576);                                    // tiles of an image, one behind the other
  add(mask("abs(q % 48 - k % 48) <= 3"), 480, 960); // all rows
  add(mask("(q % 4 == h % 4) & (k % 4 == h % 4) & (q // 256 == k // 256) & (q >= k)"), 1024, 1024);
  keepGrids(cases);
  checkForward(cases);
}

GRID_TEST_CASE(Forward, "grid kernels: scale, row max left out, no workspace, several launches", "[gpu][grid]") {
  const Case c = caseOf(near2d(), {29, 31}, {29, 31}, {{4, 24, 6, 0, 0}});
  checkForward({c}, {.family = Family::Grid, .scale = 0.7f});
  checkForward({c}, {.family = Family::Grid, .rowMax = false});
  checkForward({c}, {.family = Family::Grid, .workspace = false}); // tiles are dealt round robin
  checkForward({c}, {.family = Family::Grid, .launches = 4});
}

GRID_TEST_CASE(Forward, "grid kernels: prepare() takes them, and others where tokens lie beside the grid",
               "[gpu][grid]") {
  Case c = caseOf(near2d(), {20, 20}, {20, 20});
  checkForward({c}, {.family = Family::Auto});
  c.problem.shape.qLen += 37; // text behind the image
  c.problem.shape.kvLen += 37;
  checkForward({c}, {.family = Family::Auto});
}

GRID_TEST_CASE(Forward, "grid kernels: joint attention of an image with text before it, behind it, or both",
               "[gpu][grid]") {
  std::vector<Case> cases;
  for (int headDim : {64, 128}) {
    const Problem problem{{1, 2, 2, 0, 0}, headDim, headDim};
    for (int64_t text : {0, 1, 7, 77, 128, 256, 300})
      for (const Extents& extents : {Extents{21, 19}, {3, 5}}) {
        cases.push_back(besideCase(joint2d(), extents, {text, 0}, extents, {text, 0}, problem));
        cases.push_back(besideCase(joint2d(), extents, {0, text}, extents, {0, text}, problem));
      }
    cases.push_back(besideCase(joint2d(), {21, 19}, {5, 150}, {21, 19}, {5, 150}, problem));
    cases.push_back(besideCase(joint2d(), {1, 1}, {1, 1}, {1, 1}, {1, 1}, problem));
  }
  const Mod line = gridMod(1, "(abs(kx - qx) <= 6) | ~qin | ~kin", "", "", true);
  const Mod volume = gridMod(3, "((kz <= qz) & (abs(ky - qy) <= 2) & (abs(kx - qx) <= 3)) | ~qin | ~kin", "", "", true);
  for (int64_t text : {1, 77, 300}) {
    cases.push_back(besideCase(line, {1009}, {text, 3}, {1009}, {text, 3}));
    cases.push_back(besideCase(volume, {5, 7, 11}, {text, 3}, {5, 7, 11}, {text, 3}));
  }
  cases.push_back(
      libraryCase("joint_image", {{"HEIGHT", "18"}, {"WIDTH", "22"}, {"TEXT", "77"}, {"WINDOW", "7"}}, 18 * 22 + 77));
  cases.push_back(libraryCase("sparse_video", {{"FRAMES", "5"}, {"HEIGHT", "10"}, {"WIDTH", "12"}, {"TEXT", "40"}},
                              5 * 10 * 12 + 40));
  checkForward(cases);
  checkForward({cases[0], cases[5]}, {.family = Family::Auto});
  checkForward({cases[9]}, {.family = Family::Grid, .workspace = false});
  checkForward({cases[9]}, {.family = Family::Grid, .launches = 4});
}

GRID_TEST_CASE(Forward, "grid kernels: text before an image or behind it, in mods that take positions apart by hand",
               "[gpu][grid]") {
  std::vector<Case> cases = casesBehindText();
  keepGrids(cases);
  checkForward(cases);
}

GRID_TEST_CASE(Forward, "grid kernels: grids of queries and keys with different tokens beside them, heads and layouts",
               "[gpu][grid]") {
  std::vector<Case> cases;
  const Mod half = gridMod(2, "((abs(ky - qy // 2) <= 2) & (abs(kx - qx // 2) <= 3)) | ~qin | ~kin", "", "", true);
  cases.push_back(besideCase(half, {31, 37}, {7, 0}, {16, 19}, {77, 0}));
  cases.push_back(besideCase(half, {31, 37}, {0, 0}, {16, 19}, {300, 5}));
  cases.push_back(besideCase(half, {31, 37}, {300, 1}, {16, 19}, {0, 0}));
  cases.push_back(besideCase(half, {31, 37}, {9, 9}, {4, 4}, {0, 0})); // most queries of the image see no key
  for (const ProblemShape& shape : {ProblemShape{2, 8, 2, 0, 0}, {3, 6, 1, 0, 0}, {3, 1, 1, 0, 0}})
    for (bool kvBatchOne : {false, true})
      for (int64_t padding : {0, 8})
        cases.push_back(besideCase(joint2d(), {17, 13}, {77, 2}, {17, 13}, {77, 2},
                                   {shape, 64, 64, DType::BF16, kvBatchOne, false, padding}));
  for (auto [qk, v] : {std::pair(8, 8), {40, 40}, {96, 96}, {128, 64}, {32, 128}})
    cases.push_back(besideCase(joint2d(), {17, 13}, {7, 70}, {17, 13}, {7, 70}, {{1, 2, 2, 0, 0}, qk, v, DType::F16}));
  checkForward(cases);
}

GRID_TEST_CASE(Forward, "grid kernels: what masks say of tokens beside the grid, and scores by their coordinates",
               "[gpu][grid]") {
  std::vector<Case> cases;
  const auto add = [&](const std::string& mask, const std::string& score = "", const std::string& captures = "",
                       Problem problem = {{1, 4, 2, 0, 0}}) {
    const Mod mod = gridMod(2, mask, score, captures, true);
    cases.push_back(besideCase(mod, {19, 23}, {77, 0}, {19, 23}, {77, 0}, problem));
    cases.push_back(besideCase(mod, {16, 16}, {3, 140}, {16, 16}, {3, 140}, problem));
    cases.push_back(besideCase(mod, {3, 5}, {0, 0}, {3, 5}, {0, 0}, problem));
  };
  const std::string near = std::string("(") + kNearby + ")", joint = near + " | ~qin | ~kin";
  add("(" + near + " & qin) | ~kin");                            // text sees only text
  add("(" + near + " | ~qin) & kin");                            // registers see the image, and are not seen
  add(near + " & qin & kin");                                    // tokens outside the grid see nothing
  add("torch.where(kin, " + near + " & qin, qin)");              // and are seen only by the image
  add("torch.where(qin & kin, " + near + ", kv_idx <= q_idx)");  // causal text
  add("torch.where(qin, " + near + " | ~kin, kv_idx <= q_idx)"); // for queries of text
  add(near);                                                     // by coordinates outside the grid
  add(joint + " & ((kx + qx * 2 + ky) % 5 != 0)");
  add("(" + near + " & ((kx + qx * 2 + ky) % 5 != 0)) | ~qin | ~kin");
  add("(" + near + " & (kx % 2 == qx % 2)) | ~qin | ~kin");
  add("(" + joint + ") & valid[b, kv_idx]", "", "valid: bool[B, KV_LEN]\n");
  for (int headDim : {64, 128}) {
    const Problem problem{{1, 4, 2, 0, 0}, headDim, headDim};
    add(joint, "score + 0.01 * (ky * 3 - qy * 2 + kx - qx).to(torch.float32)", "", problem);
    add(joint, "torch.where(qin & kin, score + bias[h, abs(ky - qy), abs(kx - qx)], score * 0.5)",
        "bias: f32[H, 40, 40]\n", problem);
    add("torch.where(qin & kin, " + near + ", kv_idx <= q_idx)", "score + 0.01 * (kx - qx).to(torch.float32)", "",
        problem);
    add(joint, "8.0 * torch.tanh(score / 8.0)", "", problem);
    add(joint, "score * slope[h] + key[b, kv_idx]", "slope: f32[H]\nkey: f32[B, KV_LEN]\n", problem);
    add(joint, "-score", "", problem);
  }
  checkForward(cases);
}

GRID_TEST_CASE(Forward, "grid kernels: a change of the text beside an image needs no new kernel", "[gpu][grid]") {
  Gpu& device = *gpu();
  const Case c = besideCase(joint2d(), {13, 20}, {40, 0}, {13, 20}, {40, 0}, {{2, 4, 2, 0, 0}, 64, 64});
  const ProblemShape& s = c.problem.shape;
  HostOperands operands = draw(c.mod, c.problem, c.scalars);
  const auto uploaded = [&](const cli::HostTensor& tensor) {
    device::Buffer buffer = take(device::Buffer::allocate(tensor.bytes.size()));
    take(buffer.upload(tensor.bytes.data(), tensor.bytes.size()));
    return buffer;
  };
  const device::Buffer q = uploaded(operands.q), k = uploaded(operands.k), v = uploaded(operands.v);
  const auto viewOf = [](const cli::HostTensor& tensor, const device::Buffer& buffer) {
    TensorView view = tensor.view();
    view.data = buffer.data();
    return view;
  };
  Operands inputs{.q = viewOf(operands.q, q),
                  .k = viewOf(operands.k, k),
                  .v = viewOf(operands.v, v),
                  .captures = &operands.captures};
  const size_t elements = size_t(s.batch * s.qHeads * s.qLen * 64), rows = elements / 64;
  const int64_t kAround = 1 << 16; // bytes before and behind: NaNs
  device::Buffer out = take(device::Buffer::allocate(elements * 2 + 2 * kAround)),
                 lse = take(device::Buffer::allocate(rows * 4));
  const Outputs outputs{.out = TensorView::contiguous(static_cast<char*>(out.data()) + kAround, DType::BF16,
                                                      {s.batch, s.qHeads, s.qLen, 64}),
                        .lse = TensorView::contiguous(lse.data(), DType::F32, {s.batch, s.qHeads, s.qLen})};
  const Prepared prepared = take(device.compiler.prepare(c.mod, inputs, outputs, {.family = Family::Grid}));
  const device::Buffer workspace = take(device::Buffer::allocate(prepared.workspaceBytes()));
  take(prepared.initialise(inputs, workspace.data(), device.stream.get()));
  // Sequences of one length: text before the image, after it, both, none.
  for (auto [height, width, before] :
       {std::tuple(13, 20, 40), {13, 20, 0}, {13, 20, 17}, {15, 20, 0}, {3, 7, 150}, {1, 1, 299}}) {
    INFO(height << " x " << width << " behind " << before);
    for (const char* side : {"Q", "K"})
      operands.captures.set(fmt::format("{}Ey", side), int64_t(height))
          .set(fmt::format("{}Ex", side), int64_t(width))
          .set(fmt::format("{}B", side), int64_t(before));
    take(out.fill(0xff));
    take(prepared.launch(inputs, outputs, workspace.data(), device.stream.get()));
    take(device.stream.synchronize());
    std::vector<char> bytes(out.bytes());
    take(out.download(bytes.data(), bytes.size()));
    for (size_t i = 0; i < size_t(kAround); ++i) // nothing is written there
      if (bytes[i] != char(0xff) || bytes[bytes.size() - 1 - i] != char(0xff)) FAIL("written outside out, byte " << i);
    const cli::HostTensor result{.dtype = DType::BF16,
                                 .shape = {s.batch, s.qHeads, s.qLen, 64},
                                 .bytes = {bytes.begin() + kAround, bytes.end() - kAround}};
    std::vector<float> lseHost(rows);
    take(lse.download(lseHost.data(), lse.bytes()));
    checkClose({toDoubles(result), {lseHost.begin(), lseHost.end()}, {}, {}, {}},
               runReference(c.mod, c.problem, operands), c.problem);
  }
  operands.captures.set("KB", int64_t(300));
  CHECK(refusalOf(prepared.launch(inputs, outputs, workspace.data(), device.stream.get())).message ==
        "a grid of 1 has 1 token, the first behind 300 others, KV_LEN is 300");
}

GRID_TEST_CASE(Forward,
               "grid kernels: what lies around tensors in memory does not matter; a launch is captured in a graph",
               "[gpu][grid]") {
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
  CHECK(refusalOf(prepared.launch(again, outputs, workspace.data(), device.stream.get())).message ==
        "a grid of 21 x 12 has 252 tokens, KV_LEN is 273");
}
