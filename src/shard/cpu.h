// The machine that computes by the reference, in host memory.
#pragma once

#include "shard/machine.h"

namespace attnc::shard {

/// Out has this dtype and head dim.
std::unique_ptr<Machine> makeCpu(DType dtype, int headDimV);

} // namespace attnc::shard
