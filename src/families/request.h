// What families are asked for.
#pragma once

#include "attnc/kernel.h"
#include "plan/arch.h"
#include "plan/kernel_mod.h"

#include <memory>
#include <string>

namespace attnc::plan {

struct FamilyRow; // family.h

/// A mod, what is asked of its kernel, and the family that serves it. A plan is made of it once its tile is known.
struct Request {
  std::shared_ptr<const KernelMod> mod; ///< made for algebraFor(options)
  KernelOptions options; ///< complete, with the family; block sizes, dtypes and head dims are supported ones
  Arch arch;
  const FamilyRow* family = nullptr; ///< null while families are asked whether they serve it
  bool widens = false; ///< whether q and k get the columns of a low-rank term: k then differs between query heads
  /// Why the family made for this GPU does not serve the options. Empty if it does, or if no family was.
  std::string unserved = {};
  std::string misfit = {}; ///< why that family serves the options but not the operands' layout: names the tensor
};

} // namespace attnc::plan
