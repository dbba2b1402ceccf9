// Positions that are split into quotients and remainders.
#include "analysis/position_slices.h"
#include "helpers/traced.h"

using namespace attnc;
using namespace attnc::analysis;

namespace {

TokenCount count(int64_t constant, std::initializer_list<uint32_t> factors = {}) { return {constant, factors}; }

/// Returns the traced module, before any pass.
ir::Module traced(const std::string& mask) {
  return take(dsl::trace("w: int\ntext: int\ndef mask_mod(b, h, q_idx, kv_idx):\n    return " + mask + "\n", {}));
}

} // namespace

TEST_CASE("counts are multiplied and divided as products", "[position-slices]") {
  CHECK(times(count(4, {1}), count(3, {0})) == count(12, {0, 1}));
  CHECK_FALSE(times(count(1 << 20), count(1 << 20)));
  CHECK(over(count(12, {0, 1}), count(3, {1})) == count(4, {0}));
  CHECK_FALSE(over(count(12, {0}), count(5)));
  CHECK_FALSE(over(count(12, {0}), count(1, {1})));
  CHECK(divides(count(2, {0}), count(4, {0, 0})));
}

TEST_CASE("places are ordered if they are for all launches", "[position-slices]") {
  const TokenPlace start{3, {}}, text = behind(start, count(2, {0})), image = behind(text, count(1, {1}));
  CHECK(countBetween(start, text) == count(2, {0}));
  CHECK(countBetween(text, image) == count(1, {1}));
  CHECK_FALSE(countBetween(start, image)); // a sum of two counts
  const TokenPlace later = behind(image, count(4));
  CHECK(isAtMost(image, later));
  CHECK(isAtMost(image, image));
  CHECK_FALSE(isAtMost(later, image));
  CHECK_FALSE(isAtMost(image, text));
}

TEST_CASE("chains of quotients and remainders are slices of a distance", "[position-slices]") {
  const ir::Module module = traced("((q_idx - text) // w % 8 == kv_idx % w) & (kv_idx < text)");
  const PositionSlices slices(module);
  REQUIRE(slices.ends().size() == 2);
  const uint32_t w = [&] {
    for (uint32_t id = 0; id < module.size(); ++id)
      if (module[{id}].op == ir::Op::Scalar && module.scalars[size_t(module[{id}].attr)].name == "w") return id;
    return 0u;
  }();
  for (const ir::Value end : slices.ends()) {
    const PositionSlice& slice = *slices.of(end);
    CHECK_FALSE(slice.isWhole());
    if (slice.of == ir::ParamKind::QIdx) {
      CHECK(slice.lo == count(1, {w}));
      CHECK(slice.hi == count(8, {w}));
      CHECK(slice.before.counts.size() == 1);
    } else {
      CHECK(slice.lo == TokenCount());
      CHECK(slice.hi == count(1, {w}));
      CHECK(slice.before == TokenPlace());
    }
  }
  int bounds = 0;
  for (uint32_t id = 0; id < module.size(); ++id)
    if (const PositionBound* bound = slices.bound({id})) {
      CHECK(bound->of == ir::ParamKind::KvIdx);
      CHECK(bound->isBelow);
      ++bounds;
    }
  CHECK(bounds == 1);
  CHECK(PositionSlices(traced("(q_idx * 2) // w >= kv_idx + text")).ends().empty());
}
