#include "launch/tensor_maps.h"
#include "support/try.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace attnc::plan {
namespace {

constexpr const char* kRemedy =
    "compile with KernelOptions::family = Sm80, which takes any layout; Compiler::prepare sees to that";

thread_local const MapEncoder* encoder = nullptr; ///< the one that lives, if any

Expected<TensorMap> encoded(std::string_view name, const jit::TensorMapRequest& request) {
  if (encoder) return encoder->encode(request);
  auto words = jit::encodeTensorMap(request);
  if (!words)
    return Error::environment(
        fmt::format("{} has a layout that the copy engine cannot describe: {}", name, words.error().message), kRemedy);
  TensorMap map;
  std::memcpy(map.words, words->data(), sizeof map.words);
  return map;
}

/// Returns what a map of a tensor is encoded from: over (head_dim, rows, heads, batch). `somewhere`: any address that
/// is aligned to 16 bytes, for empty tensors. A batch that is broadcast, with stride 0, has extent 1.
jit::TensorMapRequest requestOf(const TensorView& tensor, int boxRows, void* somewhere, L2Promotion promotion) {
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

} // namespace

MapEncoder::MapEncoder(Encode encode) : encode(std::move(encode)) { encoder = this; }
MapEncoder::~MapEncoder() { encoder = nullptr; }

Status encodeMaps(llvm::ArrayRef<MapPlace> places, const LaunchOperands& operands) {
  for (const MapPlace& place : places) {
    *place.batchStep = batchStepOf(*place.tensor);
    const jit::TensorMapRequest request =
        requestOf(*place.tensor, place.boxRows, somewhereIn(operands), place.promotion);
    ATTNC_TRY_AS(map, encoded(place.name, request));
    *place.map = *map;
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
  ATTNC_TRY_AS(map, encoded(name, request));
  return Mapped{*map, int(batchStep)};
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

void* somewhereIn(const LaunchOperands& operands) {
  for (const TensorView* tensor : {&operands.q, &operands.k, &operands.v})
    if (tensor->elements()) return tensor->data;
  return nullptr;
}

int64_t sectionOf(int64_t heads, int64_t headBytes, int64_t l2Bytes) {
  // An H200 has 60 MiB of L2, all of it near enough: sections of 32 MiB measure best there.
  const int64_t budget = l2Bytes * 8 / 15;
  const int64_t most = std::clamp<int64_t>(budget / std::max<int64_t>(1, headBytes), 1, 64);
  heads = std::max<int64_t>(1, heads);
  const int64_t sections = (heads + most - 1) / most;
  return (heads + sections - 1) / sections;
}

} // namespace attnc::plan
