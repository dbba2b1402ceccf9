#include "c/operands.h"

#include "c/enumerators.h"
#include "c/structs.h"

#include <fmt/format.h>

namespace attnc::c {
namespace {

BlockMaskColumns readAxis(const attnc_block_lists& lists) {
  return {lists.partial_count, lists.partial_index, lists.full_count, lists.full_index, lists.index_stride};
}

/// Reads one capture. `place`: of the array, in which it is element `index`.
void readCapture(const attnc_capture& given, const Place& place, size_t index, Captures& captures) {
  need(given.name, place.at(index, "name"));
  readReserved(given.reserved, place.at(index, "reserved"));
  const std::string name = given.name;
  switch (given.kind) {
  case ATTNC_CAPTURE_TENSOR: captures.set(name, requiredTensor(given.tensor, name)); return;
  case ATTNC_CAPTURE_INT: captures.set(name, given.integer); return;
  case ATTNC_CAPTURE_FLOAT: captures.set(name, given.real); return;
  case ATTNC_CAPTURE_BOOL: captures.set(name, readFlag(given.integer, name)); return;
  }
  refuse(name, fmt::format("has kind {}, which is no kind of capture", given.kind));
}

} // namespace

void checkRank(int32_t rank, const Place& place) {
  if (rank < 0 || rank > ATTNC_MAX_RANK)
    refuse(place, fmt::format("has rank {}, expected 0 .. {}", rank, int(ATTNC_MAX_RANK)));
}

std::optional<TensorView> readTensor(const attnc_tensor* given, const Place& place) {
  if (!given) return {};
  const attnc_tensor tensor = readStruct(given, place);
  const std::optional<DType> dtype = dtypeOf(tensor.dtype);
  if (!dtype) refuse(place, fmt::format("has dtype {}, which is none", tensor.dtype));
  checkRank(tensor.rank, place);
  TensorView view{.data = tensor.data, .dtype = *dtype, .rank = tensor.rank};
  for (int axis = 0; axis < tensor.rank; ++axis) {
    if (tensor.shape[axis] < 0) refuse(place, fmt::format("has extent {} along axis {}", tensor.shape[axis], axis));
    view.shape[size_t(axis)] = tensor.shape[axis];
    view.stride[size_t(axis)] = tensor.stride[axis];
  }
  return view;
}

TensorView requiredTensor(const attnc_tensor* given, const Place& place) {
  need(given, place);
  return *readTensor(given, place);
}

void readCaptures(const attnc_capture* given, size_t count, const Place& place, Captures& captures) {
  if (count) need(given, place);
  for (size_t i = 0; i < count; ++i) {
    const attnc_capture* at = element(given, i);
    if (at->struct_size != given->struct_size)
      refuse(place,
             fmt::format("has a struct_size of {} at {}, and of {} at 0", at->struct_size, i, given->struct_size));
    readCapture(readStruct(at, place.at(i)), place, i, captures);
  }
}

std::map<std::string, int64_t> readPins(const attnc_pin* given, size_t count, const Place& place) {
  std::map<std::string, int64_t> pins;
  if (count) need(given, place);
  for (size_t i = 0; i < count; ++i) {
    need(given[i].name, place.at(i, "name"));
    pins[given[i].name] = given[i].value;
  }
  return pins;
}

std::vector<std::string> readTexts(const char* const* given, size_t count, const Place& place) {
  std::vector<std::string> texts;
  if (count) need(given, place);
  for (size_t i = 0; i < count; ++i) {
    need(given[i], place.at(i));
    texts.push_back(given[i]);
  }
  return texts;
}

std::set<std::string> readNames(const char* const* given, size_t count, const Place& place) {
  const std::vector<std::string> texts = readTexts(given, count, place);
  return {texts.begin(), texts.end()};
}

std::optional<BlockMaskView> readLists(const attnc_block_mask_view* given, const Place& place) {
  if (!given) return {};
  const attnc_block_mask_view lists = readStruct(given, place);
  const attnc_block_lists& rows = lists.rows;
  readReserved(lists.reserved, {place.name, "reserved"});
  return BlockMaskView{.shape = readShape(lists.shape),
                       .partialCount = rows.partial_count,
                       .partialIndex = rows.partial_index,
                       .fullCount = rows.full_count,
                       .fullIndex = rows.full_index,
                       .indexStride = rows.index_stride,
                       .columns = readAxis(lists.columns),
                       .ofWholeMod = readFlag(lists.of_whole_mod, {place.name, "of_whole_mod"})};
}

attnc_block_mask_view toC(const BlockMaskView& view) {
  const BlockMaskColumns& columns = view.columns;
  return {sizeof(attnc_block_mask_view),
          toC(view.shape),
          {view.partialCount, view.partialIndex, view.fullCount, view.fullIndex, view.indexStride},
          {columns.partialCount, columns.partialIndex, columns.fullCount, columns.fullIndex, columns.indexStride},
          view.ofWholeMod,
          0};
}

void GivenOperands::read(const attnc_operands* given, const Place& place, Operands& operands) {
  need(given, place);
  const attnc_operands all = readStruct(given, place);
#define ATTNC_TENSOR(member, name) operands.member = requiredTensor(all.name, #name);
#define ATTNC_OPTIONAL(member, name, feature) operands.member = readTensor(all.name, #name);
#include "attnc/operands.def"
  operands.maxQLen = all.max_q_len;
  operands.maxKvLen = all.max_kv_len;
  if (all.cu_seqlens_kv || all.max_q_len || all.max_kv_len) need(all.cu_seqlens_q, "cu_seqlens_q");
  readCaptures(all.captures, all.capture_count, {place.name, "captures"}, captures);
  if (all.captures) operands.captures = &captures;
  lists = readLists(all.block_mask, {place.name, "block_mask"});
  if (lists) operands.blockMask = &*lists;
  if (readFlag(all.has_scale, {place.name, "has_scale"})) operands.scale = all.scale;
}

Outputs readOutputs(const attnc_outputs* given, const Place& place, Captures& reductions) {
  need(given, place);
  const attnc_outputs all = readStruct(given, place);
  Outputs outputs;
  readCaptures(all.reductions, all.reduction_count, {place.name, "reductions"}, reductions);
  if (all.reduction_count) outputs.reductions = &reductions;
#define ATTNC_OUTPUT(member, name) outputs.member = readTensor(all.name, #name);
#include "attnc/operands.def"
  return outputs;
}

GivenForward::GivenForward(const attnc_operands* given, const attnc_outputs* written) {
  read(given, "operands", operands);
  outputs = readOutputs(written, "outputs", reductions);
}

GivenBackward::GivenBackward(const attnc_backward_operands* given, const attnc_backward_outputs* written,
                             bool optionalOutputs) {
  need(given, "operands");
  const attnc_backward_operands all = readStruct(given, "operands");
  read(all.forward, {"operands", "forward"}, operands);
#define ATTNC_RESULT(member, name) operands.member = requiredTensor(all.name, #name);
#define ATTNC_OPTIONAL_RESULT(member, name) operands.member = readTensor(all.name, #name);
#include "attnc/operands.def"
  if (!optionalOutputs) need(written, "outputs");
  const attnc_backward_outputs gradientsOf = readStruct(written, "outputs");
#define ATTNC_GRADIENT(member, name, like) outputs.member = readTensor(gradientsOf.name, #name);
#include "attnc/operands.def"
  readCaptures(gradientsOf.captures, gradientsOf.capture_count, {"outputs", "captures"}, gradients);
  if (gradientsOf.captures) outputs.captures = &gradients;
}

} // namespace attnc::c
