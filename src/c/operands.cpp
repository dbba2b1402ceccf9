#include "c/operands.h"

#include "c/enumerators.h"
#include "c/structs.h"

#include <fmt/format.h>

namespace attnc::c {
namespace {

/// Reads a tensor that must be given.
TensorView required(Arguments& arguments, const attnc_tensor* given, const Place& place) {
  arguments.given(given, place);
  return readTensor(arguments, given, place).value_or(TensorView{});
}

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
  operands.q = required(arguments, all.q, "q");
  operands.k = required(arguments, all.k, "k");
  operands.v = required(arguments, all.v, "v");
  operands.kvLengths = readTensor(arguments, all.kv_lengths, "kv_lengths");
  operands.qOffsets = readTensor(arguments, all.q_offsets, "q_offsets");
  operands.kScales = readTensor(arguments, all.k_scales, "k_scales");
  operands.vScales = readTensor(arguments, all.v_scales, "v_scales");
  operands.pageTable = readTensor(arguments, all.page_table, "page_table");
  operands.newK = readTensor(arguments, all.new_k, "new_k");
  operands.newV = readTensor(arguments, all.new_v, "new_v");
  if (const auto starts = readTensor(arguments, all.cu_seqlens_q, "cu_seqlens_q"))
    operands.ragged = RaggedBatch{.cuSeqlensQ = *starts,
                                  .cuSeqlensKv = readTensor(arguments, all.cu_seqlens_kv, "cu_seqlens_kv"),
                                  .maxQLen = all.max_q_len,
                                  .maxKvLen = all.max_kv_len};
  else if (all.cu_seqlens_kv || all.max_q_len || all.max_kv_len)
    arguments.given(all.cu_seqlens_q, "cu_seqlens_q");
  readCaptures(arguments, all.captures, all.capture_count, {place.name, "captures"}, captures);
  if (all.captures) operands.captures = &captures;
  lists = readLists(arguments, all.block_mask, {place.name, "block_mask"});
  if (lists) operands.blockMask = &*lists;
  if (readFlag(arguments, all.has_scale, {place.name, "has_scale"})) operands.scale = all.scale;
}

Outputs readOutputs(Arguments& arguments, const attnc_outputs* given, const Place& place) {
  attnc_outputs all;
  arguments.given(given, place);
  if (!readStruct(arguments, given, all, place)) return {};
  return {.out = readTensor(arguments, all.out, "out"),
          .lse = readTensor(arguments, all.lse, "lse"),
          .rowMax = readTensor(arguments, all.row_max, "row_max")};
}

GivenForward::GivenForward(Arguments& arguments, const attnc_operands* given, const attnc_outputs* written) {
  read(arguments, given, "operands", operands);
  outputs = readOutputs(arguments, written, "outputs");
}

GivenBackward::GivenBackward(Arguments& arguments, const attnc_backward_operands* given,
                             const attnc_backward_outputs* written, bool optionalOutputs) {
  attnc_backward_operands all;
  arguments.given(given, "operands");
  if (readStruct(arguments, given, all, "operands")) {
    read(arguments, all.forward, {"operands", "forward"}, operands);
    operands.out = required(arguments, all.out, "out");
    operands.lse = required(arguments, all.lse, "lse");
    operands.dOut = required(arguments, all.d_out, "d_out");
    operands.dLse = readTensor(arguments, all.d_lse, "d_lse");
  }
  attnc_backward_outputs gradientsOf;
  if (!optionalOutputs) arguments.given(written, "outputs");
  if (!readStruct(arguments, written, gradientsOf, "outputs")) return;
  outputs.dQ = readTensor(arguments, gradientsOf.d_q, "d_q");
  outputs.dK = readTensor(arguments, gradientsOf.d_k, "d_k");
  outputs.dV = readTensor(arguments, gradientsOf.d_v, "d_v");
  readCaptures(arguments, gradientsOf.captures, gradientsOf.capture_count, {"outputs", "captures"}, gradients);
  if (gradientsOf.captures) outputs.captures = &gradients;
}

} // namespace attnc::c
