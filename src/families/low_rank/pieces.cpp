#include "families/low_rank/pieces.h"

#include <fmt/format.h>
#include <llvm/Support/MathExtras.h>

#include <algorithm>
#include <cmath>

namespace attnc::plan {

int columnsOfRound(int qPieces, int kvPieces) {
  const int pieces = std::max(qPieces, kvPieces);
  int all = 0;
  for (int j = 0; j < kvPieces; ++j) all += std::min(qPieces, pieces - j);
  return all;
}

/// Returns the error of pieces. For |x| in [2^e, 2^(e+1)), the first is off by at most 2^(e-8), where |x| is 257 times
/// that; the second is this rest rounded, and off by half its unit, 2^(e-17). Three hold the 24 bits of f32. Products
/// that have no column add the sizes of their pieces.
static double errorOf(int qPieces, bool qIsBf16, int kvPieces, bool kvIsBf16) {
  constexpr double kMissing[] = {1. / 257, 0x1p-17, 0}, kSize[] = {1, 0x1p-8, 0x1p-17};
  if (qIsBf16 && kvIsBf16) return 0;
  const double q = qIsBf16 ? 0 : kMissing[qPieces - 1], kv = kvIsBf16 ? 0 : kMissing[kvPieces - 1];
  double error = q + kv + q * kv + kF32Error;
  for (int i = 1; i < qPieces; ++i)
    for (int j = 1; j < kvPieces; ++j)
      if (i + j >= std::max(qPieces, kvPieces)) error += kSize[i] * kSize[j];
  return error;
}

std::optional<Pieces> fewestPieces(bool qIsBf16, bool kvIsBf16, double most) {
  std::optional<Pieces> fewest;
  for (int q = 1; q <= (qIsBf16 ? 1 : 3); ++q)
    for (int kv = 1; kv <= (kvIsBf16 ? 1 : 3); ++kv) {
      const double error = errorOf(q, qIsBf16, kv, kvIsBf16);
      if (error <= most && (!fewest || columnsOfRound(q, kv) < columnsOfRound(fewest->q, fewest->kv)))
        fewest = {q, kv, error};
    }
  return fewest;
}

double mostError(const analysis::LowRankTerm& term, const KernelOptions& options) {
  if (options.lowRankError > 0) return double(options.lowRankError);
  return term.qIsBf16 ? 0x1p-14 : 2 * kF32Error;
}

std::string errorText(double error) {
  if (error == 0) return "exact";
  if (error <= 2 * kF32Error) return "as exact as f32";
  return fmt::format("to 2^{}", int(std::ceil(std::log2(error))));
}

codegen::Config::LowRank columnsFor(const analysis::LowRankTerm& term, int headDim, const Pieces& pieces,
                                    bool isApart) {
  const int64_t columns = headDim + term.rank * columnsOfRound(pieces.q, pieces.kv);
  return {int(llvm::alignTo(uint64_t(columns), 16)), int(term.rank), pieces.q, pieces.kv, isApart};
}

} // namespace attnc::plan
