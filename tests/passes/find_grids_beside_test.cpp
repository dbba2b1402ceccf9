// Grids that are found if text stands before or after an image: as other grids, and with tokens outside the grid.
#include "helpers/found_grid.h"
#include "ir/bind.h"

#include <fmt/format.h>

#include <random>

using namespace attnc;
using namespace attnc::test;
using analysis::Beside;
using passes::GridKernel;

namespace {

/// `body`: lines, which assign qy, qx, ky, kx and return.
std::string maskText(const std::string& body) {
  std::string text =
      "import torch\nt: int\nw: int\nv: int\ndef mask_mod(b, h, q_idx, kv_idx):\n  q, k = q_idx, kv_idx\n";
  for (size_t at = 0; at < body.size();) {
    const size_t end = std::min(body.find('\n', at), body.size());
    text += "  " + body.substr(at, end - at) + "\n";
    at = end + 1;
  }
  return text;
}

const Scalars kScalars{{"t", 4}, {"w", 5}, {"v", 3}};
const std::string kNear = "near = (abs(qy - ky) <= 1) & (abs(qx - kx) <= 2)\n";
const std::string kBehind4 = "i, j = q - 4, k - 4\nqy, qx, ky, kx = i // 6, i % 6, j // 6, j % 6\n" + kNear;
const std::string kBehindT = "i, j = q - t, k - t\nqy, qx, ky, kx = i // w, i % w, j // w, j % w\n" + kNear;
const std::string kFirst = "qy, qx, ky, kx = q // 6, q % 6, k // 6, k % 6\n" + kNear;

struct Case {
  std::string body;
  std::string gridOfQueries, gridOfKeys;
  Beside key, query, both;
  int64_t qLen, kvLen;
};

const Case kCases[] = {
    // Text sees all, and is seen by all.
    {kBehind4 + "return near | (q < 4) | (k < 4)", "[rest #Q_LEN, 6] before 4", "[rest #KV_LEN, 6] before 4",
     Beside::All, Beside::All, Beside::All, 28, 22},
    {kBehindT + "return near | (q < t) | (k < t)", "[rest #Q_LEN, @w] before @t", "[rest #KV_LEN, @w] before @t",
     Beside::All, Beside::All, Beside::All, 24, 19},
    {kBehindT + "return torch.where((i >= 0) & (j >= 0), near, True)", "[rest #Q_LEN, @w] before @t",
     "[rest #KV_LEN, @w] before @t", Beside::All, Beside::All, Beside::All, 24, 24},
    {kBehind4 + "return torch.where((i < 0) | (j <= -1), True, near)", "[rest #Q_LEN, 6] before 4",
     "[rest #KV_LEN, 6] before 4", Beside::All, Beside::All, Beside::All, 22, 22},
    {kBehindT + "return near | ~((q > t - 1) & (t <= k))", "[rest #Q_LEN, @w] before @t",
     "[rest #KV_LEN, @w] before @t", Beside::All, Beside::All, Beside::All, 24, 24},
    // Text sees text; text is causal; no text; registers in text that images do not see.
    {kBehind4 + "return torch.where(q < 4, k < 4, near | (k < 4))", "[rest #Q_LEN, 6] before 4",
     "[rest #KV_LEN, 6] before 4", Beside::All, Beside::None, Beside::All, 28, 28},
    {kBehind4 + "return torch.where(q < 4, k <= q, near | (k < 4))", "[rest #Q_LEN, 6] before 4",
     "[rest #KV_LEN, 6] before 4", Beside::All, Beside::Asks, Beside::Asks, 28, 28},
    {kBehind4 + "return near & (q >= 4) & (k >= 4)", "[rest #Q_LEN, 6] before 4", "[rest #KV_LEN, 6] before 4",
     Beside::None, Beside::None, Beside::None, 28, 28},
    {kBehind4 + "return (near & (k >= 2)) | (q < 4) | ((k >= 2) & (k < 4))", "[rest #Q_LEN, 6] before 4",
     "[rest #KV_LEN, 6] before 4", Beside::Asks, Beside::All, Beside::All, 28, 28},
    // Only keys of text; text of other lengths.
    {"j = k - 4\nqy, qx, ky, kx = q // 6, q % 6, j // 6, j % 6\n" + kNear + "return near | (k < 4)", "[rest #Q_LEN, 6]",
     "[rest #KV_LEN, 6] before 4", Beside::All, Beside::None, Beside::None, 24, 28},
    {"i, j = q - t, k - 2\nqy, qx, ky, kx = i // 6, i - i // 6 * 6, j // 6, j - j // 6 * 6\n" + kNear +
         "return near | (k < 2) | (q < t)",
     "[rest #Q_LEN, 6] before @t", "[rest #KV_LEN, 6] before 2", Beside::All, Beside::All, Beside::All, 22, 26},
    // The coordinates of text count.
    {kBehind4 + "return near", "[rest #Q_LEN, 6] before 4", "[rest #KV_LEN, 6] before 4", Beside::Asks, Beside::Asks,
     Beside::Asks, 28, 28},
    {kBehindT + "return near | (q < t)", "[rest #Q_LEN, @w] before @t", "[rest #KV_LEN, @w] before @t", Beside::Asks,
     Beside::All, Beside::All, 24, 24},
    // Text before an image with an end, and behind it.
    {kBehind4 + "on = (q >= 4) & (q < 34) & (k >= 4) & (k < 34)\nreturn near & on | ~on", "[5, 6] before 4",
     "[5, 6] before 4", Beside::All, Beside::All, Beside::All, 40, 37},
    {kBehindT + "on = (i >= 0) & (i < v * w) & (j >= 0) & (j < v * w)\nreturn near & on | ~on", "[@v, @w] before @t",
     "[@v, @w] before @t", Beside::All, Beside::All, Beside::All, 22, 19},
    {kBehindT + "return (near & (q < t + v * w) & (k < t + v * w)) | (k < t)", "[@v, @w] before @t",
     "[@v, @w] before @t", Beside::Asks, Beside::Asks, Beside::Asks, 23, 23},
    {kBehind4 + "return (near & (q < 34) & (k < 34) & (k >= 4)) | (q < 4)", "[5, 6] before 4", "[5, 6] before 4",
     Beside::None, Beside::Asks, Beside::Asks, 40, 40},
    {kFirst + "return near | (q >= 30) | (k >= 30)", "[5, 6]", "[5, 6]", Beside::All, Beside::All, Beside::All, 36, 33},
    {"i, j = q - 4, k - 4\nqy, qx, ky, kx = i // w, i % w, j // w, j % w\n" + kNear +
         "on = (i >= 0) & (i < v * w) & (j >= 0) & (j < v * w)\nreturn near | ~on",
     "[@v, @w] before 4", "[@v, @w] before 4", Beside::All, Beside::All, Beside::All, 24, 19},
    // Rows that begin anew behind the last one.
    {"qy, qx, ky, kx = q // 6, q % 6, k // 6 % 5, k % 6\n" + kNear + "return near | (q >= 30)", "[5, 6]", "[5, 6]",
     Beside::Asks, Beside::All, Beside::All, 36, 39},
    {"i, j = q - 4, k - 4\nqy, qx, ky, kx = i // 6 % 5, i % 6, j // 6 % 5, j % 6\n" + kNear + "return near",
     "[5, 6] before 4", "[5, 6] before 4", Beside::Asks, Beside::Asks, Beside::Asks, 40, 40},
    {"i, j = q - t, k - t\nqy, qx, ky, kx = i // w % v, i % w, j % (v * w) // w, j % w\n" + kNear +
         "return near | (q < t)",
     "[@v, @w] before @t", "[@v, @w] before @t", Beside::Asks, Beside::Asks, Beside::Asks, 25, 25},
    {"i, j = q - 4, k - 4\nqy, qx, ky, kx = i % 32 // 16, i % 8 // 2, j % 32 // 16, j % 8 // 2\n"
     "near = (qy == ky) & (abs(qx - kx) <= 2)\n"
     "return near | (q < 4) | (k < 4)",
     "[4, 8] before 4", "[4, 8] before 4", Beside::Asks, Beside::Asks, Beside::Asks, 36, 41},
};

} // namespace

