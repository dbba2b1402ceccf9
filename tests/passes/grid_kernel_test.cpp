// What kernels by boxes of a grid are written from: a module that means what the mod means, to tokens on its grids or
// to all, and what is known of windows, held against all queries of small grids.
#include "analysis/grid_box.h"
#include "dsl/frontend.h"
#include "helpers/take.h"
#include "ir/bind.h"
#include "ir/interpreter.h"
#include "ir/printer.h"
#include "passes/grids/grid_kernel.h"
#include "passes/pipeline.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <fstream>
#include <sstream>

using namespace attnc;
using passes::GridKernel;

namespace {

ir::Module traced(const std::string& text, const std::map<std::string, std::string>& defines = {}) {
  return take(dsl::trace(text, {.name = "grid.py", .defines = defines}));
}

std::optional<GridKernel> kernelOf(const ir::Module& module) { return take(passes::gridKernel(module, module)); }

std::string libraryText(const std::string& name) {
  std::ifstream in(ATTNC_SOURCE_DIR "/dsl/mods/" + name + ".py");
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

/// A mask of the coordinates qz, qy, qx and kz, ky, kx, as many as the grids have axes.
std::string maskText(const std::string& queries, const std::string& keys, int axes, const std::string& expression) {
  const char* const coordinates[] = {"{0}x,", "{0}y, {0}x", "{0}z, {0}y, {0}x"};
  const auto names = [&](const char* of) { return fmt::format(fmt::runtime(coordinates[axes - 1]), of); };
  return "w: int\nm: int\nfrom attnc import grid\nimport torch\nqueries = grid(" + queries + ")\nkeys = grid(" + keys +
         ")\ndef mask_mod(b, h, q_idx, kv_idx):\n  " + names("q") + " = queries.coords(q_idx)\n  " + names("k") +
         " = keys.coords(kv_idx)\n  return " + expression + "\n";
}

constexpr int64_t kLine = 12; ///< tokens of grids that the length determines

int64_t tokensOf(const ir::Grid& grid, const ir::Bindings& bindings) {
  if (grid.hasRest()) return kLine;
  int64_t product = 1;
  for (const ir::Grid::Number& extent : grid.extents) {
    REQUIRE(extent.kind != ir::Grid::Number::Kind::Dim);
    REQUIRE((extent.kind == ir::Grid::Number::Kind::Constant || size_t(extent.value) < bindings.scalars.size()));
    product *= bindings.of(extent);
  }
  return product;
}

/// Whether what is told of two kinds of tokens is what the mod says of each pair.
void checkBeside(passes::Beside told, const ir::Interpreter& mod, const std::vector<int64_t>& queries,
                 const std::vector<int64_t>& keys) {
  if (told == passes::Beside::Asks) return;
  int wrong = 0;
  for (int64_t h = 0; h < 2; ++h)
    for (int64_t q : queries)
      for (int64_t kv : keys) wrong += mod.mask(0, h, q, kv) != (told == passes::Beside::All);
  CHECK(wrong == 0);
}

/// Fails where the kernel's module says other than the mod, or where a window is not as it is told.
void checkKernel(const ir::Module& mod, const GridKernel& kernel, const std::map<std::string, int64_t>& scalars = {}) {
  INFO(ir::print(kernel.module));
  Captures captures;
  std::vector<float> zeros(4096, 0.f);
  for (const ir::ScalarCapture& scalar : mod.scalars) captures.set(scalar.name, scalars.at(scalar.name));
  for (const ir::TensorCapture& tensor : mod.tensors)
    captures.set(tensor.name,
                 TensorView::contiguous(zeros.data(), DType::F32, {2, tensor.shape[1].value, tensor.shape[2].value}));
  ProblemShape problem{.qHeads = 2, .kvHeads = 1, .qLen = kLine, .kvLen = kLine};
  auto bindings = ir::bind(kernel.module, captures, problem);
  if (!bindings) FAIL(bindings.error().message);
  problem.qLen = tokensOf(kernel.ofQueries, *bindings);
  problem.kvLen = tokensOf(kernel.ofKeys, *bindings);
  std::vector<int64_t> queries[2], keys[2]; // outside the grid, on it
  const auto lieBeside = [&](const ir::Grid& grid, int64_t& length, int64_t behind, std::vector<int64_t>(&by)[2]) {
    const int64_t before = bindings->of(grid.before), tokens = length;
    length += before + behind;
    for (int64_t i = 0; i < length; ++i) by[i >= before && i < before + tokens].push_back(i);
  };
  lieBeside(kernel.ofQueries, problem.qLen, kernel.beside ? 5 : 0, queries);
  lieBeside(kernel.ofKeys, problem.kvLen, kernel.beside ? 3 : 0, keys);
  bindings = ir::bind(kernel.module, captures, problem);
  auto ofMod = ir::bind(mod, captures, problem);
  REQUIRE(bindings);
  REQUIRE(ofMod);
  const ir::Interpreter want(mod, *ofMod), got(kernel.module, *bindings);
  int wrong = 0;
  for (int64_t h = 0; h < problem.qHeads; ++h)
    for (int64_t q = 0; q < problem.qLen; ++q)
      for (int64_t kv = 0; kv < problem.kvLen; ++kv) {
        wrong += want.mask(0, h, q, kv) != got.mask(0, h, q, kv);
        if (mod.output(ir::kScore)) wrong += want.score(0.5f, 0, h, q, kv) != got.score(0.5f, 0, h, q, kv);
      }
  CHECK(wrong == 0);

  const analysis::GridBox box = take(analysis::gridBox(kernel.module));
  REQUIRE(box.beside.has_value() == kernel.beside.has_value());
  if (kernel.beside) {
    CHECK(box.beside->key == kernel.beside->key);
    CHECK(box.beside->query == kernel.beside->query);
    CHECK(box.beside->both == kernel.beside->both);
    checkBeside(kernel.beside->key, want, queries[1], keys[0]);
    checkBeside(kernel.beside->query, want, queries[0], keys[1]);
    checkBeside(kernel.beside->both, want, queries[0], keys[0]);
  }
  REQUIRE(kernel.axes.size() == box.axes.size());
  ir::Module module = kernel.module;
  for (unsigned axis = 0; axis < box.axes.size(); ++axis) {
    if (!box.axes[axis].begin) continue;
    const passes::BoxAxis& told = kernel.axes[axis];
    const ir::Evaluator begin(module, *bindings, *box.axes[axis].begin), end(module, *bindings, *box.axes[axis].end);
    const ir::Value coordinate = module.make(ir::Op::Coord, ir::Type::I32, {module.param(ir::ParamKind::QIdx)},
                                             ir::GridAxis{*box.queries, axis}.attr());
    const ir::Evaluator at(module, *bindings, coordinate);
    for (int64_t h = 0; h < problem.qHeads; ++h) {
      std::map<int64_t, std::pair<int64_t, int64_t>> ofQuotient;
      for (int64_t q : queries[1]) {
        const std::pair<int64_t, int64_t> keys(begin.evaluate(0, 0, h, q, 0).integer,
                                               end.evaluate(0, 0, h, q, 0).integer);
        if (told.span && keys.second - keys.first > *told.span)
          FAIL("a window of " << keys.second - keys.first << " at " << q);
        const int64_t quotient = at.evaluate(0, 0, h, q, 0).integer / told.stride;
        if (ofQuotient.try_emplace(quotient, keys).first->second != keys) FAIL("another window in a stride, at " << q);
      }
    }
  }
}

struct Case {
  std::string queries, keys;
  int axes;
  std::string expression;
  std::vector<std::pair<int64_t, int64_t>> windows; // span, 0: not known; stride
};

} // namespace

TEST_CASE("kernels by boxes: what the module means, how long windows are, and who shares one", "[grid_kernel]") {
  const Case cases[] = {
      {"40", "40", 1, "abs(kx - qx) <= 6", {{13, 1}}},
      {"40", "40", 1, "(kx >= qx - 2) & (kx <= qx + 3)", {{6, 1}}},
      {"8, 10", "8, 10", 2, "(abs(ky - qy) <= 2) & (abs(kx - qx) <= 1)", {{5, 1}, {3, 1}}},
      {"9, 7",
       "9, 7",
       2,
       "(ky >= clamp(qy - 2, 0, 4)) & (ky < clamp(qy - 2, 0, 4) + 5) & (kx <= qx)",
       {{5, 1}, {0, 1}}},
      {"4, 4, 5", "4, 4, 5", 3, "(abs(kz - qz) <= 1) & (abs(kx - qx) <= w)", {{3, 1}, {0, 1}, {0, 1}}},
      {"12, 8",
       "12, 8",
       2,
       "(ky >= qy // 4 * 4) & (ky < qy // 4 * 4 + 6) & (abs(kx - qx // 2 * 2) <= 2)",
       {{6, 4}, {5, 2}}},
      {"12", "12", 1, "(kx >= qx // 4 * 4) & (kx < qx // 6 * 6 + 6)", {{0, 2}}},
      {"12", "12", 1, "(kx >= qx // 4 * 4) & (kx < qx + 6)", {{0, 1}}},
      {"12", "12", 1, "kx // 4 == qx // 4", {{4, 4}}},
      {"12", "12", 1, "(kx - 1) // 4 == (qx - 1) // 4", {{4, 1}}},
      // Keys at half the resolution of queries.
      {"8, 12", "4, 6", 2, "(abs(ky - qy // 2) <= 1) & (abs(kx - qx // 2) <= 2)", {{3, 2}, {5, 2}}},
      {"w, 5", "w, m", 2, "(abs(ky - qy) <= 1) & (abs(kx - qx) <= 1)", {{3, 1}, {3, 1}}},
      // Windows that differ by head.
      {"30", "30", 1, "abs(kx - qx) <= torch.where(h == 0, 2, 5)", {{0, 1}}},
  };
  for (const Case& c : cases) {
    INFO(c.queries << " / " << c.keys << ": " << c.expression);
    const ir::Module mod = traced(maskText(c.queries, c.keys, c.axes, c.expression));
    const GridKernel kernel = take(kernelOf(mod));
    CHECK(int(kernel.ofQueries.extents.size()) == c.axes);
    checkKernel(mod, kernel, {{"w", 3}, {"m", 4}});
    REQUIRE(kernel.axes.size() == c.windows.size());
    for (size_t i = 0; i < c.windows.size(); ++i) {
      INFO("axis " << i);
      if (c.windows[i].first) CHECK(kernel.axes[i].span == c.windows[i].first); // 0: a longer one may be told
      CHECK(kernel.axes[i].stride == c.windows[i].second);
    }
  }
}

TEST_CASE("kernels by boxes: rows are split by dilation if nothing else is asked of them", "[grid_kernel]") {
  const std::string dilated = "(qy % 2 == ky % 2) & (abs(qy // 2 - ky // 2) <= 1) & (abs(qx - kx) <= 1)";
  const std::pair<std::string, size_t> cases[] = {
      {dilated, 3},
      {dilated + " & (h + ky // 2 < 5)", 3},
      {dilated + " & (ky * h < 9)", 2},
      {dilated + " & (qy // 4 == ky // 4)", 2},
  };
  for (const auto& [expression, axes] : cases) {
    INFO(expression);
    for (const char* grid : {"12, 5", "12, 5, before=3"}) {
      const ir::Module mod = traced(maskText(grid, grid, 2, expression));
      const GridKernel kernel = take(kernelOf(mod));
      CHECK(kernel.axes.size() == axes);
      checkKernel(mod, kernel, {{"w", 1}, {"m", 1}});
    }
  }
}

TEST_CASE("kernels by boxes: keys that are a multiple of a step away are an axis of remainders", "[grid_kernel]") {
  struct Line {
    std::string text;
    int64_t step, span; ///< span: of rows of steps; 0: unknown
  };
  const std::string apart = "def mask_mod(b, h, q, k):\n  return ";
  const Line lines[] = {
      {apart + "(q % 4 == k % 4) & (abs(q - k) <= 9)", 4, 5},
      {apart + "((q - k) % 3 == 0) & (k <= q) & (q - k < 7)", 3, 3},
      {apart + "((k - q) % 3 == 0) & (q <= k + 1) & (k <= q + 2)", 3, 1},
      {"w: int\n" + apart + "((q - k) % 2 == 0) & (k <= q) & (q - k <= w * 2)", 2, 0},
      {apart + "((q - k) % 2 == 0) & (abs(q - k) <= 4) & (k % 5 != h)", 2, 5},
      {"from attnc import grid\nline = grid(12)\ndef mask_mod(b, h, q, k):\n"
       "  x, y = line.coords(q)[0], line.coords(k)[0]\n  return (abs(x - y) <= 6) & (x % 3 == y % 3)",
       3, 5},
  };
  for (const Line& line : lines) {
    INFO(line.text);
    const ir::Module mod = traced(line.text + "\n");
    const GridKernel kernel = take(kernelOf(mod));
    CHECK(kernel.step == line.step);
    REQUIRE(kernel.axes.size() == 2);
    if (line.span) CHECK(kernel.axes[0].span == line.span);
    CHECK(kernel.axes[1].span == 1);
    CHECK(kernel.isSeparable);
    checkKernel(mod, kernel, {{"w", 2}});
  }
  for (const char* mask : {"(q % 4 == k % 4) | (abs(q - k) <= 9)", "(q % 4 == k % 2) & (abs(q - k) <= 9)"}) {
    const auto none = kernelOf(traced(apart + mask + "\n"));
    CHECK((!none || none->step == 1));
  }
}

TEST_CASE("kernels by boxes: mods of the library", "[grid_kernel]") {
  const std::map<std::string, std::string> small{{"HEIGHT", "12"}, {"WIDTH", "10"}, {"WINDOW", "(5, 3)"}};
  const auto check = [](const std::string& name, const std::map<std::string, std::string>& defines,
                        const std::vector<std::pair<int64_t, int64_t>>& windows) {
    INFO(name);
    const ir::Module mod = traced(libraryText(name), defines);
    const GridKernel kernel = take(kernelOf(mod));
    checkKernel(mod, kernel);
    REQUIRE(kernel.axes.size() == windows.size());
    for (size_t i = 0; i < windows.size(); ++i) {
      INFO("axis " << i);
      if (windows[i].first) CHECK(kernel.axes[i].span == windows[i].first);
      CHECK(kernel.axes[i].stride == windows[i].second);
    }
  };
  check("neighborhood2d", small, {{5, 1}, {3, 1}});
  std::map<std::string, std::string> strided = small;
  strided["STRIDE"] = "(4, 2)";
  check("neighborhood2d", strided, {{5, 4}, {3, 2}});
  std::map<std::string, std::string> dilated = small;
  dilated["DILATION"] = "(2, 3)";
  check("neighborhood2d", dilated, {{5, 1}, {1, 1}, {0, 1}}); // rows of one remainder are an axis
  dilated["DILATION"] = "(2, 1)";
  check("neighborhood2d", dilated, {{5, 1}, {1, 1}, {3, 1}});
  dilated["HEIGHT"] = "13";
  check("neighborhood2d", dilated, {{0, 1}, {3, 1}}); // remainders have different numbers of rows
  std::map<std::string, std::string> causal = small;
  causal["CAUSAL"] = "(True, False)";
  check("neighborhood2d", causal, {{5, 1}, {3, 1}});
  check("neighborhood3d", {{"FRAMES", "4"}, {"HEIGHT", "6"}, {"WIDTH", "5"}, {"WINDOW", "(3, 3, 3)"}},
        {{3, 1}, {3, 1}, {3, 1}});
  check("joint_image", {{"HEIGHT", "7"}, {"WIDTH", "8"}, {"TEXT", "5"}, {"WINDOW", "3"}}, {{3, 1}, {3, 1}});
  check("shifted_window", {{"HEIGHT", "8"}, {"WIDTH", "8"}, {"WINDOW", "4"}, {"SHIFT", "2"}}, {{4, 1}, {4, 1}});
}

TEST_CASE("kernels by boxes have nothing to gain, or more to ask", "[grid_kernel]") {
  const auto isNone = [](const std::string& text) { return !kernelOf(traced(text)); };
  const std::string near = "abs(kx - qx) <= 2";
  CHECK_FALSE(isNone(maskText("16", "16", 1, near)));
  CHECK(isNone(maskText("16", "16", 1, "kx * qx % 3 == 0")));   // no box
  CHECK(isNone(maskText("16", "16", 1, "(kx + qx) % 3 == 0"))); // all keys of every third
  CHECK(isNone(maskText("16", "16", 1, "kx <= 7")));            // no coordinates of queries
  CHECK(isNone("def mask_mod(b, h, q_idx, kv_idx):\n  return q_idx >= kv_idx\n"));
  CHECK(isNone("from attnc import grid\nrows = grid(4, 4)\nline = grid(16)\ndef mask_mod(b, h, q_idx, kv_idx):\n"
               "  return abs(line.coords(kv_idx)[0] - rows.coords(q_idx)[0]) <= 2\n")); // of other numbers of axes
}

TEST_CASE("kernels by boxes: what bounds no axis is a box of all keys, for kernels that go by lists", "[grid_kernel]") {
  const char* const crissCross = "(ky == qy) | (kx == qx)";
  const ir::Module mod = traced(maskText("5, 7", "5, 7", 2, crissCross));
  const GridKernel kernel = take(kernelOf(mod));
  CHECK_FALSE(kernel.isBounded);
  CHECK_FALSE(kernel.boxIsMask);
  CHECK_FALSE(kernel.beside);
  REQUIRE(kernel.axes.size() == 2);
  CHECK_FALSE(kernel.axes[0].span);
  CHECK(kernel.axes[0].stride == 1);
  CHECK(analysis::gridBox(kernel.module)->rest == kernel.module.output(ir::kMask));
  checkKernel(mod, kernel, {{"w", 1}, {"m", 1}});
  const auto of = [](int axes, const std::string& expression) {
    const std::string extents = axes == 2 ? "16, 24" : "4, 16, 24";
    return kernelOf(traced(maskText(extents, extents, axes, expression)));
  };
  const auto tiles = take(of(3, "(qz // 2 + qy // 8 + qx // 4) * (kz // 2 + ky // 8 + kx // 12) % 5 == 0"));
  CHECK(tiles.axes[0].stride == 2);
  CHECK(tiles.axes[1].stride == 8);
  CHECK(tiles.axes[2].stride == 4);
  CHECK(of(2, "(abs(ky - qy) <= 1) & ((kx == qx) | (ky == qy))")->isBounded);
  CHECK_FALSE(of(2, "(ky == qy) | (ky % 3 == qx)"));                        // one coordinate of keys
  CHECK_FALSE(of(2, "(ky == qy) | (kx == qx) | ~queries.contains(q_idx)")); // tokens outside the grid
}

TEST_CASE("kernels by boxes: tokens beside the grids", "[grid_kernel]") {
  using passes::Beside;
  const std::string near = "(abs(ky - qy) <= 1) & (abs(kx - qx) <= 2)", on = "queries.contains(q_idx)",
                    keyOn = "keys.contains(kv_idx)";
  struct Case {
    std::string queries, keys, expression;
    Beside key, query, both;
  };
  const Case cases[] = {
      // Joint attention.
      {"5, 7, before=4", "5, 7, before=4", near + " | ~" + on + " | ~" + keyOn, Beside::All, Beside::All, Beside::All},
      {"5, 7", "5, 7", near + " | ~" + on + " | ~" + keyOn, Beside::All, Beside::All, Beside::All}, // behind the image
      {"w, m, before=m", "m, w, before=w", near + " | ~" + on + " | ~" + keyOn, Beside::All, Beside::All, Beside::All},
      // Text sees only text; registers see all, and are not seen; tokens outside the grid see nothing.
      {"5, 7, before=4", "5, 7, before=2", "(" + near + " & " + on + ") | ~" + keyOn, Beside::All, Beside::None,
       Beside::All},
      {"5, 7, before=4", "5, 7, before=2", "torch.where(" + on + ", " + near + ", ~" + keyOn + ")", Beside::Asks,
       Beside::None, Beside::All},
      {"5, 7, before=4", "5, 7, before=4", "(" + near + " | ~" + on + ") & " + keyOn, Beside::None, Beside::All,
       Beside::None},
      {"5, 7", "5, 7", near + " & " + on + " & " + keyOn, Beside::None, Beside::None, Beside::None},
      // By the coordinates of text; causal text.
      {"5, 7, before=4", "5, 7, before=4", near, Beside::Asks, Beside::Asks, Beside::Asks},
      {"5, 7, before=4", "5, 7, before=4", "torch.where(" + on + ", " + near + " | ~" + keyOn + ", kv_idx <= q_idx)",
       Beside::All, Beside::Asks, Beside::Asks},
  };
  for (const Case& c : cases) {
    INFO(c.queries << " / " << c.keys << ": " << c.expression);
    const ir::Module mod =
        traced(maskText(c.queries, c.keys, 2, c.expression) +
               "def score_mod(score, b, h, q_idx, kv_idx):\n"
               "  (qy, qx), (ky, kx) = queries.coords(q_idx), keys.coords(kv_idx)\n"
               "  return score + qy * 8 + qx - ky * 5 + kx + torch.where(keys.contains(kv_idx), 1, 3)\n");
    const GridKernel kernel = take(kernelOf(mod));
    REQUIRE(kernel.beside);
    CHECK(kernel.beside->key == c.key);
    CHECK(kernel.beside->query == c.query);
    CHECK(kernel.beside->both == c.both);
    checkKernel(mod, kernel, {{"w", 3}, {"m", 4}});
  }
  const auto means = [](const std::string& queries, const std::string& keys, const std::string& expression) {
    const std::optional<GridKernel> kernel = kernelOf(traced(maskText(queries, keys, 1, expression)));
    return kernel && kernel->beside;
  };
  CHECK_FALSE(means("16", "16", "abs(kx - qx) <= 2"));
  CHECK(means("16, before=3", "16", "abs(kx - qx) <= 2"));
  CHECK(means("16", "16, before=m", "abs(kx - qx) <= 2"));
  CHECK(means("16", "16", "(abs(kx - qx) <= 2) & keys.contains(kv_idx)"));
}

TEST_CASE("kernels by boxes: what is no box is asked of each key", "[grid_kernel]") {
  for (const char* expression :
       {"(abs(kx - qx) <= 5) & ((kx + qx) % 3 != 0)", "(abs(kx - qx) <= 5) & (kv_idx != q_idx)"}) {
    INFO(expression);
    const ir::Module mod = traced(maskText("32", "32", 1, expression));
    const GridKernel kernel = take(kernelOf(mod));
    CHECK(analysis::gridBox(kernel.module)->rest);
    checkKernel(mod, kernel, {{"w", 1}, {"m", 1}});
    CHECK(kernel.axes[0].span == 11);
  }
  const ir::Module dilated = traced(maskText("33", "33", 1, "(abs(kx - qx) <= 6) & (kx % 2 == qx % 2)"));
  const GridKernel kernel = take(kernelOf(dilated));
  CHECK(analysis::gridBox(kernel.module)->axes[0].step);
  checkKernel(dilated, kernel, {{"w", 1}, {"m", 1}});
}

TEST_CASE("box kernels number captures and extents as the mod's other kernels do", "[passes]") {
  const ir::Module before =
      traced("w: int\nslopes: f32[Heads, Rows]\nbias: f32[Rows]\nm: int\nfrom attnc import grid\nimage = grid(30, 40)\n"
             "def score_mod(score, b, h, q_idx, kv_idx):\n  y, x = image.coords(kv_idx)\n"
             "  return score + bias[q_idx] + slopes[h, y] * m + m * w\n"
             "def mask_mod(b, h, q_idx, kv_idx):\n  (y, x), (ky, kx) = image.coords(q_idx), image.coords(kv_idx)\n"
             "  return (abs(y - ky) <= m) & (abs(x - kx) <= w)\n");
  const auto namesOf = [](const ir::Module& module) {
    std::vector<std::string> names = module.dims;
    for (const ir::TensorCapture& tensor : module.tensors) names.push_back(tensor.name);
    for (const ir::ScalarCapture& scalar : module.scalars) names.push_back(scalar.name);
    return names;
  };
  ir::Module like = before;
  REQUIRE(passes::runPipeline(like));
  std::swap(like.scalars[0], like.scalars[1]); // an order that neither walk gives
  std::swap(like.tensors[0], like.tensors[1]);
  std::swap(like.dims[ir::kBuiltinDims], like.dims[ir::kBuiltinDims + 1]);
  const auto kernel = take(take(passes::gridKernel(before, like)));
  CHECK(namesOf(kernel.module) == namesOf(like));
  const auto gradient = take(passes::withGradient(kernel));
  CHECK(namesOf(gradient) == namesOf(like));
}
