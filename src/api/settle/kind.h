// Which kind of kernel operands get: forward or decode.
#pragma once

#include "attnc/prepared.h"

#include <string>

namespace attnc {

/// What is known of the kind before a family is selected.
struct KindChoice {
  bool mayDecode = false; ///< whether a decode kernel is taken if it gains
  std::string why = {};   ///< Preparation::whyKind, if that is decided
};

/// Sets the kind that the caller asks for, or that is the only one. Errors (environment): there is no kernel of that
/// kind, or no backward pass if `trains`.
Expected<KindChoice> decideKind(KernelOptions& kernel, const Operands& operands, const PrepareOptions& options,
                                bool trains);

/// Returns what speaks against a decode kernel; empty if nothing does. A decode kernel reads K and V once, and divides
/// them among CTAs. That pays for few rows over long KV, if one tile takes all rows of a KV head, or if forward kernels
/// would leave most of a GPU idle.
std::string againstDecode(const ProblemShape& problem, DType dtype);

/// Returns what speaks for a decode kernel.
std::string forDecode(const ProblemShape& problem, int packedRows);

/// Returns the least tile that takes all rows of a KV head, or the largest tile.
int packedRowsFor(const ProblemShape& problem);

} // namespace attnc