TEST_CASE("a grid behind text is found, and what text sees", "[find_grids]") {
  for (const Case& c : kCases) {
    INFO(c.body);
    const ir::Module mod = traced(maskText(c.body));
    const GridKernel kernel = take(kernelOf(mod));
    CHECK(kernel.isFound);
    CHECK(textOf(kernel.ofQueries, kernel.module) == c.gridOfQueries);
    CHECK(textOf(kernel.ofKeys, kernel.module) == c.gridOfKeys);
    REQUIRE(kernel.beside);
    CHECK(kernel.beside->key == c.key);
    CHECK(kernel.beside->query == c.query);
    CHECK(kernel.beside->both == c.both);
    CHECK(checkMeaning(mod, kernel, c.qLen, c.kvLen, kScalars) > 0);
  }
}

TEST_CASE("a found grid behind text is as one that is declared", "[find_grids]") {
  const std::string near = "  return (abs(qy - ky) <= 1) & (abs(qx - kx) <= 2) | ";
  const ir::Module found = traced("def mask_mod(b, h, q, k):\n  i, j = q - 9, k - 9\n"
                                  "  qy, qx, ky, kx = i // 7 % 5, i % 7, j // 7 % 5, j % 7\n" +
                                  near + "(q < 9) | (k < 9) | (q >= 44) | (k >= 44)\n");
  const ir::Module declared = traced("from attnc import grid\nimage = grid(5, 7, before=9)\ndef mask_mod(b, h, q, k):\n"
                                     "  (qy, qx), (ky, kx) = image.coords(q), image.coords(k)\n" +
                                     near + "~image.contains(q) | ~image.contains(k)\n");
  const GridKernel a = take(kernelOf(found)), b = take(kernelOf(declared));
  CHECK(a.ofQueries == b.ofQueries);
  CHECK(a.ofKeys == b.ofKeys);
  CHECK(a.boxIsMask);
  CHECK(a.isSeparable);
  REQUIRE(a.axes.size() == 2);
  for (size_t axis = 0; axis < 2; ++axis) {
    CHECK(a.axes[axis].span == b.axes[axis].span);
    CHECK(a.axes[axis].stride == b.axes[axis].stride);
  }
  CHECK(a.beside->key == b.beside->key);
  CHECK(a.beside->query == b.beside->query);
  CHECK(a.beside->both == b.beside->both);
}

