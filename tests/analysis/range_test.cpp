// Transfer functions of ranges are sound: for all ranges of 5-bit integers, and all numbers in them.
#include "analysis/range.h"
#include "ir/semantics.h"

#include <catch2/catch.hpp>

#include <array>
#include <bit>

using namespace attnc;
using namespace attnc::analysis;
using ir::Op, ir::Type;

namespace {

constexpr int kLeast = -16, kMost = 15;
constexpr int kCount = kMost - kLeast + 1;

/// How 5-bit integers lie in a type: as they are, or as its upper bits, which wrap around as 5 bits do.
struct Place {
  Type type;
  int shift;
  int64_t at(int number) const { return int64_t(uint64_t(number) << shift); }
};

ir::Node nodeOf(Op op, Type type) { return {op, type, 0, {}, 0}; }

/// Results of one operation on all pairs of numbers.
class Table {
public:
  Table(Op op, Type to, Place a, Place b) : op(op), to(to), a(a), b(b) {
    for (int x = kLeast; x <= kMost; ++x)
      for (int y = kLeast; y <= kMost; ++y)
        results[x - kLeast][y - kLeast] =
            ir::semantics::apply(op, a.type, to, Number{.integer = a.at(x)}, Number{.integer = b.at(y)}).integer;
  }

  /// Checks all pairs of ranges. The least and the largest result of a pair come from smaller ranges.
  void check() const {
    const bool isUnary = ir::info(op).arity == 1;
    for (int aLo = kLeast; aLo <= kMost; ++aLo)
      for (int bLo = kLeast; bLo <= (isUnary ? kLeast : kMost); ++bLo) {
        std::array<int64_t, kCount> least, most; // of the columns from bLo to each, over the rows so far
        least.fill(INT64_MAX), most.fill(INT64_MIN);
        for (int aHi = aLo; aHi <= kMost; ++aHi) {
          int64_t lo = INT64_MAX, hi = INT64_MIN;
          for (int bHi = bLo; bHi <= (isUnary ? kLeast : kMost); ++bHi) {
            const int64_t result = results[aHi - kLeast][bHi - kLeast];
            lo = std::min(lo, result), hi = std::max(hi, result);
            int64_t &all = least[size_t(bHi - kLeast)], &top = most[size_t(bHi - kLeast)];
            all = std::min(all, lo), top = std::max(top, hi);
            const Range range = transfer(nodeOf(op, to), {Range::integers(a.type, a.at(aLo), a.at(aHi)),
                                                          Range::integers(b.type, b.at(bLo), b.at(bHi))});
            if (range.type == to && range.lo <= all && top <= range.hi) continue;
            FAIL(ir::info(op).text << " of [" << a.at(aLo) << ", " << a.at(aHi) << "] and [" << b.at(bLo) << ", "
                                   << b.at(bHi) << "] is in [" << all << ", " << top << "], and not in [" << range.lo
                                   << ", " << range.hi << "]");
          }
        }
      }
  }

private:
  Op op;
  Type to;
  Place a, b;
  int64_t results[kCount][kCount];
};

} // namespace

TEST_CASE("ranges of integer operations hold for all 5-bit integers", "[range]") {
  for (Type type : {Type::I32, Type::I64}) {
    const int top = type == Type::I32 ? 27 : 59;
    for (Op op : {Op::Neg, Op::Abs, Op::Not, Op::Add, Op::Sub, Op::Mul, Op::Min, Op::Max, Op::FloorDiv, Op::Mod,
                  Op::And, Op::Or, Op::Xor, Op::Shl, Op::Shr, Op::Eq, Op::Ne, Op::Lt, Op::Le}) {
      const Type to = ir::info(op).rule == ir::TypeRule::Compare ? Type::Bool : type;
      for (int a : {0, top})
        for (int b : {0, top}) Table(op, to, {type, a}, {type, b}).check();
    }
    for (int shift : {0, top})
      for (Type to : {Type::Bool, Type::I32, Type::I64})
        if (to != type) Table(Op::Cast, to, {type, shift}, {type, 0}).check();
  }
}

TEST_CASE("what cannot wrap around is exact for all 5-bit integers", "[range]") {
  for (Op op : {Op::Neg, Op::Add, Op::Sub, Op::Mul})
    for (Place place : {Place{Type::I32, 0}, {Type::I32, 27}, {Type::I64, 59}})
      for (int aLo = kLeast; aLo <= kMost; ++aLo)
        for (int aHi = aLo; aHi <= kMost; ++aHi)
          for (int bLo = kLeast; bLo <= kMost; ++bLo)
            for (int bHi = bLo; bHi <= kMost; ++bHi) {
              const Range a = Range::integers(place.type, place.at(aLo), place.at(aHi)),
                          b = Range::integers(place.type, place.at(bLo), place.at(bHi));
              if (!cannotWrap(nodeOf(op, place.type), {a, b})) continue;
              for (int64_t x : {a.lo, a.hi})
                for (int64_t y : {b.lo, b.hi}) { // where results are extreme
                  const __int128 exact = op == Op::Neg   ? -__int128(x)
                                         : op == Op::Add ? __int128(x) + y
                                         : op == Op::Sub ? __int128(x) - y
                                                         : __int128(x) * y;
                  const Number found =
                      ir::semantics::apply(op, place.type, place.type, Number{.integer = x}, Number{.integer = y});
                  if (found.integer != exact) FAIL(ir::info(op).text << " of " << x << " and " << y << " wraps around");
                }
            }
}
