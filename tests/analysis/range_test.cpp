// Ranges of operations, against all values of small operands.
#include "analysis/range.h"
#include "ir/semantics.h"

#include <catch2/catch.hpp>

#include <vector>

using namespace attnc;
using namespace attnc::analysis;
using ir::Op;
using ir::Type;

namespace {

/// The exact range of a binary operation, from every pair of operands.
Range hull(Op op, Type result, const Range& a, const Range& b) {
  Range all = Range::integers(result, INT64_MAX, INT64_MIN);
  for (int64_t x = a.lo; x <= a.hi; ++x)
    for (int64_t y = b.lo; y <= b.hi; ++y) {
      const int64_t value =
          ir::semantics::apply(op, a.type, result, Number{.integer = x}, Number{.integer = y}).integer;
      all.lo = std::min(all.lo, value);
      all.hi = std::max(all.hi, value);
    }
  return all;
}

ir::Node node(Op op, Type type) { return {op, type, 0, {}, 0}; }

} // namespace

TEST_CASE("ranges of integer operations hold every value, and are exact for sums and products", "[range]") {
  std::vector<Range> operands;
  for (int64_t lo : {-5, -1, 0, 1, 3})
    for (int64_t width : {0, 1, 4}) operands.push_back(Range::integers(Type::I32, lo, lo + width));
  struct {
    Op op;
    Type type;
    bool isExact;
  } const rows[] = {{Op::Add, Type::I32, true},  {Op::Sub, Type::I32, true},  {Op::Mul, Type::I32, true},
                    {Op::Min, Type::I32, true},  {Op::Max, Type::I32, true},  {Op::FloorDiv, Type::I32, false},
                    {Op::Mod, Type::I32, false}, {Op::And, Type::I32, false}, {Op::Or, Type::I32, false},
                    {Op::Xor, Type::I32, false}, {Op::Shl, Type::I32, false}, {Op::Shr, Type::I32, false},
                    {Op::Lt, Type::Bool, true},  {Op::Le, Type::Bool, true},  {Op::Eq, Type::Bool, false},
                    {Op::Ne, Type::Bool, false}};
  for (const auto& row : rows)
    for (const Range& a : operands)
      for (const Range& b : operands) {
        const Range exact = hull(row.op, row.type, a, b), range = transfer(node(row.op, row.type), {a, b});
        INFO(int(row.op) << ": [" << a.lo << ", " << a.hi << "], [" << b.lo << ", " << b.hi << "]");
        CHECK((range.lo <= exact.lo && exact.hi <= range.hi));
        if (row.isExact) CHECK((range.lo == exact.lo && range.hi == exact.hi));
      }
}

TEST_CASE("an operation that may wrap around has the full range of its type", "[range]") {
  const Range large = Range::integers(Type::I32, 0, INT32_MAX), one = Range::integers(Type::I32, 0, 1);
  CHECK(cannotWrap(node(Op::Sub, Type::I32), {large, large}));
  for (Op op : {Op::Add, Op::Mul}) {
    CHECK_FALSE(cannotWrap(node(op, Type::I32), {large, large}));
    const Range range = transfer(node(op, Type::I32), {large, large});
    CHECK((range.lo == INT32_MIN && range.hi == INT32_MAX));
  }
  CHECK_FALSE(cannotWrap(node(Op::Add, Type::I32), {large, one}));
  CHECK(cannotWrap(node(Op::Mul, Type::I32), {large, one}));
  CHECK_FALSE(cannotWrap(node(Op::Neg, Type::I32), {Range::full(Type::I32)}));
  CHECK(cannotWrap(node(Op::Neg, Type::I32), {large}));
}

TEST_CASE("ranges of floats know where NaN comes from", "[range]") {
  const double inf = std::numeric_limits<double>::infinity();
  const Range any = Range::reals(-inf, inf), positive = Range::reals(1, 2);
  CHECK(transfer(node(Op::Sub, Type::F32), {any, any}).mayBeNan);
  CHECK(transfer(node(Op::Log, Type::F32), {Range::reals(-1, 1)}).mayBeNan);
  const Range product = transfer(node(Op::Mul, Type::F32), {positive, Range::reals(-3, 4)});
  CHECK_FALSE(product.mayBeNan);
  CHECK((product.realLo <= -6 && product.realLo > -6.1 && product.realHi >= 8 && product.realHi < 8.1));
  CHECK(join(positive, Range::reals(-1, 0, true)).mayBeNan);
  CHECK(join(positive, Range::reals(-1, 0)).realLo == -1);
}
