// A claim about a mask as a module whose mask is true wherever the claim holds. Its outputs kLive and kAssumed are the
// mask itself, and whether the assumptions hold. Masks of sequences with lengths and offsets (the pass `sequences`)
// live before the length; claims about them assume that there are keys, and that the query stands at one of them.
#pragma once

#include "attnc/error.h"
#include "ir/import.h"

#include <llvm/ADT/ArrayRef.h>

namespace attnc::proofs {

inline constexpr const char* kLive = "live";
inline constexpr const char* kAssumed = "assumed";

/// Returns the claim that `property` holds (or, if `never`, that it does not) for each live score of `mask` for which
/// all assumptions hold. All are modules with an output mask; without one, it is true. Errors: those of Import.
Expected<ir::Module> claimOf(const ir::Module& mask, const ir::Module& property, bool never,
                             llvm::ArrayRef<const ir::Module*> assumptions);

/// Returns the claim that no score meets the assumptions: no live one, or no score at all if `rows`.
Expected<ir::Module> claimOfNone(const ir::Module& mask, bool rows, llvm::ArrayRef<const ir::Module*> assumptions);

/// Returns the claim that both masks are equal, and the scores of live elements if `scores`. The score that mods are
/// given is then the scalar capture `score`, or `score_` if the mods have one of that name.
Expected<ir::Module> claimOfSame(const ir::Module& mask, const ir::Module& other, bool scores,
                                 llvm::ArrayRef<const ir::Module*> assumptions);

/// Returns the claim that a row has a live column among likely ones: its own, the first, the last, its diagonal's, and
/// the ends of `bounds`, a module with outputs kv_begin and kv_end, if not null. It holds for less than all masks whose
/// rows live.
Expected<ir::Module> claimOfRows(const ir::Module& mask, const ir::Module* bounds,
                                 llvm::ArrayRef<const ir::Module*> assumptions);

/// Returns the claim that each row has a live column if KV_LEN is `columns`.
Expected<ir::Module> claimOfShortRows(const ir::Module& mask, int64_t columns,
                                      llvm::ArrayRef<const ir::Module*> assumptions);

} // namespace attnc::proofs
