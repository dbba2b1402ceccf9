#include "analysis/linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace attnc::analysis {
namespace {

constexpr size_t kMaxTerms = 3;
constexpr int64_t kMaxNumber = int64_t(1) << 40; // of coefficients and constants: sums of products fit 128 bits

bool isSmall(int64_t value) { return -kMaxNumber <= value && value <= kMaxNumber; }

int64_t extreme(const LinearForm& form, llvm::ArrayRef<ExtentRange> dims, bool largest) {
  __int128 result = form.constant;
  for (const LinearForm::Term& term : form.terms) {
    bool useHigh = (term.coefficient > 0) == largest;
    result += __int128(term.coefficient) * (useHigh ? dims[term.dim].hi : dims[term.dim].lo);
  }
  constexpr __int128 kLow = std::numeric_limits<int64_t>::min(), kHigh = std::numeric_limits<int64_t>::max();
  return int64_t(std::clamp(result, kLow, kHigh));
}

} // namespace

std::optional<LinearForm> addScaled(const LinearForm& a, const LinearForm& b, int64_t factor) {
  if (!isSmall(factor) || !isSmall(a.constant) || !isSmall(b.constant)) return std::nullopt;
  __int128 constant = a.constant + __int128(b.constant) * factor;
  if (constant > kMaxNumber || constant < -kMaxNumber) return std::nullopt;
  LinearForm result{{}, int64_t(constant)};
  auto at = a.terms.begin();
  auto bt = b.terms.begin();
  while (at != a.terms.end() || bt != b.terms.end()) {
    bool takeA = bt == b.terms.end() || (at != a.terms.end() && at->dim <= bt->dim);
    bool takeB = at == a.terms.end() || (bt != b.terms.end() && bt->dim <= at->dim);
    unsigned dim = takeA ? at->dim : bt->dim;
    __int128 coefficient = takeA ? at++->coefficient : 0;
    if (takeB) coefficient += __int128(bt++->coefficient) * factor;
    if (coefficient > kMaxNumber || coefficient < -kMaxNumber) return std::nullopt;
    if (coefficient != 0) result.terms.push_back({dim, int64_t(coefficient)});
  }
  if (result.terms.size() > kMaxTerms) return std::nullopt;
  return result;
}

int64_t maxOf(const LinearForm& form, llvm::ArrayRef<ExtentRange> dims) { return extreme(form, dims, true); }
int64_t minOf(const LinearForm& form, llvm::ArrayRef<ExtentRange> dims) { return extreme(form, dims, false); }

std::string toString(const LinearForm& form, const ir::Module& module) {
  std::string text;
  for (const LinearForm::Term& term : form.terms) {
    int64_t magnitude = std::abs(term.coefficient);
    text += text.empty() ? (term.coefficient < 0 ? "-" : "") : (term.coefficient < 0 ? " - " : " + ");
    if (magnitude != 1) text += fmt::format("{} * ", magnitude);
    text += module.dims[term.dim];
  }
  if (text.empty()) return fmt::format("{}", form.constant);
  if (form.constant == 0) return text;
  return text + fmt::format(" {} {}", form.constant < 0 ? '-' : '+', std::abs(form.constant));
}

} // namespace attnc::analysis
