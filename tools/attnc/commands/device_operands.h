// Operands and results of a run in device memory.
#pragma once

#include "commands/result.h"
#include "problem/operands.h"
#include "problem/problem_options.h"

#include "support/try.h"
#include "tools/device/device.h"

#include <utility>
#include <vector>

namespace attnc::cli {

/// Device copies of tensors. Their memory lives as long as this object.
class DeviceTensors {
public:
  Expected<TensorView> upload(const HostTensor& tensor) {
    auto view = allocate(tensor);
    if (!view) return view;
    ATTNC_TRY(buffers.back().upload(tensor.bytes.data(), tensor.bytes.size()));
    return view;
  }
  /// Allocates uninitialised memory. The tensor in host memory needs no bytes.
  Expected<TensorView> allocate(const HostTensor& tensor) {
    ATTNC_TRY_AS(memory, allocate(size_t(tensor.elements() * dtypeBytes(tensor.dtype))));
    TensorView view = tensor.view();
    view.data = *memory;
    return view;
  }
  Expected<void*> allocate(size_t bytes) {
    ATTNC_TRY_AS(buffer, device::Buffer::allocate(bytes));
    buffers.push_back(std::move(*buffer));
    return buffers.back().data();
  }
  /// Returns a buffer; they are in the order of their allocation.
  device::Buffer& operator[](size_t index) { return buffers[index]; }
  size_t size() const { return buffers.size(); }

private:
  std::vector<device::Buffer> buffers;
};

/// The operands and outputs of a run. The views point into memory that lives as long as this object.
class DeviceOperands {
public:
  /// Both arguments must outlive this object.
  DeviceOperands(const HostOperands& operands, const ProblemOptions& options) : operands(operands), options(options) {}
  DeviceOperands(const DeviceOperands&) = delete;

  /// Uploads all operands, allocates the results, and fills the views.
  Status place();
  /// Prepares the launch, with a backward pass that of training. `mod` has its pins folded in.
  Expected<Prepared> prepare(const Compiler& compiler, const Mod& mod) const;
  /// Copies the results into `result`.
  Status download();

  BackwardOperands inputs; // for a forward pass only its Operands are used
  Outputs outputs;
  BackwardOutputs gradients;
  DeviceTensors memory;
  RunResult result; ///< holds all requested tensors

private:
  Status uploadCaptures();
  Expected<TensorView> placeResult(HostTensor& host);
  Status placeGradients();

  const HostOperands& operands;
  const ProblemOptions& options;
  Captures captures;
  Captures captureGradients, reductions;
  std::vector<std::pair<size_t, HostTensor*>> results; // buffers, and their targets in `result`
};

} // namespace attnc::cli
