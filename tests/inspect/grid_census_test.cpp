// What a box kernel of a grid visits, and which pairs live, compared with counts of every pair. Needs no GPU.
#include "tests/api/settled.h"

#include "api/mod_impl.h"
#include "families/grids/grid_plan.h"
#include "helpers/plan_parts.h"
#include "inspect/grid_census.h"
#include "ir/bind.h"
#include "ir/interpreter.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <random>
#include <tuple>

using namespace attnc;
using namespace attnc::test;

TEST_CASE("the census of a grid counts tokens beside it, of both passes", "[api][grid]") {
  const std::string near = "(abs(ky - qy) <= 2) & (abs(kx - qx) <= 3)", on = "tokens.contains(q_idx)",
                    keyOn = "tokens.contains(kv_idx)";
  struct Mask {
    std::string text;
    bool key, query; // whether keys outside the grid are seen, and queries outside it see the grid
  };
  for (const auto& [mask, seesText, textSees] : {Mask{near + " | ~" + on + " | ~" + keyOn, true, true},
                                                 {near + " & " + on + " | ~" + keyOn, true, false},
                                                 {"(" + near + " | ~" + on + ") & " + keyOn, false, true},
                                                 {near + " & " + on + " & " + keyOn, false, false}})
    for (auto [text, behind, kind] : {std::tuple<int64_t, int64_t, KernelKind>(7, 0, KernelKind::Forward),
                                      {0, 131, KernelKind::Forward},
                                      {150, 3, KernelKind::Forward},
                                      {7, 0, KernelKind::Backward},
                                      {0, 131, KernelKind::Backward},
                                      {150, 3, KernelKind::Backward}}) {
      const bool ownsKeys = kind == KernelKind::Backward;
      INFO(mask << ", " << text << " before, " << behind << " behind, " << (ownsKeys ? "backward" : "forward"));
      const Mod m = mod(
          ("from attnc import grid\nTEXT: int\ntokens = grid(13, 17, before=TEXT)\n"
           "def mask_mod(b, h, q_idx, kv_idx):\n  (qy, qx), (ky, kx) = tokens.coords(q_idx), tokens.coords(kv_idx)\n"
           "  return " +
           mask + "\n")
              .c_str());
      const int64_t tokens = 13 * 17 + text + behind;
      const ProblemShape problem{.batch = 2, .qHeads = 3, .kvHeads = 3, .qLen = tokens, .kvLen = tokens};
      Captures captures;
      captures.set("TEXT", text);
      // Of head dim 128, where a step has another number of tokens than a tile.
      const KernelOptions options{.kind = kind, .family = Family::Grid, .arch = "sm_90a", .headDim = 128};
      const Mod derived = take(derive(m, options));
      auto plan = take(test::choosePlan(derived, options));
      auto bindings = take(ir::bind(plan.grid->module, captures, problem)),
           ofMod = take(ir::bind(m.module(), captures, problem));
      plan::LaunchOperands operands;
      operands.problem = problem;
      operands.grids = plan::gridsOf(*plan.grid, ofMod);
      REQUIRE(plan::checkGrids(operands, true));
      const plan::Stage& stage = plan::walkingStage(plan);
      const codegen::Config& config = stage.config;
      const GridCensus census = takeGridCensus(plan.grid->module, bindings, config, *operands.grids, problem);
      const ir::Interpreter interpreter(m.module(), ofMod);
      double live = 0;
      for (int64_t q = 0; q < tokens; ++q)
        for (int64_t kv = 0; kv < tokens; ++kv) live += interpreter.mask(0, 0, q, kv);
      CHECK(census.live == 6 * live);
      CHECK(census.tiles ==
            6 * double(ownsKeys ? plan::keyBoxesOf(stage, operands) : plan::queryBoxesOf(stage, operands)));
      CHECK(census.visited >= census.live);
      CHECK(census.visited <= census.steps * config.blockM * config.blockN);
      if (!ownsKeys) CHECK(census.visited >= census.tiles * config.blockM * config.blockN);
      // Steps over text, and the tiles of text, are added to those of the image.
      const auto ceilDiv = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
      const ProblemShape image{.batch = 2, .qHeads = 3, .kvHeads = 3, .qLen = 13 * 17, .kvLen = 13 * 17};
      captures.set("TEXT", int64_t(0));
      auto ofImage = take(ir::bind(plan.grid->module, captures, image));
      plan::LaunchOperands::Grids alone = *operands.grids;
      alone.before->queries = alone.before->keys = 0;
      const GridCensus base = takeGridCensus(plan.grid->module, ofImage, config, alone, image);
      const int64_t step = ownsKeys ? config.blockM : config.blockN,
                    ofOneText = ceilDiv(text, step) + ceilDiv(behind, step);
      const int64_t toText = (ownsKeys ? textSees : seesText) ? ofOneText : 0;
      int64_t boxes = 1;
      for (size_t axis = 0; axis < 3; ++axis)
        boxes *= ceilDiv(alone.keys[axis], ownsKeys ? census.queryBox[axis] : census.keyBox[axis]);
      const bool seesBoxes = ownsKeys ? seesText : textSees;
      int64_t ofText = (seesText ? ofOneText : 0) + (seesBoxes ? boxes : 0);
      if (!ownsKeys) ofText = std::max<int64_t>(ofText, 1); // no tile of queries goes without a step
      CHECK(census.steps == base.steps + base.tiles * double(toText) + (census.tiles - base.tiles) * double(ofText));
    }
}

