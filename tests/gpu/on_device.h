// A problem in device memory, for tests that launch by themselves.
#pragma once

#include "gpu.h"

namespace attnc::gputest {

/// Returns device memory that holds this byte everywhere.
device::Buffer filled(size_t bytes, unsigned char byte);

/// Tensors in device memory, each in a buffer of its own.
struct Placed {
  std::vector<device::Buffer> buffers; ///< in the order of place()

  /// Uploads a tensor. Returns a view of it there.
  TensorView place(const cli::HostTensor& tensor);
  /// Returns the elements of a buffer, which has the shape and dtype of `like`.
  std::vector<double> read(size_t index, const cli::HostTensor& like) const;
};

/// The operands of a problem and the captures of a mod, drawn at random, and room for results. Results hold NaN.
struct OnDevice : Placed {
  Problem problem;
  HostOperands host;
  std::optional<ResultGradients> given;
  DeviceCaptures captures;
  BackwardOperands inputs;
  Outputs outputs;             ///< out and lse
  BackwardOutputs gradients;   ///< of q, k and v, if `given`
  std::vector<size_t> results; ///< indices of the buffers of outputs and gradients, in this order

  OnDevice(const Mod& mod, const Problem& problem, std::optional<ResultGradients> given = {});
  OnDevice(const OnDevice&) = delete; // inputs point to captures

  TensorView placeResult(const cli::HostTensor& like);
  /// Fills all results with NaN.
  void poison();
  Outcome outcome() const;
  /// Fails unless out and lse are those of the reference.
  void check(const Mod& mod) const;
  /// Fails unless gradients are those of the reference.
  void checkTraining(const Mod& mod) const;
};

} // namespace attnc::gputest
