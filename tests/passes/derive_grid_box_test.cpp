// Boxes of keys against mask_mod itself: each query with each key of small grids, for every mod of the library that has
// a grid, for many forms of masks, and for random ones.
#include "analysis/grid_box.h"
#include "helpers/derived_by.h"
#include "helpers/traced.h"
#include "ir/bind.h"
#include "ir/interpreter.h"
#include "ir/printer.h"
#include "ir/semantics.h"
#include "passes/grids/beside_grid.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <fstream>
#include <random>
#include <sstream>

using namespace attnc;
using analysis::GridBox;
using passes::Beside;
using test::derivedBy;

namespace {

ir::Module gridModule(const std::string& text, const std::map<std::string, std::string>& defines = {},
                      const std::vector<std::string>& captures = {}) {
  return test::piped(text, {.verify = true, .keepsGrids = true}, {.defines = defines, .captures = captures});
}

std::string libraryText(const std::string& name) {
  std::ifstream in(ATTNC_SOURCE_DIR "/dsl/mods/" + name + ".py");
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

/// A mask of the coordinates qy, qx, ky, kx and of the scalars n and m, over an image behind 3 tokens.
std::string maskText(const std::string& expression) {
  return "HEIGHT: int\nWIDTH: int\nn: int\nm: int\nflag: bool\nimport torch\nimage = grid(HEIGHT, WIDTH, before=3)\n"
         "def mask_mod(b, h, q_idx, kv_idx):\n"
         "  qy, qx = image.coords(q_idx)\n  ky, kx = image.coords(kv_idx)\n"
         "  q_in, k_in = image.contains(q_idx), image.contains(kv_idx)\n"
         "  return " +
         expression + "\n";
}

struct Shape {
  ProblemShape problem;
  std::map<std::string, int64_t> scalars;
};

/// Fails where the box and the mask disagree about two tokens on their grids. Returns the number of pairs.
int checkBox(const ir::Module& derived, const GridBox& box, const Shape& shape) {
  Captures captures;
  std::vector<char> flags = {0, 1, 0, 1};
  for (const ir::ScalarCapture& scalar : derived.scalars) {
    const auto given = shape.scalars.find(scalar.name);
    const int64_t value = given == shape.scalars.end() ? 2 : given->second;
    if (scalar.type == ir::Type::Bool)
      captures.set(scalar.name, bool(value & 1));
    else
      captures.set(scalar.name, value);
  }
  std::vector<float> floats(4096);
  for (const ir::TensorCapture& tensor : derived.tensors) {
    if (tensor.dtype == DType::Bool)
      captures.set(tensor.name, TensorView::contiguous(flags.data(), DType::Bool, {shape.problem.qHeads}));
    else
      captures.set(tensor.name,
                   TensorView::contiguous(floats.data(), DType::F32,
                                          {shape.problem.qHeads, tensor.shape[1].value, tensor.shape[2].value}));
  }
  auto bindings = take(ir::bind(derived, captures, shape.problem));
  ir::Module module = derived;
  const auto evaluator = [&](std::optional<ir::Value> value) {
    return value ? std::optional(ir::Evaluator(module, bindings, *value)) : std::nullopt;
  };
  const auto of = [&](ir::Op op, ir::ParamKind param, unsigned grid, unsigned axis) {
    const ir::Type type = op == ir::Op::Coord ? ir::Type::I32 : ir::Type::Bool;
    return module.make(op, type, {module.param(param)}, ir::GridAxis{grid, axis}.attr());
  };
  struct Axis {
    ir::Evaluator coordinate;
    std::optional<ir::Evaluator> begin, end, step, phase;
  };
  std::vector<Axis> axes;
  for (unsigned axis = 0; axis < box.axes.size(); ++axis) {
    const GridBox::Axis& from = box.axes[axis];
    const ir::Value coordinate = of(ir::Op::Coord, ir::ParamKind::KvIdx, box.keys, axis);
    axes.push_back({ir::Evaluator(module, bindings, coordinate), evaluator(from.begin), evaluator(from.end),
                    evaluator(from.step), evaluator(from.phase)});
  }
  const ir::Evaluator keyIn(module, bindings, of(ir::Op::InGrid, ir::ParamKind::KvIdx, box.keys, 0));
  const std::optional<ir::Evaluator> queryIn =
      box.queries ? evaluator(of(ir::Op::InGrid, ir::ParamKind::QIdx, *box.queries, 0)) : std::nullopt;
  const std::optional<ir::Evaluator> rest = evaluator(box.rest);
  const ir::Interpreter interpreter(module, bindings);
  int pairs = 0;
  for (int64_t h = 0; h < shape.problem.qHeads; ++h)
    for (int64_t q = 0; q < shape.problem.qLen; ++q)
      for (int64_t kv = 0; kv < shape.problem.kvLen; ++kv) {
        const auto at = [&](const ir::Evaluator& value) { return value.evaluate(0, 0, h, q, kv).integer; };
        if (!at(keyIn) || (queryIn && !at(*queryIn))) continue;
        bool isInside = !rest || at(*rest);
        for (const Axis& axis : axes) {
          const int64_t k = at(axis.coordinate);
          if (axis.begin) isInside = isInside && at(*axis.begin) <= k && k < at(*axis.end);
          if (!axis.step) continue;
          const int32_t step = int32_t(at(*axis.step));
          const int64_t phase = at(*axis.phase);
          if (phase < 0 || phase >= step) FAIL("phase " << phase << " of step " << step);
          isInside = isInside && ir::semantics::floorMod(int32_t(k), step) == phase;
        }
        ++pairs;
        INFO("h=" << h << " q=" << q << " kv=" << kv);
        if (interpreter.mask(0, h, q, kv) != isInside) FAIL("the box is wrong");
      }
  return pairs;
}

/// The box of a mask, compared on all shapes.
GridBox checkMask(const std::string& expression, bool isExact = true) {
  const ir::Module derived = derivedBy("derive-grid-box", gridModule(maskText(expression)));
  INFO(ir::print(derived));
  const GridBox box = take(analysis::gridBox(derived));
  CHECK(box.rest.has_value() == !isExact);
  for (auto [height, width] : {std::pair(5, 7), std::pair(1, 9), std::pair(6, 1), std::pair(4, 4)})
    for (int64_t n : {0, 1, 2, 3, 50, -1, INT32_MAX, INT32_MIN})
      for (int64_t m : {1, 2, 3}) {
        INFO(height << " x " << width << ", n " << n << ", m " << m);
        CHECK(checkBox(derived, box,
                       {{.qHeads = 2, .kvHeads = 1, .qLen = 3 + 36 + 2, .kvLen = 3 + 36 + 2},
                        {{"HEIGHT", height}, {"WIDTH", width}, {"n", n}, {"m", m}, {"flag", m}}}) > 0);
      }
  return box;
}

void checkLibrary(const std::string& name, const std::map<std::string, std::string>& defines,
                  const ProblemShape& problem, bool isExact = true) {
  INFO(name);
  const ir::Module derived = derivedBy("derive-grid-box", gridModule(libraryText(name), defines));
  INFO(ir::print(derived));
  const GridBox box = take(analysis::gridBox(derived));
  CHECK(box.rest.has_value() == !isExact);
  for (const GridBox::Axis& axis : box.axes) CHECK(axis.begin);
  CHECK(checkBox(derived, box, {problem, {}}) > 0);
}

} // namespace

TEST_CASE("neighborhoods, windows and blocks are boxes of keys, and these are exact", "[grid_box]") {
  for (const char* expression :
       {"(abs(qy - ky) <= 2) & (abs(qx - kx) <= 3)", "(abs(qy - ky) <= n) & (abs(qx - kx) <= m)",
        "(ky >= min(max(qy - 1, 0), HEIGHT - 3)) & (ky < min(max(qy - 1, 0), HEIGHT - 3) + 3)",
        "(qy >= ky) & (abs(qx - kx) <= 1)",
        "(qy // 3 == ky // 3) & (qx // max(min(m, 9), 1) == kx // max(min(m, 9), 1))",
        "((qx - 2) // 4 == (kx - 2) // 4) & ((qy - 1) // 3 == (ky - 1) // 3)",
        "(ky % 2 == qy % 2) & (abs(ky - qy) <= 4)", "((ky - qy) % max(m, 1) == 0) & (kx % 3 == 1)",
        "(kx + qx) % 3 == 0", "(ky + 1) % 3 == qx % 3", "ky < n", "(ky == qy) & (kx < qx)", "kx * 2 <= qx",
        "torch.where(h == 0, abs(qy - ky) <= 1, abs(qx - kx) <= 1) | ~q_in | ~k_in",
        "(torch.where(flag, ky <= qy, ky >= qy)) & (kx <= m)", "~((ky < qy - 1) | (ky > qy + 1))",
        "(qx < 3) & (ky <= qy)", "(qy % 2 == 1) & (abs(qx - kx) <= 1)", "((qy >= ky) & (qx >= kx)) | ~k_in"}) {
    INFO(expression);
    checkMask(expression);
  }
}

TEST_CASE("what is no box is left beside one", "[grid_box]") {
  const GridBox circle = checkMask("((qy - ky) * (qy - ky) + (qx - kx) * (qx - kx) <= 9) & (abs(qy - ky) <= 3)", false);
  CHECK(circle.axes[0].begin);
  CHECK_FALSE(circle.axes[1].begin);
  checkMask("(ky <= qy) & (kv_idx <= q_idx)", false);
  checkMask("(ky <= qy) & ((kx == qx) | (ky == 0))", false);
  for (const char* expression : {"q_idx >= kv_idx", "(ky == 0) | (kx == 0)", "(ky + kx) % 2 == 0", "ky != qy",
                                 "ky % 3 == qx", "(ky + 1) % 3 == qx"}) {
    INFO(expression);
    CHECK_FALSE(analysis::gridBox(derivedBy("derive-grid-box", gridModule(maskText(expression)))));
  }
  // Keys of two grids.
  CHECK_FALSE(analysis::gridBox(
      derivedBy("derive-grid-box", gridModule("one = grid(4, 5)\nother = grid(5, 4)\n"
                                              "def mask_mod(b, h, q_idx, kv_idx):\n"
                                              "  same = other.coords(kv_idx)[0] == one.coords(q_idx)[0]\n"
                                              "  return (one.coords(kv_idx)[0] == 1) & same\n"))));
}

TEST_CASE("grids of queries and of keys may differ", "[grid_box]") {
  const ir::Module derived =
      derivedBy("derive-grid-box", gridModule("fine = grid(6, 8)\ncoarse = grid(3, 4)\n"
                                              "def mask_mod(b, h, q_idx, kv_idx):\n"
                                              "  q, k = fine.coords(q_idx), coarse.coords(kv_idx)\n"
                                              "  return (abs(q[0] // 2 - k[0]) <= 1) & (q[1] // 2 == k[1])\n"));
  const GridBox box = take(analysis::gridBox(derived));
  CHECK(box.queries != box.keys);
  CHECK_FALSE(box.rest);
  CHECK(checkBox(derived, box, {{.qLen = 48, .kvLen = 12}, {}}) == 48 * 12);
}

TEST_CASE("the mods of the library on grids have exact boxes", "[grid_box]") {
  const ProblemShape image{.qLen = 63, .kvLen = 63};
  checkLibrary("neighborhood2d", {{"HEIGHT", "9"}, {"WIDTH", "7"}, {"WINDOW", "(3, 4)"}}, image);
  checkLibrary("neighborhood2d", {{"HEIGHT", "9"}, {"WIDTH", "7"}, {"WINDOW", "(3, 2)"}, {"DILATION", "(2, 3)"}},
               image);
  checkLibrary(
      "neighborhood2d",
      {{"HEIGHT", "9"}, {"WIDTH", "7"}, {"WINDOW", "(3, 5)"}, {"STRIDE", "(2, 4)"}, {"CAUSAL", "(True, False)"}},
      image);
  checkLibrary("neighborhood3d", {{"FRAMES", "3"}, {"HEIGHT", "4"}, {"WIDTH", "5"}, {"WINDOW", "(2, 3, 3)"}},
               {.qLen = 60, .kvLen = 60});
  checkLibrary("shifted_window", {{"HEIGHT", "8"}, {"WIDTH", "8"}, {"WINDOW", "4"}, {"SHIFT", "2"}},
               {.qHeads = 2, .kvHeads = 2, .qLen = 64, .kvLen = 64});
  checkLibrary("sparse_video", {{"FRAMES", "3"}, {"HEIGHT", "5"}, {"WIDTH", "4"}, {"TEXT", "6"}, {"NEAR_PIXELS", "1"}},
               {.qHeads = 2, .kvHeads = 2, .qLen = 66, .kvLen = 66});
  checkLibrary("joint_image", {{"HEIGHT", "7"}, {"WIDTH", "8"}, {"TEXT", "5"}, {"WINDOW", "3"}},
               {.qLen = 61, .kvLen = 61});
}

TEST_CASE("extents of the launch have the boxes that constants have", "[grid_box]") {
  struct Given {
    const char* name;
    std::map<std::string, std::string> defines;
    std::vector<std::vector<int64_t>> extents;
  };
  const Given all[] = {
      {"neighborhood2d", {{"WINDOW", "(3, 4)"}}, {{9, 7}, {3, 4}, {5, 12}}},
      {"neighborhood2d", {{"WINDOW", "(3, 2)"}, {"DILATION", "(2, 3)"}}, {{9, 7}, {6, 6}}},
      {"neighborhood2d", {{"WINDOW", "(5, 3)"}, {"STRIDE", "(2, 4)"}, {"CAUSAL", "(False, True)"}}, {{9, 7}, {5, 10}}},
      {"neighborhood3d", {{"WINDOW", "(3, 4, 4)"}, {"STRIDE", "(3, 2, 2)"}}, {{4, 5, 6}, {3, 4, 4}, {7, 4, 5}}},
      {"shifted_window", {{"WINDOW", "4"}, {"SHIFT", "2"}}, {{8, 8}, {5, 11}, {1, 3}}},
      {"joint_image", {{"WINDOW", "3"}, {"TEXT", "5"}}, {{5, 6}, {3, 7}}}};
  for (const Given& given : all) {
    INFO(given.name);
    std::vector<std::string> names = {"HEIGHT", "WIDTH"}, captures;
    if (given.extents[0].size() == 3) names.insert(names.begin(), "FRAMES");
    for (const std::string& name : names) captures.push_back(name + ": int");
    const ir::Module derived =
        derivedBy("derive-grid-box", gridModule(libraryText(given.name), given.defines, captures));
    INFO(ir::print(derived));
    const GridBox box = take(analysis::gridBox(derived));
    CHECK_FALSE(box.rest);
    for (const GridBox::Axis& axis : box.axes) CHECK(axis.begin);
    for (const std::vector<int64_t>& extents : given.extents) {
      Shape shape{{.qHeads = 2, .kvHeads = 2, .qLen = 1, .kvLen = 1}, {}};
      for (size_t i = 0; i < names.size(); ++i) {
        shape.scalars[names[i]] = extents[i];
        shape.problem.qLen *= extents[i];
      }
      shape.problem.kvLen = shape.problem.qLen += 6; // and text
      CHECK(checkBox(derived, box, shape) > 0);
    }
  }
}

TEST_CASE("windows of videos and of large images are boxes", "[grid_box]") {
  struct Given {
    const char* name;
    std::map<std::string, std::string> defines;
  };
  const Given all[] = {{"neighborhood2d", {{"WINDOW", "(80, 80)"}}},
                       {"neighborhood3d", {{"WINDOW", "(18, 24, 24)"}}},
                       {"neighborhood3d", {{"WINDOW", "(18, 24, 24)"}, {"STRIDE", "(16, 8, 8)"}}},
                       {"shifted_window", {{"WINDOW", "8"}, {"SHIFT", "4"}}}};
  for (const auto& [name, defines] : all)
    for (bool isOfLaunch : {false, true}) {
      std::map<std::string, std::string> given = defines;
      std::vector<std::string> captures;
      for (const char* extent : {"FRAMES", "HEIGHT", "WIDTH"}) {
        if (extent == std::string("FRAMES") && name != std::string("neighborhood3d")) continue;
        if (isOfLaunch)
          captures.push_back(extent + std::string(": int"));
        else
          given[extent] = extent == std::string("FRAMES") ? "30" : "256";
      }
      const ir::Module derived = derivedBy("derive-grid-box", gridModule(libraryText(name), given, captures));
      INFO(ir::print(derived));
      const GridBox box = take(analysis::gridBox(derived));
      CHECK_FALSE(box.rest);
      for (const GridBox::Axis& axis : box.axes) CHECK(axis.begin);
    }
}

TEST_CASE("what a mask says of tokens beside the grid is known where it is all or nothing", "[grid_box]") {
  const auto of = [](const char* expression) { return passes::besideGrid(gridModule(maskText(expression))); };
  const passes::BesideGrid joint = of("(abs(qy - ky) <= 2) | ~q_in | ~k_in");
  CHECK(joint.key == Beside::All);
  CHECK(joint.query == Beside::All);
  CHECK(joint.both == Beside::All);
  const passes::BesideGrid image = of("q_in & ((abs(qy - ky) <= 2) | ~k_in)");
  CHECK(image.key == Beside::All);
  CHECK(image.query == Beside::None);
  CHECK(image.both == Beside::None);
  const passes::BesideGrid alone = of("(abs(qy - ky) <= 2) & (q_in == k_in)");
  CHECK(alone.key == Beside::None);
  CHECK(alone.query == Beside::None);
  CHECK(alone.both == Beside::Asks);
}

TEST_CASE("boxes of random masks are exact, and what is left is all that is missing", "[grid_box]") {
  int found = 0;
  for (unsigned seed = 1; seed <= 150; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](std::vector<std::string> from) { return from[random() % from.size()]; };
    const auto number = [&] { return pick({"n", "m", "0", "1", "3", "-2", "HEIGHT", "HEIGHT - 2", "h"}); };
    const auto part = [&]() -> std::string {
      const std::string axis = pick({"y", "x"}), k = "k" + axis, q = pick({"q" + axis, "q" + axis, "qy", "qx"});
      const std::string compare = pick({"<=", "<", ">=", ">", "==", "!="});
      switch (random() % 8) {
      case 0: return fmt::format("(abs({} - {}) <= {})", q, k, number());
      case 1: return fmt::format("({} // {} {} {} // 2)", k, 1 + random() % 4, compare, q);
      case 2: return fmt::format("({} % {} == {} % 2)", k, 2 + random() % 2, q);
      case 3: return fmt::format("({} {} {})", q, compare, number());
      case 4: return fmt::format("({} {} {})", pick({"kx", "kv_idx", "kx + ky"}), compare, number());
      case 5: return fmt::format("(({} - {}) % m == {})", k, q, random() % 3);
      default: return fmt::format("({} + {} {} {})", k, number(), compare, q);
      }
    };
    std::string expression = part();
    for (unsigned more = random() % 4; more-- > 0;)
      expression =
          random() % 6 ? expression + " & " + part() : fmt::format("({} {} {})", expression, pick({"|", "&"}), part());
    INFO("seed " << seed << ": " << expression);
    const ir::Module derived = derivedBy("derive-grid-box", gridModule(maskText(expression)));
    const std::optional<GridBox> box = analysis::gridBox(derived);
    if (!box) continue;
    ++found;
    INFO(ir::print(derived));
    for (auto [height, width] : {std::pair(4, 5), std::pair(1, 6)})
      checkBox(derived, *box,
               {{.qHeads = 2, .kvHeads = 1, .qLen = 24, .kvLen = 24},
                {{"HEIGHT", height}, {"WIDTH", width}, {"n", int64_t(random() % 9) - 3}, {"m", 1 + random() % 3}}});
  }
  CHECK(found > 75);
}
