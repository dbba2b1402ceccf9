// The problem of an emitted launcher, as C++ text, from operands of the library.
#pragma once

#include "attnc/kernel.h"
#include "plan/launch_operands.h"

#include <fmt/format.h>

#include <string>

namespace attnc::test {

/// Returns statements that fill the launcher's problem with operands of the library.
inline std::string problemText(const KernelOptions& options, const BackwardOperands& in, const Outputs& outputs,
                               const BackwardOutputs& gradients) {
  std::string out;
  const auto address = [](const void* data) { return fmt::format("(char*)0x{:x}", uintptr_t(data)); };
  const auto tensor = [&](const char* member, const TensorView& of) {
    out +=
        fmt::format("p.{} = {{{}, {}, {}, {}}};\n", member, address(of.data), of.stride[0], of.stride[1], of.stride[2]);
  };
  const auto pointer = [&](const char* member, const char* type, const void* data) {
    out += fmt::format("p.{} = ({}*){};\n", member, type, address(data));
  };
  const bool isBackward = options.kind == KernelKind::Backward;
  const ProblemShape problem = plan::problemOf(in);
  out += fmt::format("p.batch = {}; p.q_heads = {}; p.kv_heads = {}; p.q_len = {}; p.kv_len = {};\n", problem.batch,
                     problem.qHeads, problem.kvHeads, problem.qLen, problem.kvLen);
  tensor("q", in.q), tensor("k", in.k), tensor("v", in.v);
  tensor("out", isBackward ? in.out : *outputs.out);
  if (in.pageTable) {
    out += fmt::format("p.pages = {}; p.page_table_stride = {};\n", in.k.shape[0], in.pageTable->stride[0]);
    pointer("page_table", "int", in.pageTable->data);
  } else {
    out += fmt::format("p.kv_batch = {};\n", in.k.shape[0]);
  }
  if (isBackward || outputs.lse) pointer("lse", "float", isBackward ? in.lse.data : outputs.lse->data);
  if (outputs.rowMax) pointer("row_max", "float", outputs.rowMax->data);
  if (isBackward) {
    tensor("d_out", in.dOut), tensor("d_q", *gradients.dQ), tensor("d_k", *gradients.dK), tensor("d_v", *gradients.dV);
    if (in.dLse) pointer("d_lse", "float", in.dLse->data);
  }
  if (in.kvLengths) pointer("kv_lengths", "int", in.kvLengths->data);
  if (in.qOffsets) pointer("q_offsets", "int", in.qOffsets->data);
  if (in.newK) tensor("new_k", *in.newK), tensor("new_v", *in.newV);
  if (in.scale) out += fmt::format("p.scale = {}f;\n", *in.scale);
  const auto lists = [&](const char* member, const auto& of) {
    out += fmt::format("p.{} = {{(int*){}, (int*){}, (int*){}, (int*){}, {}}};\n", member, address(of.partialCount),
                       address(of.partialIndex), address(of.fullCount), address(of.fullIndex), of.indexStride);
  };
  if (in.blockMask) {
    out += fmt::format("p.mask_batch = {}; p.mask_heads = {};\n", in.blockMask->shape.batch, in.blockMask->shape.heads);
    lists("lists", *in.blockMask);
    if (isBackward) lists("columns", in.blockMask->columns);
  }
  if (!in.captures) return out;
  for (const auto& [name, value] : in.captures->all()) {
    const std::string member = "p.capture_" + name;
    if (const auto* view = std::get_if<TensorView>(&value)) {
      out += fmt::format("{}.data = {};\n", member, address(view->data));
      for (int axis = 0; axis < view->rank; ++axis)
        out += fmt::format("{0}.shape[{1}] = {2}; {0}.stride[{1}] = {3};\n", member, axis, view->shape[size_t(axis)],
                           view->stride[size_t(axis)]);
    }
    if (const auto* number = std::get_if<int64_t>(&value)) out += fmt::format("{} = {};\n", member, *number);
    if (const auto* number = std::get_if<double>(&value)) out += fmt::format("{} = {}f;\n", member, *number);
    if (const auto* flag = std::get_if<bool>(&value)) out += fmt::format("{} = {};\n", member, *flag);
  }
  return out;
}

} // namespace attnc::test
