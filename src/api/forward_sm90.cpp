#include "api/forward_sm90.h"

#include "jit/tensor_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace attnc {
namespace {

/// A map over (head_dim, rows, heads, batch) and the step of its batch coordinate: 0 where the batch is broadcast.
struct Mapped {
  TensorMap map;
  int batchStep;
};

Expected<Mapped> mapOf(std::string_view name, const TensorView& tensor, const Strides& strides, int boxRows,
                       void* somewhere) {
  const bool repeats = (tensor.shape[1] > 1 && strides.head <= 0) || (tensor.shape[2] > 1 && strides.row <= 0) ||
                       strides.batch < 0;
  if (repeats && tensor.elements())
    return Error::environment(fmt::format("{} has a stride of 0 or less, which the copy engine cannot describe", name),
                              "compile with KernelOptions::family = Sm80");
  const uint64_t bytes = uint64_t(dtypeBytes(tensor.dtype));
  jit::TensorMapRequest request;
  request.data = tensor.data ? tensor.data : somewhere;
  request.dtype = tensor.dtype;
  // An empty tensor is described as one row, which the kernel never asks for.
  request.extent = {uint64_t(tensor.shape[3]), uint64_t(std::max<int64_t>(tensor.shape[2], 1)),
                    uint64_t(tensor.shape[1]), uint64_t(strides.batch ? tensor.shape[0] : 1)};
  // A stride of 0 stands for an axis that is never stepped along; the driver wants a multiple of 16 all the same.
  const auto step = [&](long long stride) { return stride ? uint64_t(stride) * bytes : 16; };
  request.strideBytes = {step(strides.row), step(strides.head), step(strides.batch)};
  request.box = {64, uint32_t(boxRows), 1, 1};
  auto encoded = jit::encodeTensorMap(request);
  if (!encoded)
    return Error::environment(fmt::format("{} has a layout that the copy engine cannot describe: {}", name,
                                          encoded.error().message),
                              "compile with KernelOptions::family = Sm80");
  Mapped mapped;
  std::memcpy(mapped.map.words, encoded->data(), sizeof mapped.map.words);
  mapped.batchStep = strides.batch ? 1 : 0;
  return mapped;
}

/// Heads of a section: as many as keep K and V in about half of L2, in whole groups, and sections of equal size.
int sectionHeads(const ForwardParams& p, const KernelOptions& options, int64_t l2Bytes) {
  const int64_t kvBytes = int64_t(p.kv_len) * (options.headDim + options.headDimV) * dtypeBytes(options.dtype);
  // 60 MiB, and all of it near enough, on an H200: sections of 32 MiB measure best there.
  const int64_t budget = l2Bytes * 8 / 15;
  const int64_t kvHeads = std::clamp<int64_t>(budget / std::max<int64_t>(1, kvBytes), 1, 64);
  const int64_t allKvHeads = std::max<int64_t>(1, int64_t(p.batch) * p.kv_heads);
  const int64_t sections = (allKvHeads + kvHeads - 1) / kvHeads;
  return int((allKvHeads + sections - 1) / sections * p.group);
}

} // namespace

Expected<ForwardParamsSm90> makeForwardParamsSm90(const ForwardArgs& args, const ForwardParams& base,
                                                  const kernels::Plan& plan, const DeviceTraits& device,
                                                  void* workspace) {
  if (!base.vectors)
    return Error::environment("q, k, v and out must have 16-byte aligned rows for the sm90 kernel",
                              "compile with KernelOptions::family = Sm80, which takes any strides");
  auto q = mapOf("q", args.q, base.q_stride, plan.blockM, args.q.data);
  if (!q) return q.error();
  auto k = mapOf("k", args.k, base.k_stride, plan.blockN, args.q.data);
  if (!k) return k.error();
  auto v = mapOf("v", args.v, base.v_stride, plan.blockN, args.q.data);
  if (!v) return v.error();
  ForwardParamsSm90 params{q->map, k->map, v->map, base, {}, q->batchStep, k->batchStep, v->batchStep};
  params.order.q_tiles = (base.q_len + plan.blockM - 1) / plan.blockM;
  params.order.heads = base.batch * base.q_heads;
  params.order.section = sectionHeads(base, plan.options, device.l2Bytes);
  params.order.counters = static_cast<unsigned*>(workspace);
  return params;
}

} // namespace attnc
