// Ranges: the possible numbers of a value, as one interval.
//
// transfer() maps the ranges of operands to the range of an operation. It is sound: if the operands are within their
// ranges, the result is within the returned range, in single precision with or without fused multiply-add. If an
// integer operation can wrap around, the result is the full range of its type.
#pragma once

#include "ir/ir.h"

#include <llvm/ADT/ArrayRef.h>

#include <cstdint>

namespace attnc::analysis {

/// All numbers of `type` between two bounds, both inclusive. bool and integers use lo and hi, f32 the real bounds.
struct Range {
  ir::Type type = ir::Type::I32;
  int64_t lo = 0, hi = 0;
  double realLo = 0, realHi = 0;
  bool mayBeNan = false;

  static Range full(ir::Type type);
  static Range integers(ir::Type type, int64_t lo, int64_t hi) { return {type, lo, hi, 0, 0, false}; }
  static Range reals(double lo, double hi, bool mayBeNan = false) { return {ir::Type::F32, 0, 0, lo, hi, mayBeNan}; }
  static Range ofConst(const ir::Module& module, ir::Value value);
  /// Returns the range of the index of a sum.
  static Range ofIter(const ir::Node& iter) { return integers(ir::Type::I32, 0, ir::Loop::of(iter).count - 1); }
  /// Returns the range of a gather from a tensor of this dtype.
  static Range ofElement(DType dtype);

  bool isInteger() const { return type != ir::Type::F32; }
  bool isSingle() const { return isInteger() && lo == hi; }
  bool contains(int64_t value) const { return lo <= value && value <= hi; }
  /// Whether every number of this range lies in [low, high].
  bool within(int64_t low, int64_t high) const { return isInteger() && low <= lo && hi <= high; }
};

/// Returns the smallest range that contains both.
Range join(const Range& a, const Range& b);

/// Returns the range of an operation other than a leaf or a load.
Range transfer(const ir::Node& node, llvm::ArrayRef<Range> operands);

/// Whether an add, sub, mul or neg of integers gives the mathematical result: it cannot wrap around.
bool cannotWrap(const ir::Node& node, llvm::ArrayRef<Range> operands);

} // namespace attnc::analysis
