// The limits of a GPU, from its attributes and its compute capability.
#pragma once

#include "attnc/error.h"

namespace attnc::device {

struct TensorCores {
  int multiprocessors = 0;
  double clockHz = 0;    ///< maximum; may be lower under load
  int flopsPerClock = 0; ///< per multiprocessor: dense products of bf16 or fp16 with sums in f32; 0: unknown

  /// Returns the floating-point operations per second; 0: unknown.
  double flops() const { return multiprocessors * clockHz * flopsPerClock; }
};

/// Returns the tensor cores of the current context's device.
Expected<TensorCores> tensorCores();

/// Returns the FLOPs per clock of a multiprocessor of this compute capability, as in TensorCores::flopsPerClock. Boards
/// may have less: GeForce boards of 8.6, 8.9 and 12.0 have half.
int tensorFlopsPerClock(int major, int minor);

} // namespace attnc::device
