// Families of kernels. A family is one object: what it serves, its plan, the layouts it takes; the parameters of its
// stages come with its plan. A new family is a file and a row of the table in catalog.cpp.
#pragma once

#include "plan/arch.h"
#include "plan/kernel_mod.h"
#include "plan/plan.h"

#include <llvm/ADT/ArrayRef.h>

#include <string>
#include <vector>

namespace attnc::plan {

using analysis::Weight;

/// What a plan is made for.
struct Request {
  const KernelMod& mod;
  const KernelOptions& options; ///< headDimV filled in; block sizes, dtypes and head dims are ones that are supported
  Arch arch;
};

struct FamilyRow {
  KernelKind kind = KernelKind::Forward;
  Family family = Family::Naive;
  std::string_view arch = "sm_80"; ///< one that it runs on
  int madeFor = 0;                 ///< the compute capability that it is made for; 0: any
  /// It bounds its loops over kv columns by itself where the mod computes the bounds.
  bool walksBounds = false;
  bool walksBoxes = false; ///< likewise of boxes of keys; it is made for mods that have these
  /// Why it does not serve a request, to follow its name: "takes bf16 and fp16"; empty: it serves it.
  std::string (*unserved)(const Request& request) = nullptr;
  /// Options, unserved and misfit are left to the caller. Precondition: it serves the request.
  Plan (*plan)(const Request& request) = nullptr;
  /// The spellings that KernelOptions::tile may have for a request, the one that is taken without it first; plan() goes by
  /// it. Null: there is one. Precondition: it serves the request.
  std::vector<std::string> (*candidates)(const Request& request) = nullptr;
  std::string_view layouts; ///< that it takes, for people
  /// Whether it takes operands laid out like these. Null is an aligned address, and empty tensors always fit. Errors
  /// (environment) name the tensor and what of it.
  Status (*checkLayout)(const LaunchOperands& operands) = nullptr;
};

extern const FamilyRow kForwardNaive, kForwardSm80, kForwardSm90, kForwardGridSm80, kForwardGridSm90, kBackwardNaive,
    kBackwardSm80, kBackwardSm90, kBackwardGridSm80, kBackwardGridSm90, kDecodeSm80, kDecodeSm90, kBlockMask;

/// All of them. Of a kind, the one that is faster where it serves comes first.
llvm::ArrayRef<const FamilyRow*> families();

/// The row of this kind and family: of several that which is made for the arch, else the first, which runs on any.
/// Null: there is none, or it is Auto.
const FamilyRow* findFamily(KernelKind kind, Family family, const Arch& arch);

/// The row of a plan. Precondition: it was chosen by choosePlan().
const FamilyRow& familyOf(const Plan& plan);

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

/// For FamilyRow::candidates: shapes of any kind, and how one is spelled.
template <class Shape>
std::vector<std::string> spelledAll(const std::vector<Shape>& shapes, std::string (*spelling)(const Shape&)) {
  std::vector<std::string> texts;
  for (const Shape& shape : shapes) texts.push_back(spelling(shape));
  return texts;
}

/// The shape that the options ask for, or the first. Precondition: there is one of their tile.
template <class Shape>
Shape chosenOf(const std::vector<Shape>& shapes, const KernelOptions& options, std::string (*spelling)(const Shape&)) {
  for (const Shape& shape : shapes)
    if (!options.tile.empty() && options.tile == spelling(shape)) return shape;
  return shapes.front();
}

/// What the options and a tile make static in a kernel.
codegen::Config configOf(const KernelOptions& options, const Tile& tile);

} // namespace attnc::plan
