// The tensors of an emitted launcher, as C++ text, from the operands of a launch.
#pragma once

#include "attnc/kernel.h"

#include <fmt/format.h>

#include <string>

namespace attnc::test {

/// Returns statements that fill `t`, the launcher's struct, with the addresses of a launch.
inline std::string tensorsText(const KernelOptions& options, const BackwardOperands& operands, const Outputs& outputs,
                               const BackwardOutputs& gradients) {
  std::string out;
  const bool vIsInK = options.features.has(Feature::VInK);
  const auto put = [&](const std::string& name, const void* data) {
    const bool isOfMask =
        name.find("_blocks") != name.npos || name.find("indices") != name.npos || name.starts_with("capture_");
    if (options.kind == KernelKind::BlockMask && !isOfMask) return;
    if (data && !(vIsInK && (name == "v" || name == "new_v")))
      out += fmt::format("t.{} = reinterpret_cast<void*>({:#x});\n", name, reinterpret_cast<uintptr_t>(data));
  };
#define ATTNC_TENSOR(member, name) put(#name, operands.member.data);
#define ATTNC_OPTIONAL(member, name, feature) put(#name, operands.member ? operands.member->data : nullptr);
#include "attnc/operands.def"
  if (options.kind == KernelKind::Backward) {
#define ATTNC_RESULT(member, name) put(#name, operands.member.data);
#define ATTNC_OPTIONAL_RESULT(member, name) put(#name, operands.member ? operands.member->data : nullptr);
#define ATTNC_GRADIENT(member, name, like) put(#name, gradients.member ? gradients.member->data : nullptr);
#include "attnc/operands.def"
  } else {
#define ATTNC_OUTPUT(member, name) put(#name, outputs.member ? outputs.member->data : nullptr);
#include "attnc/operands.def"
  }
  const auto lists = [&](const auto& of, const std::string& axis) {
    put(axis + "num_blocks", of.partialCount), put(axis + "indices", of.partialIndex);
    put("full_" + axis + "num_blocks", of.fullCount), put("full_" + axis + "indices", of.fullIndex);
  };
  if (operands.blockMask) lists(*operands.blockMask, "kv_"), lists(operands.blockMask->columns, "q_");
  const auto captures = [&](const Captures* all, const std::string& prefix) {
    if (!all) return;
    for (const auto& [name, value] : all->all())
      if (const auto* view = std::get_if<TensorView>(&value)) put(prefix + name, view->data);
  };
  captures(operands.captures, "capture_");
  if (options.kind == KernelKind::Backward) captures(gradients.captures, "d_capture_");
  return out;
}

} // namespace attnc::test