TEST_CASE("the census of a grid counts what kernels visit, and all pairs that live", "[api][grid]") {
  std::mt19937 random{9};
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  for (int round = 0; round < 12; ++round) {
    const int axes = 1 + round % 3;
    const bool differ = round % 2; // by head
    const char* const windows[] = {"", "(abs(ky - qy) <= 2) & ", "(kz <= qz) & (abs(ky - qy) <= 2) & "};
    const Mod m = gridMod(axes, std::string(windows[axes - 1]) +
                                    (differ ? "(abs(kx - qx) <= 2 + h * 3)" : "(kx > qx - 5) & (kx < qx)"));
    plan::LaunchOperands::Grids grids{{1, 1, 1}, {1, 1, 1}};
    for (int axis = 3 - axes; axis < 3; ++axis)
      grids.queries[size_t(axis)] = grids.keys[size_t(axis)] = draw(1, axes == 1 ? 300 : 21);
    const int64_t tokens = grids.keys[0] * grids.keys[1] * grids.keys[2];
    const ProblemShape problem{.batch = 2, .qHeads = 3, .kvHeads = 3, .qLen = tokens, .kvLen = tokens};
    Captures captures;
    captures.set("Z", grids.keys[0]).set("Y", grids.keys[1]).set("X", grids.keys[2]);
    const bool byConsumers = round % 4 < 2; // which pass over boxes of one axis, and work on one at least
    auto plan =
        take(test::choosePlan(m, {.family = Family::Grid, .arch = byConsumers ? "sm_90a" : "sm_80", .headDim = 64}));
    auto bindings = take(ir::bind(plan.grid->module, captures, problem)),
         ofMod = take(ir::bind(m.module(), captures, problem));
    const codegen::Config& config = plan.stages.front().config;
    const GridCensus census = takeGridCensus(plan.grid->module, bindings, config, grids, problem);
    double live = 0;
    const ir::Interpreter interpreter(m.module(), ofMod);
    for (int64_t h = 0; h < problem.qHeads; ++h)
      for (int64_t q = 0; q < tokens; ++q)
        for (int64_t kv = 0; kv < tokens; ++kv) live += interpreter.mask(0, h, q, kv);
    CHECK(census.live == 2 * live);
    CHECK_FALSE(census.isEstimate);
    double tiles = 6;
    for (size_t axis = 0; axis < 3; ++axis)
      tiles *= double((grids.queries[axis] + census.queryBox[axis] - 1) / census.queryBox[axis]);
    CHECK(census.tiles == tiles);
    CHECK(census.steps >= census.tiles);
    CHECK(census.visited >= census.live);
    CHECK(census.visited <= census.steps * config.blockM * config.blockN);
    if (byConsumers) CHECK(census.visited >= census.tiles * config.blockM * config.blockN);
  }
}
