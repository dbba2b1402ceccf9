#include "plan/tensor_maps.h"
#include "support/try.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace attnc::plan {

static constexpr const char* kRemedy =
    "compile with KernelOptions::family = Sm80, which takes any layout; Compiler::prepare sees to that";

static Expected<Mapped> mapped(std::string_view name, const jit::TensorMapRequest& request, int batchStep) {
  auto encoded = jit::encodeTensorMap(request);
  if (!encoded)
    return Error::environment(
        fmt::format("{} has a layout that the copy engine cannot describe: {}", name, encoded.error().message),
        kRemedy);
  Mapped mapped;
  std::memcpy(mapped.map.words, encoded->data(), sizeof mapped.map.words);
  mapped.batchStep = batchStep;
  return mapped;
}

Status encodeMaps(llvm::ArrayRef<MapPlace> places, const LaunchOperands& operands) {
  for (const MapPlace& place : places) {
    *place.batchStep = batchStepOf(*place.tensor);
    const jit::TensorMapRequest request =
        requestOf(*place.tensor, place.boxRows, somewhereIn(operands), place.promotion);
    ATTNC_TRY_AS(encoded, mapped(place.name, request, *place.batchStep));
    *place.map = encoded->map;
  }
  return {};
}

Status checkMappable(std::string_view name, const TensorView& tensor, bool isPool) {
  if (tensor.elements() == 0) return {};
  if (reinterpret_cast<uintptr_t>(tensor.data) % 16)
    return Error::environment(fmt::format("{} does not begin at a multiple of 16 bytes", name), kRemedy);
  const int64_t step = 16 / dtypeBytes(tensor.dtype), limit = (int64_t(1) << 40) / dtypeBytes(tensor.dtype);
  for (auto [axis, label] : {std::pair(0, isPool ? "page" : "batch"), {1, "head"}, {2, "row"}}) {
    const int64_t stride = tensor.stride[axis];
    const bool broadcasts = axis == 0 && stride == 0 && !isPool; // the batch coordinate then stays 0
    if (tensor.shape[axis] <= 1 || broadcasts) continue;
    if (stride % step == 0 && stride > 0 && stride < limit) continue;
    return Error::environment(
        fmt::format("{} has a {} stride of {}, sm90 takes multiples of {} (16 bytes) above 0 and below 2^40 bytes",
                    name, label, stride, step),
        kRemedy);
  }
  return {};
}

Status checkMappableOnGrid(std::string_view name, const TensorView& tensor) {
  ATTNC_TRY(checkMappable(name, tensor));
  const Strides strides = stridesOf(tensor);
  if (tensor.shape[0] <= 1 || tensor.shape[1] <= 1) return {};
  if (strides.batch % strides.head == 0 && tensor.shape[0] * (strides.batch / strides.head) <= INT32_MAX) return {};
  if (strides.batch % strides.head == 0)
    return Error::environment(
        fmt::format("{} has a batch stride of {} times its head stride, too many for coordinates of 32 bits", name,
                    strides.batch / strides.head),
        kRemedy);
  return Error::environment(fmt::format("{} has a batch stride of {}, which is no multiple of its head stride, {}",
                                        name, strides.batch, strides.head),
                            kRemedy);
}

Expected<Mapped> mapOnGrid(std::string_view name, const TensorView& tensor, const std::array<int64_t, 3>& extents,
                           const std::array<int, 3>& box, void* somewhere, int64_t first) {
  const bool isEmpty = tensor.elements() == 0 || extents[2] == 0;
  const Strides strides = isEmpty ? Strides{} : stridesOf(tensor);
  const uint64_t bytes = uint64_t(dtypeBytes(tensor.dtype));
  const int64_t batch = isEmpty || !strides.batch ? 1 : tensor.shape[0], heads = isEmpty ? 1 : tensor.shape[1];
  // A single head's stride may be anything, so the batch's stride serves instead.
  const int64_t headStride = heads > 1 ? strides.head : strides.batch,
                batchStep = batch > 1 ? strides.batch / headStride : 0;
  const auto step = [&](int64_t stride) { return stride ? uint64_t(stride) * bytes : 16; };
  jit::TensorMapRequest request;
  request.data = isEmpty ? somewhere : static_cast<char*>(tensor.data) + uint64_t(first * strides.row) * bytes;
  request.dtype = tensor.dtype;
  request.rank = 5;
  const auto extent = [&](size_t axis) { return uint64_t(isEmpty ? 1 : extents[axis]); };
  request.extent = {uint64_t(tensor.shape[3]), extent(2), extent(1), extent(0),
                    uint64_t((batch - 1) * batchStep + heads)};
  request.strideBytes = {step(strides.row), step(strides.row * extents[2]), step(strides.row * extents[2] * extents[1]),
                         step(headStride)};
  request.box = {uint32_t(128 / bytes), uint32_t(box[2]), uint32_t(box[1]), uint32_t(box[0]), 1};
  return mapped(name, request, int(batchStep));
}

Status mapRuns(std::string_view name, const TensorView& tensor, const std::array<int64_t, 3>& extents,
               const std::array<int64_t, 2>& tokens, int boxTokens, void* somewhere, TensorMap* maps) {
  const int64_t first[] = {0, tokens[0] + extents[0] * extents[1] * extents[2]};
  for (size_t run = 0; run < 2; ++run) {
    ATTNC_TRY_AS(mapped, mapOnGrid(name, tensor, {1, 1, tokens[run]}, {1, 1, boxTokens}, somewhere, first[run]));
    maps[run] = mapped->map;
  }
  return {};
}

} // namespace attnc::plan

#include "templates/host/maps.h"
