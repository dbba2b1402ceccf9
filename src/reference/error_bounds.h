// How far a kernel's results may be off: for `attnc run --verify` and tests.
//
// In: what gradients() takes, its results, and how a kernel rounds. Out: a bound for each element of each result. It
// follows the mod: a mod that amplifies errors of its score has wide bounds, where it does, and only there.
//
//   score      range [lo, hi] of score_mod over scale q.k +- scores * scale * sum |q k|, see ranges.h, plus what
//   kernels
//              round in any mod: 2^-21 of its size, and 2^-20 of its distance from the row's maximum
//   weight     w = exp(score - max) is off by dw = max(exp(hi - max) - w, w - exp(lo - max))
//   out        sum dw |v - out| / sum exp(lo - max), at most the largest |v - out|; plus the roundings of P and out
//   lse        log(sum exp(hi) / sum exp(lo)); row max: the same of its largest
//   P          of backward kernels: dp, from [exp(lo) / sum exp(hi), exp(hi) / sum exp(lo)], and 2^-22 of lse
//   delta      = dot(dout, out): what rounding P and out, and dw, move it by
//   dS         = scale slope p (dP - delta): products of the errors of its factors, slope's from the range of d_score;
//              plus its own rounding. Gradients of outputs add p by_prob to delta, p by_prob + by_score to dS; these
//              err by the ranges of prob_gradient and score_gradient, over that of p as it is rounded
//   dq, dk     sum |error of dS| |k|, |q|;   dv: sum |error of P| |dout|; plus the rounding of the result
//   captures   as dS. Rows err independently, and so do the roundings of a row: 2.5 times the root of the sum of
//   squares
//
// All others add up sizes of errors, so they hold for any operands. A kernel that errs by less than its arithmetic must
// is not found; all bounds of plain mods together are a few roundings of the results.
#pragma once

#include "reference/gradients.h"

namespace attnc::reference {

/// Returns the unit roundoff of a float dtype.
double roundoffOf(DType dtype);

/// Widens bounds of these results by their rounding as they are stored.
void addRounding(std::vector<double>& bounds, const std::vector<double>& of, DType stored);

/// How a kernel rounds. Errors are relative to sizes of terms, unless they say otherwise.
struct Arithmetic {
  double scores = 0x1p-20;    ///< of q.k
  double products = 0x1p-20;  ///< of other sums of products, with the rounding of f32 operands
  double weights = 0;         ///< of P and dS, as operands of products; 0 if these are of f32
  double leastWeight = 0;     ///< of P and dS, relative to the largest weight of the row
  double term = 0;            ///< absolute, of a term that kernels add to the score before score_mod
  double penalty = 0;         ///< absolute, of a term behind score_mod
  DType results = DType::F32; ///< of out
  /// Whether dK and dV are sums of parts, one of each query head and batch entry, that are stored in q's dtype.
  bool storesParts = false;
  bool isExact = false; ///< whether scores are those of the reference before and behind score_mod
};

/// Returns the arithmetic of kernels for q of this dtype and results of another. `tf32`: one TF32 product for f32.
Arithmetic arithmeticOf(DType q, DType results, bool tf32);

/// Bounds of the elements of results, in the same order. NaN: the element may be anything.
struct ErrorBounds {
  std::vector<double> out, lse, rowMax;
  double rmse = 0;         ///< of out over the rows that rounding does not decide
  std::vector<char> loose; ///< whether rounding decides a row's weights: it may move half of their sum, or more
  std::vector<double> dQ, dK, dV;
  std::map<std::string, std::vector<double>> captures;
};

/// Computes the bounds; those of gradients if `of` has gradients. `args` and `module` as for attention(), or for
/// gradients(). The arithmetic must be that of the kernel. Takes about three times as long as the results.
Expected<ErrorBounds> errorBounds(const ir::Module& module, const Captures& captures, const BackwardOperands& args,
                                  const GradientResult& of, const Arithmetic& arithmetic,
                                  const ir::CaptureGradients& wanted = {});

} // namespace attnc::reference
