#include "codegen/pack_args.h"

#include <llvm/ADT/STLExtras.h>

#include <algorithm>
#include <bit>

namespace attnc::codegen {
namespace {

/// Proofs of gathers assume KV_LEN >= 1, and kernels may evaluate column 0 even without columns.
int32_t extentAsEvaluated(uint32_t dim, int64_t extent) {
  const bool isColumns = dim == uint32_t(ir::BuiltinDim::KvLen);
  return int32_t(isColumns ? std::max<int64_t>(extent, 1) : extent);
}

uint64_t tensorWord(const ArgWord& slot, const TensorView& tensor, const void* zero) {
  if (slot.kind == ArgWord::Kind::TensorSize) return uint32_t(tensor.shape[slot.axis]);
  const bool isEmpty = tensor.elements() == 0; // no element to point to
  if (slot.kind == ArgWord::Kind::TensorStride) return isEmpty ? 0 : uint64_t(tensor.stride[slot.axis]);
  return reinterpret_cast<uintptr_t>(isEmpty ? zero : tensor.data);
}

uint64_t wordOf(const ArgWord& slot, const ir::Bindings& bindings, const void* zero) {
  switch (slot.kind) {
  case ArgWord::Kind::Dim: return uint32_t(extentAsEvaluated(slot.index, bindings.dims[slot.index]));
  case ArgWord::Kind::TensorData:
  case ArgWord::Kind::TensorSize:
  case ArgWord::Kind::TensorStride: return tensorWord(slot, bindings.tensors[slot.index], zero);
  case ArgWord::Kind::Scalar: break;
  }
  const ir::ScalarValue& scalar = bindings.scalars[slot.index];
  return slot.type == ir::Type::F32 ? std::bit_cast<uint32_t>(scalar.real) : uint32_t(scalar.integer);
}

} // namespace

bool readsTensors(llvm::ArrayRef<ArgWord> slots) {
  return llvm::any_of(slots, [](const ArgWord& slot) { return slot.kind == ArgWord::Kind::TensorData; });
}

void packArgs(llvm::ArrayRef<ArgWord> slots, const ir::Bindings& bindings, const void* zero, uint64_t* words) {
  for (const ArgWord& slot : slots) *words++ = wordOf(slot, bindings, zero);
}

} // namespace attnc::codegen
