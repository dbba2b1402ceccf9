/// Claims about a mask, proved for all launches or refuted by an example (prove.h).
#pragma once

#include "attnc/c/base.h"
#include "attnc/c/mod.h"

#ifdef __cplusplus
extern "C" {
#endif

/// What is claimed of a mod (Claim::Kind).
typedef int32_t attnc_claim_kind;
enum {
  ATTNC_CLAIM_HOLDS = 0,           ///< The property is true for each live score.
  ATTNC_CLAIM_NEVER = 1,           ///< The property is false for each live score.
  ATTNC_CLAIM_EVERY_ROW_LIVES = 2, ///< Each row of q has a live score.
  ATTNC_CLAIM_SAME_MASK = 3,       ///< The scores that live are those of `other`.
  ATTNC_CLAIM_SAME = 4,            ///< The same, and live scores are equal, NaN to NaN.
};

/// A claim, and how it is proved (Claim, ProofOptions).
typedef struct attnc_claim {
  size_t struct_size;     ///< sizeof(attnc_claim).
  const char* property;   ///< HOLDS, NEVER: expression that is the property. May be NULL if `other` is given.
  const attnc_mod* other; ///< HOLDS, NEVER: property as a mod with a mask_mod. SAME_MASK, SAME: other mod.
  const char* assume;     ///< Assumptions, which semicolons separate (addAssumptions). May be NULL.
  const attnc_mod* const* assumptions; ///< Mods whose mask_mod is taken to be true at the score in question.
  size_t assumption_count;             ///< Number of assumptions.
  const char* solver;                  ///< Path of libz3. Default: $ATTNC_Z3, else the system's.
  double seconds;                      ///< Time for the solver. Default: 10.
  attnc_claim_kind kind;               ///< Kind of the claim. Default: HOLDS.
  attnc_query_offsets offsets;         ///< Where queries stand. DEFAULT: FROM_LENGTHS if kv_lengths, else NONE.
  int64_t kv_lengths;                  ///< 0 or 1: whether the claim is about launches with KV lengths.
} attnc_claim;

/// Proves a claim, or finds an example against it (prove). Fills the address of one JSON object: {"answer": "proved",
/// "refuted" or "undecided", "by", "why", "example"}. It lives as long as the mod. Errors: those of prove(),
/// propertyOf() and addAssumptions().
ATTNC_API attnc_status attnc_prove(const attnc_mod* mod, const attnc_claim* claim, const char** json);

#ifdef __cplusplus
}
#endif
