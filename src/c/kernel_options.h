// Reads a C caller's options of kernels and of preparations.
#pragma once

#include "attnc/c/prepared.h"
#include "attnc/kernel.h"
#include "attnc/prepared.h"
#include "c/arguments.h"

namespace attnc::c {

KernelOptions readKernelOptions(const attnc_kernel_options* given, const Place& place);

/// NULL means all defaults.
PrepareOptions readPrepareOptions(const attnc_prepare_options* given);

} // namespace attnc::c
