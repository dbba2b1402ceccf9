// What plans and the public interface ask of a mod, found out once.
//
// In: a module after the passes, as kernels are made of it. Out: plain values. Neither the planner nor what comes after
// it looks at the IR for a decision.
#pragma once

#include "codegen/mod_source.h"
#include "ir/ir.h"

namespace attnc::plan {

/// Of templates that take every hook of templates/mod/hooks.cuh.
constexpr codegen::ModOptions kAllHooks{.scaledScore = true, .rowShift = true};

/// How many registers a mod takes beside the tile.
enum class Weight {
  Light,  ///< scores pass unchanged, and mask_mod is a few comparisons
  Medium, ///< arithmetic on every score
  Gather, ///< captured tensors by column
  Heavy,  ///< a gather or an angle for every score
};

struct ModFacts {
  Weight weight = Weight::Light;
  bool masks = false;     ///< there is a mask_mod, and it is not constantly true
  bool hasBounds = false; ///< the mod computes the columns that a tile visits (passes/kv_bounds.h)
  /// Of a Mod::Col, where kernels that take all hooks keep the columns of a tile in shared memory; else 0.
  int columnBytes = 0;
};

ModFacts modFacts(const ir::Module& module);

} // namespace attnc::plan
