#include "c/operands.h"

#include "c/enumerators.h"
#include "c/structs.h"

#include <fmt/format.h>

namespace attnc::c {
namespace {

BlockMaskColumns readAxis(const attnc_block_lists& lists) {
  return {lists.partial_count, lists.partial_index, lists.full_count, lists.full_index, lists.index_stride};
}

/// Whether there is an array to read. Refuses NULL if one is needed.
bool arrayGiven(Arguments& arguments, const void* first, size_t count, const Place& place) {
  return count == 0 ? false : arguments.given(first, place);
}

/// Reads one capture. `place`: of the array, in which it is element `index`.
void readCapture(Arguments& arguments, const attnc_capture& given, const Place& place, size_t index,
                 Captures& captures) {
  if (!arguments.given(given.name, place.at(index, "name"))) return;
  readReserved(arguments, given.reserved, place.at(index, "reserved"));
  const std::string name = given.name;
  switch (given.kind) {
  case ATTNC_CAPTURE_TENSOR:
    if (arguments.given(given.tensor, name))
      if (auto tensor = readTensor(arguments, given.tensor, name)) captures.set(name, *tensor);
    return;
  case ATTNC_CAPTURE_INT: captures.set(name, given.integer); return;
  case ATTNC_CAPTURE_FLOAT: captures.set(name, given.real); return;
  case ATTNC_CAPTURE_BOOL:
    if (given.integer != 0 && given.integer != 1)
      arguments.refuse(name, fmt::format("is {}, expected 0 or 1", given.integer));
    captures.set(name, given.integer == 1);
    return;
  }
  arguments.refuse(name, fmt::format("has kind {}, which is no kind of capture", given.kind));
}

} // namespace

std::optional<TensorView> readTensor(Arguments& arguments, const attnc_tensor* given, const Place& place) {
  attnc_tensor tensor;
  if (!readStruct(arguments, given, tensor, place)) return {};
  const std::optional<DType> dtype = dtypeOf(tensor.dtype);
  if (!dtype) {
    arguments.refuse(place, fmt::format("has dtype {}, which is none", tensor.dtype));
    return {};
  }
  if (tensor.rank < 0 || tensor.rank > ATTNC_MAX_RANK) {
    arguments.refuse(place, fmt::format("has rank {}, expected 0 .. {}", tensor.rank, int(ATTNC_MAX_RANK)));
    return {};
  }
  TensorView view{.data = tensor.data, .dtype = *dtype, .rank = tensor.rank};
  for (int axis = 0; axis < tensor.rank; ++axis) {
    if (tensor.shape[axis] < 0) {
      arguments.refuse(place, fmt::format("has extent {} along axis {}", tensor.shape[axis], axis));
      return {};
    }
    view.shape[size_t(axis)] = tensor.shape[axis];
    view.stride[size_t(axis)] = tensor.stride[axis];
  }
  return view;
}

TensorView requiredTensor(Arguments& arguments, const attnc_tensor* given, const Place& place) {
  arguments.given(given, place);
  return readTensor(arguments, given, place).value_or(TensorView{});
}

void readCaptures(Arguments& arguments, const attnc_capture* given, size_t count, const Place& place,
                  Captures& captures) {
  if (!arrayGiven(arguments, given, count, place)) return;
  for (size_t i = 0; i < count; ++i) {
    const attnc_capture* at = element(given, i);
    if (at->struct_size != given->struct_size)
      return arguments.refuse(
          place, fmt::format("has a struct_size of {} at {}, and of {} at 0", at->struct_size, i, given->struct_size));
    attnc_capture capture;
    if (!readStruct(arguments, at, capture, place.at(i))) return;
    readCapture(arguments, capture, place, i, captures);
  }
}

std::map<std::string, int64_t> readPins(Arguments& arguments, const attnc_pin* given, size_t count,
                                        const Place& place) {
  std::map<std::string, int64_t> pins;
  if (!arrayGiven(arguments, given, count, place)) return pins;
  for (size_t i = 0; i < count; ++i)
    if (arguments.given(given[i].name, place.at(i, "name"))) pins[given[i].name] = given[i].value;
  return pins;
}

std::vector<std::string> readTexts(Arguments& arguments, const char* const* given, size_t count, const Place& place) {
  std::vector<std::string> texts;
  if (!arrayGiven(arguments, given, count, place)) return texts;
  for (size_t i = 0; i < count; ++i)
    if (arguments.given(given[i], place.at(i))) texts.push_back(given[i]);
  return texts;
}

std::set<std::string> readNames(Arguments& arguments, const char* const* given, size_t count, const Place& place) {
  const std::vector<std::string> texts = readTexts(arguments, given, count, place);
  return {texts.begin(), texts.end()};
}

std::optional<BlockMaskView> readLists(Arguments& arguments, const attnc_block_mask_view* given, const Place& place) {
  attnc_block_mask_view lists;
  if (!readStruct(arguments, given, lists, place)) return {};
  const attnc_block_lists& rows = lists.rows;
  readReserved(arguments, lists.reserved, {place.name, "reserved"});
  return BlockMaskView{.shape = readShape(lists.shape),
                       .partialCount = rows.partial_count,
                       .partialIndex = rows.partial_index,
                       .fullCount = rows.full_count,
                       .fullIndex = rows.full_index,
                       .indexStride = rows.index_stride,
                       .columns = readAxis(lists.columns),
                       .ofWholeMod = readFlag(arguments, lists.of_whole_mod, {place.name, "of_whole_mod"})};
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

void GivenOperands::read(Arguments& arguments, const attnc_operands* given, const Place& place, Operands& operands) {
  attnc_operands all;
  arguments.given(given, place);
  if (!readStruct(arguments, given, all, place)) return;
#define ATTNC_TENSOR(member, name) operands.member = requiredTensor(arguments, all.name, #name);
#define ATTNC_OPTIONAL(member, name, feature) operands.member = readTensor(arguments, all.name, #name);
#include "attnc/operands.def"
  operands.maxQLen = all.max_q_len;
  operands.maxKvLen = all.max_kv_len;
  if (all.cu_seqlens_kv || all.max_q_len || all.max_kv_len) arguments.given(all.cu_seqlens_q, "cu_seqlens_q");
  readCaptures(arguments, all.captures, all.capture_count, {place.name, "captures"}, captures);
  if (all.captures) operands.captures = &captures;
  lists = readLists(arguments, all.block_mask, {place.name, "block_mask"});
  if (lists) operands.blockMask = &*lists;
  if (readFlag(arguments, all.has_scale, {place.name, "has_scale"})) operands.scale = all.scale;
}

Outputs readOutputs(Arguments& arguments, const attnc_outputs* given, const Place& place, Captures& reductions) {
  attnc_outputs all;
  arguments.given(given, place);
  if (!readStruct(arguments, given, all, place)) return {};
  Outputs outputs;
  readCaptures(arguments, all.reductions, all.reduction_count, {place.name, "reductions"}, reductions);
  if (all.reduction_count) outputs.reductions = &reductions;
#define ATTNC_OUTPUT(member, name) outputs.member = readTensor(arguments, all.name, #name);
#include "attnc/operands.def"
  return outputs;
}

GivenForward::GivenForward(Arguments& arguments, const attnc_operands* given, const attnc_outputs* written) {
  read(arguments, given, "operands", operands);
  outputs = readOutputs(arguments, written, "outputs", reductions);
}

GivenBackward::GivenBackward(Arguments& arguments, const attnc_backward_operands* given,
                             const attnc_backward_outputs* written, bool optionalOutputs) {
  attnc_backward_operands all;
  arguments.given(given, "operands");
  if (readStruct(arguments, given, all, "operands")) {
    read(arguments, all.forward, {"operands", "forward"}, operands);
#define ATTNC_RESULT(member, name) operands.member = requiredTensor(arguments, all.name, #name);
#define ATTNC_OPTIONAL_RESULT(member, name) operands.member = readTensor(arguments, all.name, #name);
#include "attnc/operands.def"
  }
  attnc_backward_outputs gradientsOf;
  if (!optionalOutputs) arguments.given(written, "outputs");
  if (!readStruct(arguments, written, gradientsOf, "outputs")) return;
#define ATTNC_GRADIENT(member, name, like) outputs.member = readTensor(arguments, gradientsOf.name, #name);
#include "attnc/operands.def"
  readCaptures(arguments, gradientsOf.captures, gradientsOf.capture_count, {"outputs", "captures"}, gradients);
  if (gradientsOf.captures) outputs.captures = &gradients;
}

} // namespace attnc::c
