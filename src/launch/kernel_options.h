// Options of kernels, before any kernel is chosen.
#pragma once

#include "attnc/kernel.h"

namespace attnc::plan {

/// Whether a head dim is above 256. Only decode kernels of sm_90a and naive forward kernels take these.
inline bool hasWideHeads(const KernelOptions& options) { return options.headDim > 256 || options.headDimV > 256; }

/// Returns the options with derived values filled in: headDimV.
KernelOptions completed(KernelOptions options);

/// Checks that the options ask for nothing that kernels of ragged batches do not take.
Status checkRaggedOptions(const KernelOptions& options);

/// Checks that lengths, offsets, pages, appended rows and ragged batches fit each other.
Status checkSequenceOptions(const KernelOptions& options);

} // namespace attnc::plan
