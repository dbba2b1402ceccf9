// The one list of everything that distinguishes kernels.
#pragma once

#include "attnc/kernel.h"

#include <string>
#include <tuple>

namespace attnc {

// Every member of KernelOptions, in order. fieldsOf() does not compile if a member is missing.
#define ATTNC_KERNEL_OPTIONS                                                                                           \
  kind, family, arch, dtype, headDim, headDimV, blockSparse, maskQBlock, maskKvBlock, maskByBoxes, listsOfWholeMod,    \
      columnLists, rowMax, packedRows, fp8Kv, lengths, offsets, pageSize, appends, ragged, byGrid, tf32, pins,         \
      gradients, deterministic, tile

/// Returns references to all members. `Options`: KernelOptions, const or not.
template <class Options> auto fieldsOf(Options& options) {
  auto& [ATTNC_KERNEL_OPTIONS] = options;
  return std::tie(ATTNC_KERNEL_OPTIONS);
}

#undef ATTNC_KERNEL_OPTIONS

/// Returns all options as text: with the mod, the key of kernels in memory. Different options have different keys.
std::string optionsKey(const KernelOptions& options);

} // namespace attnc
