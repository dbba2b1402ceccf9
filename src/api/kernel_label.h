// A one-line description of a kernel, for listings of a cache or a pack.
#pragma once

#include "attnc/kernel.h"
#include "attnc/mod.h"

#include <string>

namespace attnc {

/// Returns "kind=forward family=sm90 dtype=bf16 head-dim=128 mod=0123456789ab with=block-mask,lengths": words without
/// spaces. `options` are complete. If several kernels share a program, it has the label of the one that was compiled
/// first.
std::string kernelLabel(const Mod& mod, const KernelOptions& options);

} // namespace attnc
