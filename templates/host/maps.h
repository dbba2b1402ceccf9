// Tensor maps of operands, and sections of heads that fit into L2.
//
// Host code, compiled twice: with the library (src/plan), and as text in the launcher of an emitted kernel. There,
// host/types.h stands for the library's types. So it names only members that both have, and includes nothing.
#pragma once

namespace attnc::plan {

void* somewhereIn(const LaunchOperands& operands) {
  for (const TensorView* tensor : {&operands.q, &operands.k, &operands.v})
    if (tensor->elements()) return tensor->data;
  return nullptr;
}

/// Returns what a map of a tensor is encoded from: over (head_dim, rows, heads, batch). `somewhere`: any address that
/// is aligned to 16 bytes, for empty tensors. A batch that is broadcast, with stride 0, has extent 1.
jit::TensorMapRequest requestOf(const TensorView& tensor, int boxRows, void* somewhere, jit::L2Promotion promotion) {
  // An empty tensor is described as one row, which the kernel never reads.
  const bool isEmpty = tensor.elements() == 0;
  const Strides strides = isEmpty ? Strides{} : stridesOf(tensor);
  const uint64_t bytes = uint64_t(dtypeBytes(tensor.dtype));
  jit::TensorMapRequest request;
  request.data = isEmpty ? somewhere : tensor.data;
  request.dtype = tensor.dtype;
  request.extent = {uint64_t(tensor.shape[3]), uint64_t(isEmpty ? 1 : tensor.shape[2]),
                    uint64_t(isEmpty ? 1 : tensor.shape[1]), uint64_t(strides.batch ? tensor.shape[0] : 1)};
  // A stride of 0 belongs to an axis that is never stepped along; the driver still wants a multiple of 16.
  const auto step = [&](long long stride) { return stride ? uint64_t(stride) * bytes : 16; };
  request.strideBytes = {step(strides.row), step(strides.head), step(strides.batch)};
  request.promotion = promotion;
  request.box = {uint32_t(128 / bytes), uint32_t(boxRows), 1, 1};
  return request;
}

/// Returns the step of a map's batch coordinate: 0 if the batch is broadcast.
int batchStepOf(const TensorView& tensor) { return tensor.elements() && stridesOf(tensor).batch ? 1 : 0; }

int64_t sectionOf(int64_t heads, int64_t headBytes, int64_t l2Bytes) {
  // An H200 has 60 MiB of L2, all of it near enough: sections of 32 MiB measure best there.
  const int64_t budget = l2Bytes * 8 / 15;
  const int64_t most = std::clamp<int64_t>(budget / std::max<int64_t>(1, headBytes), 1, 64);
  heads = std::max<int64_t>(1, heads);
  const int64_t sections = (heads + most - 1) / most;
  return (heads + sections - 1) / sections;
}

} // namespace attnc::plan
