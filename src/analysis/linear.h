// Linear forms over named extents, such as 2 * KV_LEN - H + 3: the symbolic bounds of the interval analysis.
#pragma once

#include "ir/ir.h"

#include <llvm/ADT/SmallVector.h>

#include <optional>
#include <string>

namespace attnc::analysis {

/// The smallest and the largest value of an extent.
struct ExtentRange {
  int64_t lo = 0, hi = 0;
};

/// Sum of coefficient * extent, plus a constant, over the integers: without wrap-around.
struct LinearForm {
  struct Term {
    unsigned dim; ///< index into Module::dims
    int64_t coefficient;
    friend bool operator==(const Term& a, const Term& b) { return a.dim == b.dim && a.coefficient == b.coefficient; }
  };
  llvm::SmallVector<Term, 2> terms; ///< by ascending dim, all coefficients nonzero
  int64_t constant = 0;

  static LinearForm number(int64_t value) { return {{}, value}; }
  static LinearForm extent(unsigned dim) { return {{{dim, 1}}, 0}; }
  bool isNumber() const { return terms.empty(); }
  friend bool operator==(const LinearForm& a, const LinearForm& b) {
    return a.terms == b.terms && a.constant == b.constant;
  }
};

/// Returns a + factor * b; nullopt if numbers or terms grow beyond a limit.
std::optional<LinearForm> addScaled(const LinearForm& a, const LinearForm& b, int64_t factor);

/// Return the largest and smallest value of a form for extents in `dims` (by Module::dims index), saturated to int64.
int64_t maxOf(const LinearForm& form, llvm::ArrayRef<ExtentRange> dims);
int64_t minOf(const LinearForm& form, llvm::ArrayRef<ExtentRange> dims);

/// Returns text such as "KV_LEN - 1".
std::string toString(const LinearForm& form, const ir::Module& module);

} // namespace attnc::analysis
