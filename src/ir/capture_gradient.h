// Gradients of captures as outputs of a module, added by passes/autodiff.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace attnc::ir {

/// One place where score_mod, prob_mod or sink_mod reads a capture.
struct CaptureGradient {
  std::string capture;              ///< the name of the tensor or scalar
  std::string output;               ///< name of the output with the gradient, "d_bias_0"
  std::vector<std::string> indices; ///< outputs with the index along each axis, "d_bias_0_index1"; an index outside the
                                    ///< tensor means the nearest one inside. Empty for a capture without axes
  int64_t rounds = 1;               ///< how often an element of attention reads it; `round` counts from 0
  bool ofFactor = false;            ///< whether `output` is the gradient of a factor: of a row or column, and a round
  bool ofSink = false;              ///< whether sink_mod reads it; `output` is a gradient of rows
  bool ofOutputs = false;           ///< whether outputs of the mod read it; `output` is a function of `prob`
  bool ofProb = false;              ///< whether prob_mod reads it; `output` is a function of `prob`, and of no score
};

/// Gradients of several captures.
struct CaptureGradients {
  std::vector<std::string> captures; ///< the requested ones, each once; one without a place has the gradient 0
  std::vector<CaptureGradient>
      places;            ///< those of outputs, prob_mod, sink_mod and score_mod, each in the order of `captures`
  bool hasStops = false; ///< whether score_mod stops gradients, so that not each read of a capture is a place
};

} // namespace attnc::ir
