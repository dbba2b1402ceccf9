#include "analysis/wrap_example.h"
#include "analysis/ir_names.h"

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallVector.h>

namespace attnc::analysis {
namespace {

using Wide = __int128;

/// Returns numbers of a range, small ones first.
llvm::SmallVector<int64_t, 32> samples(const Range& range) {
  llvm::SmallVector<int64_t, 32> numbers = {0, 1, 2, 3};
  for (int bit = 2; bit < 63; ++bit) numbers.append({int64_t(1) << bit, -(int64_t(1) << bit)});
  numbers.append({range.lo, range.hi});
  llvm::erase_if(numbers, [&](int64_t number) { return !range.contains(number); });
  return numbers;
}

const char* spelling(Op op) { return op == Op::Add ? "+" : op == Op::Sub ? "-" : op == Op::Mul ? "*" : "<<"; }

} // namespace

Wide exactResult(Op op, Wide a, Wide b) {
  switch (op) {
  case Op::Add: return a + b;
  case Op::Sub: return a - b;
  case Op::Mul: return a * b;
  case Op::Shl: return 0 <= b && b < 63 ? a * (Wide(1) << int(b)) : 0;
  default: return 0;
  }
}

std::optional<WrapExample> wrapExample(Op op, const Range& a, const Range& b, Wide lo, Wide hi) {
  const auto isInside = [&](Wide x, Wide y) {
    const Wide result = exactResult(op, x, y);
    return lo <= result && result <= hi;
  };
  if (isInside(a.lo, b.lo) && isInside(a.lo, b.hi) && isInside(a.hi, b.lo) && isInside(a.hi, b.hi)) return std::nullopt;
  for (const int64_t x : samples(a))
    for (const int64_t y : samples(b))
      if (!isInside(x, y)) return WrapExample{fmt::format("{} {} {}", x, spelling(op), y), exactResult(op, x, y)};
  return std::nullopt;
}

} // namespace attnc::analysis
