// How exactly columns of bf16 carry the factors of a low-rank term: as one to three pieces of each number.
#pragma once

#include "analysis/low_rank.h"
#include "attnc/kernel.h"
#include "codegen/config_source.h"

#include <optional>
#include <string>

namespace attnc::plan {

/// Returns the columns of a round: templates/low_rank.cu.
int columnsOfRound(int qPieces, int kvPieces);

/// The pieces of both factors, and what their products err by: KernelOptions::lowRankError.
struct Pieces {
  int q, kv;
  double error;
};

/// Returns the pieces with the fewest columns whose error is at most `most`. Unset if none are so exact.
std::optional<Pieces> fewestPieces(bool qIsBf16, bool kvIsBf16, double most);

constexpr double kF32Error = 0x1p-22; ///< of three roundings: of a factor, of 1 / scale, of their product
/// Errors that pieces keep, in ascending order.
constexpr double kPieceErrors[] = {2 * kF32Error, 0x1p-16, 0x1p-14, 0x1p-8, 0x1p-7};

/// Returns the most that a term may err by.
double mostError(const analysis::LowRankTerm& term, const KernelOptions& options);

/// Returns an error as `explain` tells it.
std::string errorText(double error);

/// Returns the columns of q and k that carry a term. `isApart`: whether kernels take them from tensors of their own.
codegen::Config::LowRank columnsFor(const analysis::LowRankTerm& term, int headDim, const Pieces& pieces, bool isApart);

} // namespace attnc::plan
