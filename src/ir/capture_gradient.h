// Gradients of captures as outputs of a module; passes/autodiff.h makes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace attnc::ir {

/// One place where score_mod reads a capture.
struct CaptureGradient {
  std::string capture;              ///< the name of the tensor or scalar
  std::string output;               ///< the output with the gradient, "d_bias_0"
  std::vector<std::string> indices; ///< outputs with the index along each axis, "d_bias_0_index1"; an index outside the
                                    ///< tensor means the nearest inside. None for what has no axes
  int64_t rounds = 1;               ///< how often an element of attention reads it; `round` counts from 0
};

/// Gradients of several captures.
struct CaptureGradients {
  std::vector<std::string> captures;   ///< those that are asked for, each once; one without a place has the gradient 0
  std::vector<CaptureGradient> places; ///< of these, in their order
};

} // namespace attnc::ir
