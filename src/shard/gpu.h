// The machine that computes by kernels, in device memory.
#pragma once

#include "shard/machine.h"

namespace attnc::shard {

/// Compiles and loads the kernels that join stages, for out of this dtype and head dim. `trains`: also for gradients.
Expected<std::unique_ptr<Machine>> makeGpu(const Compiler& compiler, DType dtype, int headDimV, bool trains);

} // namespace attnc::shard