TEST_CASE("a score_mod takes coordinates of text, too", "[find_grids]") {
  const ir::Module mod =
      traced(maskText(kBehindT + "return near | (q < t) | (k < t)") +
             "def score_mod(s, b, h, q, k):\n"
             "  return s + (q - t) // w * 8 + (q - t) % w - (k - t) // w * 5 + torch.where(k < t, 1, (k - t) % w)\n");
  const GridKernel kernel = take(kernelOf(mod));
  CHECK(checkMeaning(mod, kernel, 24, 19, kScalars) > 0);
}

TEST_CASE("random masks beside found grids mean what the mod says", "[find_grids]") {
  std::mt19937 random{11};
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  const auto pick = [&](std::initializer_list<std::string> of) { return *(of.begin() + draw(0, int(of.size()) - 1)); };
  int found = 0, decided = 0;
  for (int round = 0; round < 200; ++round) {
    const Scalars scalars{{"t", draw(0, 5)}, {"w", draw(1, 5)}, {"v", draw(1, 4)}};
    const int64_t before = scalars.at("t"), width = scalars.at("w"), height = scalars.at("v");
    const bool isGiven = draw(0, 1), hasEnd = draw(0, 1); // numbers at launch; an extent for rows
    const std::string T = isGiven ? "t" : std::to_string(before), W = isGiven ? "w" : std::to_string(width),
                      V = isGiven ? "v" : std::to_string(height), end = T + " + " + V + " * " + W;
    std::string body = "i, j = q - " + T + ", k - " + T + "\n";
    for (const std::string axis : {"q", "k"}) {
      const std::string i = axis == "q" ? "i" : "j";
      const std::string row =
          hasEnd ? pick({i + " // " + W + " % " + V, i + " // " + W, i + " % (" + V + " * " + W + ") // " + W})
                 : i + " // " + W;
      body += axis + "y, " + axis + "x = " + row + ", " +
              pick({i + " % " + W, i + " - " + i + " // " + W + " * " + W}) + "\n";
    }
    const auto window = [&](const std::string& axis) {
      return fmt::format(fmt::runtime(pick({"(abs(q{0} - k{0}) <= {1})", "(k{0} >= q{0} - {1}) & (k{0} <= q{0} + {1})",
                                            "((q{0}.clamp({1}, 5 - {1}) - k{0}).abs() <= {1})", "(k{0} <= q{0})",
                                            "((q{0} - k{0}) % 2 == 0)"})),
                         axis, draw(0, 3));
    };
    const auto guard = [&](const std::string& of) {
      const std::string i = of == "q" ? "i" : "j";
      const std::string first =
          pick({of + " < " + T, i + " < 0", "~(" + of + " >= " + T + ")", of + " <= " + T + " - 1"});
      if (!hasEnd) return first;
      const std::string last = pick({of + " >= " + end, i + " >= " + V + " * " + W, "~(" + of + " < " + end + ")"});
      return pick({"(" + first + " | " + last + ")", "(" + first + ")", "(" + last + ")", "(" + of + " + h) % 3 == 0"});
    };
    body += "near = " + window("y") + " & " + window("x") + "\n";
    const std::string q = guard("q"), k = guard("k"), seen = pick({"True", "False", "k <= q", "(h == 0)"});
    body +=
        pick({"return near | " + q + " | " + k, "return torch.where(" + q + " | " + k + ", " + seen + ", near)",
              "return near & ~(" + q + ") & ~(" + k + ")", "return (near & ~(" + q + ")) | (" + k + " & " + seen + ")",
              "return torch.where(" + q + ", " + k + ", near)", "return near | (" + q + " & " + k + ")"});
    const std::string text = maskText(body);
    INFO(text);
    const ir::Module mod = traced(text);
    const std::optional<GridKernel> kernel = kernelOf(mod);
    if (!kernel) continue;
    ++found;
    const auto lengthOf = [&](const ir::Grid& grid) {
      int64_t tokens = grid.hasRest() ? draw(1, 4) : 1;
      for (const ir::Grid::Number& extent : llvm::ArrayRef<ir::Grid::Number>(grid.extents).drop_front(grid.hasRest()))
        tokens *= extent.kind == ir::Grid::Number::Kind::Constant
                      ? extent.value
                      : scalars.at(kernel->module.scalars[extent.value].name);
      const int64_t behind = grid.hasRest() || !kernel->beside ? 0 : draw(0, 5);
      return tokens + behind + (grid.before == ir::Grid::Number() ? 0 : before);
    };
    const int64_t qLen = lengthOf(kernel->ofQueries), kvLen = lengthOf(kernel->ofKeys);
    checkMeaning(mod, *kernel, qLen, kvLen, scalars);
    if (!kernel->beside) continue;
    for (Beside told : {kernel->beside->key, kernel->beside->query, kernel->beside->both})
      decided += told != Beside::Asks;
  }
  CHECK(found > 100); // else nothing is held
  CHECK(decided > 100);
}

