// A claim as a script of SMT-LIB 2: bit-vectors for integers, IEEE floats for f32, functions for captured tensors.
#pragma once

#include "ir/ir.h"

#include <set>
#include <string>
#include <vector>

namespace attnc::proofs {

/// A load, and the names of its clamped indices and of its result in the script.
struct LoadTerm {
  uint32_t tensor = 0;
  std::vector<std::string> indices;
  std::string result;
};

/// What asks a solver for an element of a module for which its mask is false. Extents are those of a
/// launch, and at least 1; H is a multiple of HKV; conditions of the launch hold.
struct Script {
  /// Declarations, definitions and assertions. Constants are `dim_0`, `param_1` and `scalar_2`, by index or ParamKind.
  std::string text;
  std::vector<LoadTerm> loads;
  std::set<ir::ParamKind> params; ///< that the mask needs
  std::vector<int64_t> dims;      ///< indices of Module::dims that the script has
  std::vector<int64_t> scalars;
  /// What the script leaves open: functions that it knows only by name. An example may then be none.
  std::set<std::string> open;
  std::set<std::string> hard; ///< operations that solvers take long for: "a product of two variables (line 4)"
};

/// Writes the script. Grids are lowered in `module`. `sorted`: names of tensors whose elements do not decrease along
/// the last axis. `module`: verified, with an output mask.
Script scriptOf(const ir::Module& module, const std::set<std::string>& sorted);

} // namespace attnc::proofs
