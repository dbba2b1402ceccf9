// Families of kernels. A family is one object: what it serves, its plan, the layouts it takes. The parameters of its
// stages come with its plan. A new family is a file and a row of families.def.
#pragma once

#include "families/request.h"
#include "families/walk_facts.h"
#include "plan/plan.h"

#include <llvm/ADT/ArrayRef.h>

#include <string>
#include <vector>

namespace attnc::plan {

using analysis::Weight;

struct FamilyRow {
  KernelKind kind = KernelKind::Forward;
  Family family = Family::Naive;
  std::string_view arch = "sm_80"; ///< an arch that it runs on
  int madeFor = 0;                 ///< the compute capability that it is made for; 0: any
  /// Whether it bounds its own loops over kv columns if the mod computes the bounds.
  bool walksBounds = false;
  bool takesWideHeads = false; ///< whether it takes head dims above 256
  bool walksBoxes = false;     ///< whether it walks boxes of keys; it serves only mods that have them
  /// Which mods with a prob_mod it takes, with q of 16 and 32 bits.
  enum class ProbMods : uint8_t {
    None,
    Drops, ///< dropout: the pass derive-drops
    All,
  };
  ProbMods takesProbMods = ProbMods::None;
  bool takesWeightMods = false; ///< whether it takes mods with a weight_mod
  Features takes;               ///< what its kernels take; they serve no request with another feature
  /// Returns why it does not serve a request that has only features of `takes`, phrased to follow its name: "needs arch
  /// sm_90a". Empty if it serves it.
  std::string (*unserved)(const Request& request) = nullptr;
  /// Makes the plan, except its options, which the caller fills in. Precondition: it serves the request.
  Plan (*plan)(const Request& request) = nullptr;
  /// Returns the possible values of KernelOptions::tile for a request, the default first. plan() obeys that option.
  /// Null if there is one tile only. Precondition: it serves the request.
  std::vector<std::string> (*candidates)(const Request& request) = nullptr;
  /// Returns the candidate for a launch. Empty: the default. Null if that is the best one for all launches.
  std::string (*tileOfLaunch)(const Request& request, const WalkFacts& facts) = nullptr;
  std::string_view layouts; ///< the layouts that it takes, described for people
  /// Checks that it takes operands of this layout. A null address counts as aligned, and empty tensors always fit.
  /// Errors (environment) name the tensor and the property that does not fit.
  Status (*checkLayout)(const LaunchOperands& operands) = nullptr;
};

/// Returns the features that a family takes: its own, and those of stages that are behind the plans of all families.
inline Features takenBy(const FamilyRow& row) {
  const bool isForward = row.kind == KernelKind::Forward || row.kind == KernelKind::Decode;
  return row.takes | Features(Feature::Reductions, isForward);
}

#define ATTNC_FAMILY_ROW(name) extern const FamilyRow name;
#include "families/families.def"

/// Returns all families, in the order of families.def.
llvm::ArrayRef<const FamilyRow*> families();

/// Returns the row of this kind and family: the one made for the arch, if it takes the features; else the first, which
/// runs on any. Null for Auto, and if no row matches.
const FamilyRow* findFamily(KernelKind kind, Family family, const Arch& arch, const Features& features);

/// For families that serve every request, or take every layout.
std::string servesAll(const Request& request);
Status takesAnyLayout(const LaunchOperands& operands);

/// A tile of q rows and kv columns, and the warps that compute it.
struct Tile {
  int blockM, blockN, warps;
  bool operator==(const Tile&) const = default;
};

/// "192x128x12"
std::string tileText(const Tile& tile);

/// Spells shapes of any kind, for FamilyRow::candidates.
template <class Shape>
std::vector<std::string> spelledAll(const std::vector<Shape>& shapes, std::string (*spelling)(const Shape&)) {
  std::vector<std::string> texts;
  for (const Shape& shape : shapes) texts.push_back(spelling(shape));
  return texts;
}

/// Returns the shape that the options ask for, or the first. Precondition: `shapes` is not empty, and has the requested
/// tile.
template <class Shape>
Shape chosenOf(const std::vector<Shape>& shapes, const KernelOptions& options, std::string (*spelling)(const Shape&)) {
  for (const Shape& shape : shapes)
    if (!options.tile.empty() && options.tile == spelling(shape)) return shape;
  return shapes.front();
}

/// Returns what the options and a tile make static in a kernel.
codegen::Config configOf(const KernelOptions& options, const Tile& tile);

/// Returns the bytes of a row of PaddedTile (templates/tile/shared_tile.cuh): of columns, and of a row of k and one of
/// v.
int paddedRowBytes(int columns, DType dtype);
int paddedRowBytes(const KernelOptions& options);

} // namespace attnc::plan
