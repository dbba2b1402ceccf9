// The kernels that hashes are kept of: options that meet every template, in the forms that change it.
#pragma once

#include "attnc/kernel.h"
#include "attnc/mod.h"

#include <string>
#include <vector>

namespace attnc::test {

struct Variant {
  std::string name;
  KernelOptions options;
  bool ofAllCaptures = false; ///< backward: whether launches compute the gradient of every float capture
};

/// Returns the options of a variant of this mod, with gradients of its captures if the variant wants them.
KernelOptions optionsOf(const Variant& variant, const Mod& mod);

/// Returns the kernels of each mod.
std::vector<Variant> variants();

} // namespace attnc::test
