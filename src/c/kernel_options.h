// Options of kernels and of preparations, as a C caller gives them.
#pragma once

#include "attnc/c/prepared.h"
#include "attnc/kernel.h"
#include "attnc/prepared.h"
#include "c/call.h"

namespace attnc::c {

KernelOptions readKernelOptions(Arguments& arguments, const attnc_kernel_options* given, const Place& place);

/// NULL is all defaults.
PrepareOptions readPrepareOptions(Arguments& arguments, const attnc_prepare_options* given);

} // namespace attnc::c
