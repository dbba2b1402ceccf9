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

constexpr const char* kRemedy =
    "compile with KernelOptions::family = Sm80, which takes any layout; Compiler::forLayout sees to that";

/// Precondition: checkLayoutSm90 accepted the tensor. `somewhere`: any address that is aligned to 16 bytes.
Expected<Mapped> mapOf(std::string_view name, const TensorView& tensor, int boxRows, void* somewhere) {
  // An empty tensor is described as one row, which the kernel never asks for.
  const bool isEmpty = tensor.elements() == 0;
  const Strides strides = isEmpty ? Strides{} : stridesOf(tensor);
  const uint64_t bytes = uint64_t(dtypeBytes(tensor.dtype));
  jit::TensorMapRequest request;
  request.data = isEmpty ? somewhere : tensor.data;
  request.dtype = tensor.dtype;
  request.extent = {uint64_t(tensor.shape[3]), uint64_t(isEmpty ? 1 : tensor.shape[2]),
                    uint64_t(isEmpty ? 1 : tensor.shape[1]), uint64_t(strides.batch ? tensor.shape[0] : 1)};
  // A stride of 0 stands for an axis that is never stepped along; the driver wants a multiple of 16 all the same.
  const auto step = [&](long long stride) { return stride ? uint64_t(stride) * bytes : 16; };
  request.strideBytes = {step(strides.row), step(strides.head), step(strides.batch)};
  request.box = {64, uint32_t(boxRows), 1, 1};
  auto encoded = jit::encodeTensorMap(request);
  if (!encoded)
    return Error::environment(
        fmt::format("{} has a layout that the copy engine cannot describe: {}", name, encoded.error().message),
        kRemedy);
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

Status checkLayoutSm90(const ForwardArgs& args) {
  for (auto [name, tensor] : {std::pair("q", &args.q), {"k", &args.k}, {"v", &args.v}, {"out", &args.out}}) {
    if (tensor->elements() == 0) continue;
    if (reinterpret_cast<uintptr_t>(tensor->data) % 16)
      return Error::environment(fmt::format("{} does not begin at a multiple of 16 bytes", name), kRemedy);
    const int64_t step = 16 / dtypeBytes(tensor->dtype), limit = (int64_t(1) << 40) / dtypeBytes(tensor->dtype);
    for (auto [axis, label] : {std::pair(0, "batch"), {1, "head"}, {2, "row"}}) {
      const int64_t stride = tensor->stride[axis];
      const bool broadcasts = axis == 0 && stride == 0; // the batch coordinate then stays 0
      if (tensor->shape[axis] <= 1 || broadcasts) continue;
      if (stride % step == 0 && stride > 0 && stride < limit) continue;
      return Error::environment(
          fmt::format("{} has a {} stride of {}, sm90 takes multiples of {} (16 bytes) above 0 and below 2^40 bytes",
                      name, label, stride, step),
          kRemedy);
    }
  }
  return {};
}

Expected<ForwardParamsSm90> makeForwardParamsSm90(const ForwardArgs& args, const ForwardParams& base,
                                                  const plan::Plan& plan, const DeviceTraits& device,
                                                  void* workspace) {
  if (Status status = checkLayoutSm90(args); !status) return status.error();
  auto q = mapOf("q", args.q, plan.blockM, args.q.data);
  if (!q) return q.error();
  auto k = mapOf("k", args.k, plan.blockN, args.q.data);
  if (!k) return k.error();
  auto v = mapOf("v", args.v, plan.blockN, args.q.data);
  if (!v) return v.error();
  auto out = mapOf("out", args.out, plan.blockM, args.q.data);
  if (!out) return out.error();
  ForwardParamsSm90 params{q->map,       k->map,       v->map,       out->map,      base, {},
                           q->batchStep, k->batchStep, v->batchStep, out->batchStep};
  params.order.q_tiles = (base.q_len + plan.blockM - 1) / plan.blockM;
  params.order.heads = base.batch * base.q_heads;
  params.order.section = sectionHeads(base, plan.options, device.l2Bytes);
  params.order.counters = static_cast<unsigned*>(workspace);
  return params;
}

} // namespace attnc
