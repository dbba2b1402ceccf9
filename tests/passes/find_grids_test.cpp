// Grids that are found in mods without any: what kernels by boxes are written from says of each query and key what the
// mod says, for spellings that are published, for random ones, and for all that a launch may give.
#include "helpers/found_grid.h"
#include "ir/bind.h"

#include <fmt/format.h>

#include <random>

using namespace attnc;
using namespace attnc::test;
using passes::GridKernel;

namespace {

std::string maskText(const std::string& queries, const std::string& keys, const std::string& expression,
                     const std::string& declared = "w: int\nv: int\n") {
  return "import torch\n" + declared + "def mask_mod(b, h, q_idx, kv_idx):\n  q, k = q_idx, kv_idx\n  " + queries +
         "\n  " + keys + "\n  return " + expression + "\n";
}

/// A neighborhood whose centers stay inside of the image.
const char* const kNeighborhood = R"(
width: int
height: int
rows, columns = 5, 3
def place(index):
    return index // width, index % width
def mask_mod(b, h, q_idx, kv_idx):
    (q_row, q_column), (kv_row, kv_column) = place(q_idx), place(kv_idx)
    row = q_row.clamp(rows // 2, (height - 1) - rows // 2)
    column = q_column.clamp(columns // 2, (width - 1) - columns // 2)
    return ((row - kv_row).abs() <= rows // 2) & ((column - kv_column).abs() <= columns // 2)
)";

/// Tiles of an image that lie one behind the other, as published: with 0 tokens of text behind the image.
const char* const kTiles = R"(
height, width, tile, text = 6, 8, 4, 0
rows, columns, window = 3, 4, (2, 3)
image = height * width
def near(q, kv, count, size):
    before, behind = size // 2, size // 2 + (size % 2 - 1)
    center = q.clamp(before, (count - 1) - behind)
    return (kv >= center - before) & (kv <= center + behind)
def mask_mod(b, h, q_idx, kv_idx):
    q_tile, kv_tile = q_idx // tile, kv_idx // tile
    in_rows = near(q_tile // columns, kv_tile // columns, rows, window[0])
    in_columns = near(q_tile % columns, kv_tile % columns, columns, window[1])
    of_image = (q_idx < image) & (kv_idx < image)
    to_text = (q_idx < image) & (kv_idx >= image) & (kv_idx < image + text)
    of_text = (q_idx >= image) & (kv_idx < image + text)
    return (of_image & in_rows & in_columns) | to_text | of_text
)";

struct Case {
  std::string queries, keys; ///< what is assigned
  std::string expression;
  std::string gridOfQueries, gridOfKeys;
  int64_t qLen, kvLen;
};

const std::string kNear = "(abs(qy - ky) <= 1) & (abs(qx - kx) <= 2)";
const std::string kNear3 = "(abs(qz - kz) <= 1) & (abs(qy - ky) <= 1) & (abs(qx - kx) <= 2)";

} // namespace

TEST_CASE("a grid is found however its coordinates are spelled", "[find_grids]") {
  const std::string rest6 = "[rest #Q_LEN, 6]", keys6 = "[rest #KV_LEN, 6]";
  const std::string video = "[rest #Q_LEN, 4, 6]", keys3 = "[rest #KV_LEN, 4, 6]";
  const Case cases[] = {
      {"qy, qx = q // 6, q % 6", "ky, kx = k // 6, k % 6", kNear, rest6, keys6, 48, 36},
      {"qx, qy = q % 6, q // 6", "ky = k // 6; kx = k - ky * 6", kNear, rest6, keys6, 48, 36},
      {"qy = q // 6; qx = q - 6 * qy", "ky, kx = k // 6, (k % 24) % 6", kNear, rest6, keys6, 48, 48},
      {"qy, qx = torch.div(q, 6, rounding_mode='floor'), torch.remainder(q, 6)", "ky, kx = k // 6, k % 6", kNear, rest6,
       keys6, 48, 36},
      {"qy, qx = q // w, q % w", "ky, kx = k // w, k - k // w * w", kNear, "[rest #Q_LEN, @w]", "[rest #KV_LEN, @w]",
       35, 21},
      {"qz, qy, qx = q // (4 * 6), q // 6 % 4, q % 6", "kz, ky, kx = k // 24, (k % 24) // 6, k % 6", kNear3, video,
       keys3, 72, 48},
      {"qz, qy, qx = q // 24, q % 24 // 6, q % 24 % 6", "kz, ky, kx = k // 6 // 4, k // 6 % 4, k % 6", kNear3, video,
       keys3, 72, 48},
      {"qz, qy, qx = q // (w * v), q // v % w, q % v", "kz, ky, kx = k // (v * w), (k % (w * v)) // v, k % v", kNear3,
       "[rest #Q_LEN, @w, @v]", "[rest #KV_LEN, @w, @v]", 42, 63},
      // What divides a coordinate is no extent.
      {"qy, qx = q // 8 // 2, q % 8 // 4", "ky, kx = k // 16, k % 8 // 4", "(qy == ky) & (qx == kx)",
       "[rest #Q_LEN, 8]", "[rest #KV_LEN, 8]", 64, 48},
      {"qy, qx = q // 8, q % 8", "ky, kx = k // 8, k % 8", kNear + " & (qx % 2 == kx % 2)", "[rest #Q_LEN, 8]",
       "[rest #KV_LEN, 8]", 64, 48},
      // Keys at half the resolution.
      {"qy, qx = q // 8, q % 8", "ky, kx = k // 4, k % 4", "(abs(qy // 2 - ky) <= 1) & (abs(qx // 2 - kx) <= 1)",
       "[rest #Q_LEN, 8]", "[rest #KV_LEN, 4]", 64, 16},
      // Rows have a last one where a remainder says so, or a comparison does.
      {"qy, qx = q // 6 % 5, q % 6", "ky, kx = k // 6 % 5, k % 6", kNear, "[5, 6]", "[5, 6]", 30, 30},
      {"qy, qx = q // 6, q % 6", "ky, kx = k // 6, k % 6", "(q < 30) & (k <= 29) & " + kNear, "[5, 6]", "[5, 6]", 30,
       30},
      // All rows, a window of columns.
      {"qx = q % 6", "kx = k % 6", "abs(qx - kx) <= 1", rest6, keys6, 48, 36},
      // The position itself stays what it is.
      {"qy, qx = q // 6, q % 6", "ky, kx = k // 6, k % 6", kNear + " & (q >= k)", rest6, keys6, 48, 48},
  };
  for (const Case& c : cases) {
    INFO(c.queries << "; " << c.keys << ": " << c.expression);
    const ir::Module mod = traced(maskText(c.queries, c.keys, c.expression));
    const GridKernel kernel = take(kernelOf(mod));
    CHECK(kernel.isFound);
    CHECK(textOf(kernel.ofQueries, kernel.module) == c.gridOfQueries);
    CHECK(textOf(kernel.ofKeys, kernel.module) == c.gridOfKeys);
    CHECK(checkMeaning(mod, kernel, c.qLen, c.kvLen, {{"w", 7}, {"v", 3}}) > 0);
  }
}

TEST_CASE("grids of published mods are found", "[find_grids]") {
  const ir::Module neighborhood = traced(kNeighborhood);
  const GridKernel kernel = take(kernelOf(neighborhood));
  const std::optional<analysis::GridBox> box = analysis::gridBox(kernel.module);
  CHECK(box->isMask());
  for (const analysis::GridBox::Axis& axis : box->axes) CHECK(axis.begin);
  for (auto [width, height] : {std::pair(6, 6), {5, 9}, {9, 5}, {1, 4}, {4, 1}}) {
    INFO(width << " x " << height);
    checkMeaning(neighborhood, kernel, width * height, width * height, {{"width", width}, {"height", height}});
  }
  const ir::Module sliding = traced(kTiles);
  const GridKernel tiles = take(kernelOf(sliding));
  CHECK(textOf(tiles.ofKeys, tiles.module) == "[3, 16]");
  CHECK(analysis::gridBox(tiles.module)->isMask());
  CHECK(checkMeaning(sliding, tiles, 48, 48) > 0);
}

TEST_CASE("a score_mod takes coordinates and positions beside a grid that is found", "[find_grids]") {
  const std::string swin =
      "W = 8\nbias: f32[H, 7, 7]\ndef score_mod(s, b, h, q, k):\n"
      "  return s + bias[h, q // W % 4 - k // W % 4 + 3, q % W % 4 - k % W % 4 + 3] + (q - k) * 0.5\n"
      "def mask_mod(b, h, q, k):\n"
      "  return (q // (W * 4) == k // (W * 4)) & (q % W // 4 == k % W // 4)\n";
  const ir::Module mod = traced(swin);
  const GridKernel kernel = take(kernelOf(mod));
  CHECK(textOf(kernel.ofQueries, kernel.module) == "[rest #Q_LEN, 8]");
  CHECK(analysis::gridBox(kernel.module)->isMask());
  CHECK(checkMeaning(mod, kernel, 64, 64) > 0);
}

TEST_CASE("random windows over random spellings of coordinates mean what the mod says", "[find_grids]") {
  std::mt19937 random{5};
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  const auto pick = [&](std::initializer_list<std::string> of) { return *(of.begin() + draw(0, int(of.size()) - 1)); };
  int found = 0;
  for (int round = 0; round < 150; ++round) {
    const int axes = draw(2, 3);
    const Scalars scalars{{"w", draw(1, 6)}, {"v", draw(1, 5)}};
    const bool isGiven = draw(0, 2) == 0; // at launch
    const int64_t width = scalars.at("w"), height = scalars.at("v");
    const std::string W = isGiven ? "w" : std::to_string(width), V = isGiven ? "v" : std::to_string(height);
    const auto coordinates = [&](const std::string& i) {
      const std::string slice = "(" + V + " * " + W + ")";
      const std::string x = pick({i + " % " + W, i + " - " + i + " // " + W + " * " + W, "(" + i + " + 0) % " + W});
      if (axes == 2) return i + "y, " + i + "x = " + i + " // " + W + ", " + x;
      const std::string z = pick({i + " // " + slice, i + " // " + W + " // " + V});
      const std::string y = pick({i + " // " + W + " % " + V, i + " % " + slice + " // " + W,
                                  "(" + i + " - " + i + " // " + slice + " * " + slice + ") // " + W});
      return i + "z, " + i + "y, " + i + "x = " + z + ", " + y + ", " + x;
    };
    const auto window = [&](const std::string& axis) {
      const int size = draw(0, 3);
      return fmt::format(fmt::runtime(pick({"(abs(q{0} - k{0}) <= {1})", "(k{0} >= q{0} - {1}) & (k{0} <= q{0} + {1})",
                                            "((q{0}.clamp({1}, 5 - {1}) - k{0}).abs() <= {1})",
                                            "(q{0} // ({1} + 1) == k{0} // ({1} + 1))", "(k{0} <= q{0})",
                                            "((q{0} - k{0}) % 2 == 0)", "((q{0} + k{0}) % ({1} + 2) != 1)"})),
                         axis, size);
    };
    std::string mask = window("x") + " & " + window("y");
    if (axes == 3) mask += " & " + window("z");
    if (draw(0, 3) == 0) mask += " & (q_idx >= kv_idx)";
    const std::string text = maskText(coordinates("q"), coordinates("k"), mask);
    INFO(text);
    const ir::Module mod = traced(text);
    const std::optional<GridKernel> kernel = kernelOf(mod);
    if (!kernel) continue;
    ++found;
    const int64_t slice = axes == 2 ? width : width * height, qLen = slice * draw(1, 4), kvLen = slice * draw(1, 4);
    const ir::Bindings bindings = boundTo(mod, scalars, {.qHeads = 2, .qLen = qLen, .kvLen = kvLen});
    if (bindings.extentsOf(kernel->ofQueries).size() < 2) continue;
    checkMeaning(mod, *kernel, qLen, kvLen, scalars);
  }
  CHECK(found > 60); // else nothing is held
}

TEST_CASE("what is no grid, or gains nothing from one, stays as it is", "[find_grids]") {
  const auto found = [](const std::string& expression) {
    return kernelOf(traced("import torch\nw: int\nv: int\ndef mask_mod(b, h, q, k):\n  return " + expression + "\n"));
  };
  const auto isNone = [&](const std::string& expression) { return !found(expression); };
  CHECK_FALSE(isNone("(abs(q // 8 - k // 8) <= 1) & (abs(q % 8 - k % 8) <= 1)"));
  CHECK(isNone("q // 64 == k // 64"));                                                    // an interval
  CHECK(isNone("(q // 64 >= k // 64) & (q // 128 == k // 128)"));                         // no remainder
  const std::optional<GridKernel> axial = found("(q // 8 == k // 8) | (q % 8 == k % 8)"); // no box
  REQUIRE(axial);
  CHECK_FALSE(axial->isBounded);            // so that it only gains from lists of boxes
  CHECK(isNone("(q >= k) & (k % 8 <= 2)")); // of keys only
  CHECK(isNone("(q - k) % 8 == 0"));        // of a distance
  CHECK(isNone("abs(q % 8 // 2 % 2 - k % 8 // 2 % 2 + q // 4 * (k % 4)) <= 1"));
  // The divisor is of the row, or is no number of the launch that has to be at least 1.
  CHECK(isNone("(q // (h + 8) == k // (h + 8)) & (q % (h + 8) == k % (h + 8))"));
  CHECK(isNone("(q // -8 == k // -8) & (q % -8 == k % -8)"));
  // Tiles of whole blocks of a block mask, one behind the other: lists say it all.
  CHECK(isNone("(abs(q // 128 // 8 - k // 128 // 8) <= 1) & (abs(q // 128 % 8 - k // 128 % 8) <= 1)"));
  CHECK_FALSE(isNone("(abs(q // 64 // 8 - k // 64 // 8) <= 1) & (abs(q // 64 % 8 - k // 64 % 8) <= 1)"));
}

TEST_CASE("sums and products of numbers of the launch take no longer than they are", "[find_grids]") {
  for (const char* grown : {"x + x", "x * x", "x * w + x"}) {
    std::string text = "w: int\ndef mask_mod(b, h, q, k):\n  x = w\n";
    for (int i = 0; i < 60; ++i) text += std::string("  x = ") + grown + "\n";
    text += "  return (q // 16 == k // 16) & (q % 16 >= k % 16) & (k - x < q) & (q // (x * 8) == k // (x * 8))\n";
    INFO(grown);
    kernelOf(traced(text)); // seconds would tell
  }
}

TEST_CASE("nothing is concluded from numbers of the launch that are no extents", "[find_grids]") {
  // v divides rows; were it -2, floor(q / (8 v)) would not be floor(floor(q / 8) / v), and were it 0, q % 0 not q.
  for (const char* text :
       {"def mask_mod(b, h, q, k):\n  return (q // (8 * v) == k // (8 * v)) & (abs(q % 8 - k % 8) <= 1)\n",
        "def mask_mod(b, h, q, k):\n  return (q % (8 * v) % 8 == k % (8 * v) % 8) & (q // 8 == k // 8)\n",
        "def mask_mod(b, h, q, k):\n  return (q // 8 // v == k // 8 // v) & (abs(q % 8 - k % 8) <= 1)\n"}) {
    INFO(text);
    const ir::Module mod = traced(std::string("v: int\n") + text);
    const std::optional<GridKernel> kernel = kernelOf(mod);
    if (!kernel) continue;
    for (int64_t v : {-3, -2, -1, 0, 1, 2, 5, 1 << 24, -(1 << 24)}) {
      INFO(v);
      checkMeaning(mod, *kernel, 48, 48, {{"v", v}});
    }
  }
}

TEST_CASE("a grid with a rest binds to lengths that its slices divide", "[find_grids]") {
  const std::optional<GridKernel> kernel =
      kernelOf(traced("w: int\ndef mask_mod(b, h, q, k):\n  return (q // w == k // w) & (abs(q % w - k % w) <= 1)\n"));
  REQUIRE(kernel);
  const auto bind = [&](int64_t w, int64_t qLen, int64_t kvLen) {
    Captures captures;
    captures.set("w", w);
    return ir::bind(kernel->module, captures, {.qLen = qLen, .kvLen = kvLen});
  };
  const auto bound = take(bind(5, 30, 45));
  CHECK(bound.extentsOf(kernel->ofQueries) == llvm::SmallVector<int64_t, 3>{6, 5});
  CHECK(bound.extentsOf(kernel->ofKeys) == llvm::SmallVector<int64_t, 3>{9, 5});
  const auto errorOf = [&](int64_t w, int64_t qLen, int64_t kvLen) {
    const auto bindings = bind(w, qLen, kvLen);
    return bindings ? std::string() : bindings.error().message;
  };
  CHECK(errorOf(7, 30, 35) == "Q_LEN is 30, no multiple of the 7 tokens of a slice of a grid");
  CHECK(errorOf(7, 28, 30) == "KV_LEN is 30, no multiple of the 7 tokens of a slice of a grid");
  CHECK(errorOf(0, 28, 28) == "an extent of a grid is w, which is 0; it must lie in 1..16777216");
  CHECK(errorOf(-4, 28, 28) == "an extent of a grid is w, which is -4; it must lie in 1..16777216");
  CHECK(errorOf((1 << 24) + 1, 28, 28) == "an extent of a grid is w, which is 16777217; it must lie in 1..16777216");
  CHECK(errorOf(64, 32, 64) == "Q_LEN is 32, no multiple of the 64 tokens of a slice of a grid");
}
