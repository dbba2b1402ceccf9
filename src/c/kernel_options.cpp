#include "c/kernel_options.h"

#include "c/enumerators.h"
#include "c/operands.h"
#include "c/structs.h"

#include <fmt/format.h>

namespace attnc::c {
namespace {

/// Reads a size, where 0 means the default.
int readSize(Arguments& arguments, int32_t given, int byDefault, const Place& place) {
  if (given < 0) arguments.refuse(place, fmt::format("is {}", given));
  return given > 0 ? given : byDefault;
}

} // namespace

KernelOptions readKernelOptions(Arguments& arguments, const attnc_kernel_options* given, const Place& place) {
  attnc_kernel_options all;
  KernelOptions options;
  arguments.given(given, place);
  if (!readStruct(arguments, given, all, place)) return options;
  const auto at = [&](const char* member) { return Place(place.name, member); };
  if (all.arch) options.arch = all.arch;
  options.pins = readPins(arguments, all.pins, all.pin_count, at("pins"));
  options.gradients = readNames(arguments, all.gradients, all.gradient_count, at("gradients"));
  options.kind = readKind(arguments, all.kind, at("kind"));
  options.family = readFamily(arguments, all.family, at("family"));
  if (all.dtype != ATTNC_DTYPE_DEFAULT) options.dtype = readDtype(arguments, all.dtype, at("dtype"));
  options.headDim = readSize(arguments, all.head_dim, options.headDim, at("head_dim"));
  options.headDimV = readSize(arguments, all.head_dim_v, options.headDimV, at("head_dim_v"));
  options.blockSparse = readFlag(arguments, all.block_sparse, at("block_sparse"));
  options.maskQBlock = readSize(arguments, all.mask_q_block, options.maskQBlock, at("mask_q_block"));
  options.maskKvBlock = readSize(arguments, all.mask_kv_block, options.maskKvBlock, at("mask_kv_block"));
  options.columnLists = readFlag(arguments, all.column_lists, at("column_lists"));
  options.rowMax = readFlag(arguments, all.row_max, at("row_max"));
  options.lengths = readFlag(arguments, all.lengths, at("lengths"));
  options.offsets = readOffsets(arguments, all.offsets, at("offsets")).value_or(QueryOffsets::None);
  options.tf32 = readFlag(arguments, all.tf32, at("tf32"));
  options.deterministic = readFlag(arguments, all.deterministic, at("deterministic"));
  options.packedRows = readSize(arguments, all.packed_rows, options.packedRows, at("packed_rows"));
  options.fp8Kv = readFlag(arguments, all.fp8_kv, at("fp8_kv"));
  options.pageSize = readSize(arguments, all.page_size, options.pageSize, at("page_size"));
  options.appends = readFlag(arguments, all.appends, at("appends"));
  options.ragged = readFlag(arguments, all.ragged, at("ragged"));
  options.byGrid = !readFlag(arguments, all.no_boxes, at("no_boxes"));
  if (all.tile) options.tile = all.tile;
  options.maskByBoxes = readFlag(arguments, all.mask_by_boxes, at("mask_by_boxes"));
  options.listsOfWholeMod = readFlag(arguments, all.lists_of_whole_mod, at("lists_of_whole_mod"));
  return options;
}

PrepareOptions readPrepareOptions(Arguments& arguments, const attnc_prepare_options* given) {
  attnc_prepare_options all;
  PrepareOptions options;
  if (!readStruct(arguments, given, all, "options")) return options;
  const auto at = [](const char* member) { return Place("options", member); };
  if (all.arch) options.arch = all.arch;
  options.pins = readPins(arguments, all.pins, all.pin_count, at("pins"));
  options.family = readFamily(arguments, all.family, at("family"));
  options.offsets = readOffsets(arguments, all.offsets, at("offsets"));
  options.tf32 = readFlag(arguments, all.tf32, at("tf32"));
  options.deterministic = readFlag(arguments, all.deterministic, at("deterministic"));
  options.buildBlockMask = !readFlag(arguments, all.no_block_mask, at("no_block_mask"));
  options.decode = readDecode(arguments, all.decode, at("decode"));
  if (all.tile) options.tile = all.tile;
  if (all.backward_tile) options.backwardTile = all.backward_tile;
  return options;
}

PrepareOptions readRequest(Arguments& arguments, const attnc_compiler* compiler, const attnc_mod* mod,
                           const attnc_prepare_options* options, const void* result, const char* resultName) {
  arguments.given(compiler, "compiler");
  arguments.given(mod, "mod");
  arguments.given(result, resultName);
  return readPrepareOptions(arguments, options);
}

} // namespace attnc::c
