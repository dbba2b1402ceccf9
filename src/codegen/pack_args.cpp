// packArgs(): see mod_source.h.
#include "codegen/mod_source.h"

#include <bit>

namespace attnc::codegen {
namespace {

/// An empty tensor has no element to stand on: null and strides of 0 make generated code read its zero instead.
uint64_t tensorWord(const Slot& slot, const TensorView& tensor) {
  if (slot.kind == Slot::Kind::TensorSize) return uint32_t(tensor.shape[slot.axis]);
  if (tensor.elements() == 0) return 0;
  if (slot.kind == Slot::Kind::TensorStride) return uint64_t(tensor.stride[slot.axis]);
  return reinterpret_cast<uintptr_t>(tensor.data);
}

uint64_t wordOf(const Slot& slot, const ir::Bindings& bindings) {
  switch (slot.kind) {
  case Slot::Kind::Dim: return uint32_t(bindings.dims[slot.index]);
  case Slot::Kind::TensorData:
  case Slot::Kind::TensorSize:
  case Slot::Kind::TensorStride: return tensorWord(slot, bindings.tensors[slot.index]);
  case Slot::Kind::Scalar: break;
  }
  const ir::ScalarValue& scalar = bindings.scalars[slot.index];
  return slot.type == ir::Type::F32 ? std::bit_cast<uint32_t>(scalar.real) : uint32_t(scalar.integer);
}

} // namespace

void packArgs(llvm::ArrayRef<Slot> slots, const ir::Bindings& bindings, uint64_t* words) {
  for (const Slot& slot : slots) *words++ = wordOf(slot, bindings);
}

} // namespace attnc::codegen
