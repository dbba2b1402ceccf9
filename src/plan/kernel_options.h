// Options of kernels, before any kernel is chosen.
#pragma once

#include "attnc/kernel.h"

namespace attnc::plan {

/// Returns the options with derived values filled in: headDimV.
KernelOptions completed(KernelOptions options);

/// Checks that the options ask for nothing that kernels of ragged batches do not take.
Status checkRaggedOptions(const KernelOptions& options);

/// Checks that lengths, offsets, pages, appended rows and ragged batches fit each other.
Status checkSequenceOptions(const KernelOptions& options);

} // namespace attnc::plan
