// How often a preparation plans. Needs no GPU.
#include "families/catalog.h"
#include "tests/api/settled.h"

#include <catch2/catch.hpp>

using namespace attnc;
using namespace attnc::test;

namespace {

/// Checks that each kernel of a preparation was planned once.
template <class Settle> void checkPlans(Settle settle) {
  const uint64_t before = plan::plansMade;
  const Preparation preparation = settle();
  CHECK(plan::plansMade - before == preparation.kernels().size());
}

} // namespace

TEST_CASE("a kernel is planned once, however many families are asked for it", "[plan]") {
  Case c;
  SECTION("any") {}
  SECTION("a family that passes over the layout") { c.operands.k.stride[2] = 65; }
  SECTION("a family that was asked for") { c.options.family = Family::Sm80; }
  SECTION("a tile that was asked for") { c.options.tile = "128x64x8"; }
  SECTION("few queries, which may go to a decode kernel") {
    c.operands.q = tensor(2, 8, 1, 64);
    c.outputs.out = tensor(2, 8, 1, 32);
  }
  for (const Mod& m : {Mod::identity(), mod("q_idx >= kv_idx"), mod(kDocument)})
    checkPlans([&] { return settled(m, c); });
  if (c.options.tile.empty() && c.operands.q.shape[2] > 1)
    for (const Mod& m : {mod("q_idx >= kv_idx"), mod(kDocument)}) checkPlans([&] { return trained(m, c); });
}

TEST_CASE("a kernel by boxes of a grid is planned once, with lists of boxes and without", "[plan]") {
  Case c;
  checkPlans([&] { return settled(mod(kNeighborhood), c); });
  checkPlans([&] { return trained(mod(kNeighborhood), c); });
}

TEST_CASE("a plan of a request that has no such tile is refused", "[plan]") {
  Case c;
  c.options.tile = "17x3x1";
  CHECK_THAT(errorOf(Mod::identity(), c), Catch::Contains("has no tile `17x3x1`"));
}
