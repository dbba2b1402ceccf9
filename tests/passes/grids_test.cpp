// Coordinates on grids through the passes: kept or lowered, a mod means the same, and what analyses say of them holds.
#include "analysis/intervals.h"
#include "analysis/monotony.h"
#include "helpers/same_meaning.h"
#include "ir/bind.h"
#include "ir/hash.h"
#include "ir/printer.h"
#include "ir/reader.h"
#include "passes/pipeline.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace attnc;

namespace {

ir::Module moduleOf(const std::string& text) { return take(ir::read(text)); }

/// All coordinates of a grid, of q_idx, kv_idx and a position that may be negative.
std::string allCoordinates(const std::string& grid, int axes) {
  std::string text = "scalar w: i32\nscalar t: i32\n" + grid + "\n%n = sub i32 %q_idx, %kv_idx\n";
  for (const char* position : {"q_idx", "kv_idx", "n"}) {
    for (int axis = 0; axis < axes; ++axis)
      text += fmt::format("%{0}{1} = coord i32 grid0.{1}, %{0}\noutput at_{0}_{1}(q_idx, kv_idx) -> %{0}{1}\n",
                          position, axis);
    text += fmt::format("%{0}in = in_grid bool grid0, %{0}\noutput in_{0}(q_idx, kv_idx) -> %{0}in\n", position);
  }
  return text;
}

const std::pair<const char*, int> kGrids[] = {
    {"grid [6]", 1},        {"grid [@w] before 4", 1},        {"grid [5, 4]", 2},     {"grid [@w, @w] before @t", 2},
    {"grid [2, 3, @w]", 3}, {"grid [@w, 1, 4] before @t", 3}, {"grid [#Q_LEN, 2]", 2}};

} // namespace

TEST_CASE("coordinates mean the same lowered and kept", "[grids]") {
  for (auto [grid, axes] : kGrids)
    for (auto [w, t] : {std::pair(1, 0), std::pair(3, 5), std::pair(7, 2)}) {
      const ir::Module traced = moduleOf(allCoordinates(grid, axes));
      INFO(ir::print(traced) << "w " << w << ", t " << t);
      Captures captures;
      captures.set("w", w).set("t", t);
      for (bool keepsGrids : {false, true}) {
        ir::Module module = traced;
        REQUIRE(passes::runPipeline(module, {.verify = true, .keepsGrids = keepsGrids}));
        CHECK(ir::uses(module, ir::Op::Coord) == keepsGrids);
        CHECK(ir::uses(module, ir::Op::InGrid) == keepsGrids);
        test::requireSameMeaning(traced, module, captures, {.qLen = 45, .kvLen = 33}, 300);
        ir::Module pinned = traced;
        REQUIRE(passes::runPipeline(pinned, {.verify = true, .keepsGrids = keepsGrids, .pins = {{"w", w}, {"t", t}}}));
        test::requireSameMeaning(traced, pinned, captures, {.qLen = 45, .kvLen = 33}, 300);
      }
    }
}

TEST_CASE("ranges and directions of coordinates hold", "[grids]") {
  for (auto [grid, axes] : kGrids)
    for (auto [w, t] : {std::pair(1, 0), std::pair(3, 5)}) {
      const ir::Module module = moduleOf(allCoordinates(grid, axes));
      Captures captures;
      captures.set("w", w).set("t", t);
      const auto bindings = take(ir::bind(module, captures, {.qLen = 20, .kvLen = 20}));
      analysis::Intervals intervals(module);
      analysis::Monotony monotony(module, intervals);
      INFO(ir::print(module));
      for (const ir::Output& output : module.outputs()) {
        const ir::Evaluator evaluator(module, bindings, output.value);
        const analysis::Bounds bounds = intervals.of(output.value);
        const bool isRow = ir::paramsOf(module, output.value) == ir::ParamSet{ir::ParamKind::QIdx};
        int64_t last = INT64_MIN;
        for (int64_t q = 0; q < 20; ++q)
          for (int64_t kv = 0; kv < 20; ++kv) {
            const int64_t value = evaluator.evaluate(0, 0, 0, q, kv).integer;
            if (!bounds.range.contains(value)) FAIL(output.name << " is " << value);
            for (const analysis::LinearForm& form : bounds.upper) {
              int64_t upper = form.constant;
              for (const auto& term : form.terms) upper += term.coefficient * bindings.dims[term.dim];
              if (value > upper) FAIL(output.name << " is " << value << ", above " << analysis::toString(form, module));
            }
            if (isRow && monotony.of(output.value) == analysis::Direction::Up && value < last)
              FAIL(output.name << " falls");
            last = value;
          }
      }
    }
}

TEST_CASE("coordinates are known to lie on their axes, and scalars of grids to be extents", "[grids]") {
  const ir::Module module =
      moduleOf("scalar w: i32\nscalar t: i32\ngrid [@w, 7] before @t\n"
               "%0 = coord i32 grid0.0, %kv_idx\n%1 = coord i32 grid0.1, %kv_idx\n"
               "%2 = add i32 @w, @t\noutput a(kv_idx) -> %0\noutput b(kv_idx) -> %1\noutput c() -> %2\n");
  analysis::Intervals intervals(module);
  CHECK(intervals.range(*module.output("a")).within(-ir::kMaxExtent, ir::kMaxExtent));
  CHECK(intervals.range(*module.output("b")).within(0, 6));
  CHECK(intervals.range(*module.output("c")).within(1, 2 * ir::kMaxExtent));
}

TEST_CASE("neither the order of grids nor their captures' count in the hash", "[grids]") {
  const std::string body = "%0 = coord i32 grid0.1, %q_idx\n%1 = coord i32 grid1.0, %kv_idx\n%2 = le i32 %0, %1\n"
                           "output mask(b, h, q_idx, kv_idx) -> %2\n";
  std::string other = body;
  other.replace(other.find("grid0"), 5, "grid#");
  other.replace(other.find("grid1"), 5, "grid0");
  other.replace(other.find("grid#"), 5, "grid1");
  ir::Module a = moduleOf("scalar w: i32\nscalar v: i32\nscalar t: i32\nscalar u: i32\n"
                          "grid [@w, @v] before @u\ngrid [@v, 3] before @t\n" +
                          body);
  ir::Module b = moduleOf("scalar u: i32\nscalar t: i32\nscalar v: i32\nscalar w: i32\n"
                          "grid [@v, 3] before @t\ngrid [@w, @v] before @u\n" +
                          other);
  for (ir::Module* module : {&a, &b}) REQUIRE(passes::runPipeline(*module, {.keepsGrids = true}));
  CHECK(ir::canonicalHash(a) == ir::canonicalHash(b));
}
