// What a GPU can do at most, by its data.
#pragma once

#include "attnc/error.h"

namespace attnc::device {

struct TensorCores {
  int multiprocessors = 0;
  double clockHz = 0;    ///< the highest; under load it may be lower
  int flopsPerClock = 0; ///< of a multiprocessor: dense products of bf16 or fp16 with sums in f32; 0: not known

  /// Floating-point operations in a second; 0: not known.
  double flops() const { return multiprocessors * clockHz * flopsPerClock; }
};

/// Of the current context's device.
Expected<TensorCores> tensorCores();

/// FLOPs a clock of a multiprocessor of this compute capability, as TensorCores::flopsPerClock. Boards may have less: the
/// GeForce ones of 8.6, 8.9 and 12.0 have half.
int tensorFlopsPerClock(int major, int minor);

} // namespace attnc::device
