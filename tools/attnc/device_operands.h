// Operands in device memory, and room for what a run gives.
#pragma once

#include "operands.h"
#include "result.h"
#include "run_options.h"

#include "tools/device/device.h"

#include <utility>
#include <vector>

namespace attnc::cli {

/// Device copies of tensors; they live as long as this does.
class DeviceTensors {
public:
  Expected<TensorView> upload(const HostTensor& tensor) {
    auto view = allocate(tensor);
    if (!view) return view;
    if (auto status = buffers.back().upload(tensor.bytes.data(), tensor.bytes.size()); !status) return status.error();
    return view;
  }
  /// Not written; the tensor in host memory needs no bytes.
  Expected<TensorView> allocate(const HostTensor& tensor) {
    auto memory = allocate(size_t(tensor.elements() * dtypeBytes(tensor.dtype)));
    if (!memory) return std::move(memory).error();
    TensorView view = tensor.view();
    view.data = *memory;
    return view;
  }
  Expected<void*> allocate(size_t bytes) {
    auto buffer = device::Buffer::allocate(bytes);
    if (!buffer) return std::move(buffer).error();
    buffers.push_back(std::move(*buffer));
    return buffers.back().data();
  }
  /// Buffers in the order of their allocation.
  device::Buffer& operator[](size_t index) { return buffers[index]; }
  size_t size() const { return buffers.size(); }

private:
  std::vector<device::Buffer> buffers;
};

/// What a run reads and writes. The views point into memory that lives as long as this does.
class DeviceOperands {
public:
  /// Both must live as long.
  DeviceOperands(const HostOperands& operands, const RunOptions& options) : operands(operands), options(options) {}
  DeviceOperands(const DeviceOperands&) = delete;

  /// Uploads all that is read, makes room for the results, and says in the views what is computed.
  Status place();
  /// Brings the results into `result`.
  Status download();

  BackwardOperands inputs; // of a forward pass alone, the Operands in it
  Outputs outputs;
  BackwardOutputs gradients;
  DeviceTensors memory;
  RunResult result; ///< with all tensors that were asked for

private:
  Status uploadCaptures();
  Expected<TensorView> placeResult(HostTensor& host);
  Status placeGradients();
  Status placeOperands();

  const HostOperands& operands;
  const RunOptions& options;
  Captures captures;
  Captures captureGradients;
  std::vector<std::pair<size_t, HostTensor*>> results; // buffers, and where in `result` they go
};

} // namespace attnc::cli
