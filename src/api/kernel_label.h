// What a kernel is, in a line for who lists a cache or a pack.
#pragma once

#include "attnc/kernel.h"
#include "attnc/mod.h"

#include <string>

namespace attnc {

/// "kind=forward family=sm90 dtype=bf16 head-dim=128 mod=0123456789ab with=block-mask,lengths": words without spaces.
/// `options` are complete. A program that several kernels share has the label of the one that was compiled first.
std::string kernelLabel(const Mod& mod, const KernelOptions& options);

} // namespace attnc
