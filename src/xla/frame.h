// What a custom call gives its handler, read and checked.
#pragma once

#include "attnc/c.h"
#include "attnc/error.h"
#include "xla/ffi.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attnc::xla {

/// A pass over tensors of XLA, as the structs of the C interface.
class Frame {
public:
  /// Reads a call. Blame::Environment: operands, results or attributes other than those of attnc/c/xla.h.
  static Expected<Frame> read(const ffi::CallFrame& frame);

  /// The structs of a launch, which point into the frame.
  struct Structs {
    std::vector<attnc_capture> captures, gradients, reductions;
    attnc_operands operands;
    attnc_outputs outputs;
    attnc_backward_operands backwardOperands;
    attnc_backward_outputs backwardOutputs;
  };
  /// Fills the structs. They must not move, and the frame must outlive them.
  void fill(Structs& structs) const;

  /// Returns what a preparation depends on: attributes, dtypes and shapes.
  std::string key() const;

  std::string mod; ///< IR text
  bool isBackward = false;
  void* workspace = nullptr; ///< may be null
  size_t workspaceBytes = 0;

private:
  std::vector<std::string> captures, gradients, reductions; ///< names
  std::vector<attnc_tensor> operands, results;              ///< results without the workspace
  float scale = 0;
  bool hasLseGradient = false, hasTangents = false;
  bool hasGradients = false; ///< whether dq, dk and dv are results
};

} // namespace attnc::xla
