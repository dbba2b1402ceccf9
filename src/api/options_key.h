// The key of what distinguishes kernels.
#pragma once

#include "attnc/kernel.h"

#include <string>
#include <tuple>

namespace attnc {

/// Returns references to all members. `Options`: KernelOptions, const or not.
template <class Options> auto fieldsOf(Options& options) {
  return std::tuple_cat(
#define ATTNC_OPTION(member, name, label) std::tie(options.member),
#include "attnc/options.def"
      std::tuple<>());
}

/// Returns all options as text: with the mod, the key of kernels in memory. Different options have different keys.
std::string optionsKey(const KernelOptions& options);

} // namespace attnc