TEST_CASE("a grid behind text with a rest binds to lengths that its slices divide", "[find_grids]") {
  const GridKernel kernel = take(kernelOf(traced(maskText(kBehindT + "return near | (q < t) | (k < t)"))));
  const auto bind = [&](int64_t t, int64_t w, int64_t qLen, int64_t kvLen) {
    Captures captures;
    captures.set("t", t).set("w", w);
    if (llvm::any_of(kernel.module.scalars, [](const ir::ScalarCapture& scalar) { return scalar.name == "v"; }))
      captures.set("v", 1);
    return ir::bind(kernel.module, captures, {.qLen = qLen, .kvLen = kvLen});
  };
  const auto bound = take(bind(4, 5, 34, 19));
  CHECK(bound.extentsOf(kernel.ofQueries) == llvm::SmallVector<int64_t, 3>{6, 5});
  CHECK(bound.extentsOf(kernel.ofKeys) == llvm::SmallVector<int64_t, 3>{3, 5});
  const auto errorOf = [&](int64_t t, int64_t w, int64_t qLen, int64_t kvLen) {
    const auto bindings = bind(t, w, qLen, kvLen);
    return bindings ? std::string() : bindings.error().message;
  };
  CHECK(errorOf(4, 5, 30, 34) == "Q_LEN is 30, counted from 4, no multiple of the 5 tokens of a slice of a grid");
  CHECK(errorOf(4, 5, 34, 3) == "KV_LEN is 3, counted from 4, no multiple of the 5 tokens of a slice of a grid");
  CHECK(errorOf(-1, 5, 34, 34) == "a grid begins at t, which is -1; it must lie in 0..16777215");
}

TEST_CASE("positions that are counted from no place of a grid are on none", "[find_grids]") {
  const auto isNone = [](const std::string& body) { return !kernelOf(traced(maskText(body))); };
  const std::string four = "qy, qx, ky, kx = i // 6, i % 6, j // 6, j % 6\n" + kNear + "return near";
  CHECK_FALSE(isNone("i, j = q - 4, k - 4\n" + four));
  CHECK_FALSE(isNone("i, j = q - 3 - 1, k - 4\n" + four));
  CHECK(isNone("i, j = q + 4, k + 4\n" + four));
  CHECK(isNone("i, j = q - (t + 1), k - (t + 1)\n" + four));
  CHECK(isNone("i, j = q - t * 2, k - t * 2\n" + four));
  CHECK(isNone("i, j = 4 - q, 4 - k\n" + four));
  CHECK(isNone("i, j = q - h, k - h\n" + four));
  CHECK(isNone("i, j = (q - 4).clamp(0), (k - 4).clamp(0)\n" +
               four)); // tokens of text have the coordinates of the first one
}
