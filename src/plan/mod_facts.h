// What plans and the public interface ask of a mod, found out once.
//
// In: a module after the passes, as kernels are made of it. Out: plain values. Neither the planner nor what comes after
// it looks at the IR for a decision.
#pragma once

#include "codegen/mod_source.h"
#include "ir/ir.h"

namespace attnc::plan {

/// How a mod is written for kernels that go through templates/algo/apply_mod.cuh. The form of soft caps errs by 6e-7 of
/// the cap, more than the products of f32 do.
constexpr codegen::ModOptions algebraFor(DType dtype) {
  return {.scaledScore = dtype != DType::F32, .rowShift = true};
}

/// How many registers a mod takes beside the tile.
enum class Weight {
  None,   ///< no mod
  Light,  ///< scores pass unchanged, and mask_mod is a few comparisons
  Medium, ///< arithmetic on every score
  Gather, ///< captured tensors by column
  Heavy,  ///< a gather or an angle for every score
};

struct ModFacts {
  Weight weight = Weight::None;
  bool masks = false;     ///< there is a mask_mod, and it is not constantly true
  bool hasBounds = false; ///< the mod computes the columns that a tile visits (passes/kv_bounds.h)
  /// Of a Mod::Col, where Hopper kernels keep the columns of a tile in shared memory; else 0.
  int columnBytes = 0;
};

ModFacts modFacts(const ir::Module& module);

} // namespace attnc::plan
