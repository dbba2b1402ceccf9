// The words of ModArgs: what a launch passes to a mod.
//
// In: the words that the generated text reads, and the values of one launch. Out: the words' contents. Not: the text
// (mod_source.h).
#pragma once

#include "ir/bindings.h"
#include "ir/ir.h"

#include <llvm/ADT/ArrayRef.h>

#include <cstdint>

namespace attnc::codegen {

/// One 8-byte word of ModArgs; smaller values are in its low bytes.
struct ArgWord {
  enum class Kind : uint8_t {
    Dim,          ///< i32: an extent, by its index in Module::dims
    TensorData,   ///< address of element (0, ..., 0), by its index in Module::tensors
    TensorSize,   ///< i32: extent of one axis of a tensor
    TensorStride, ///< i64: stride of one axis of a tensor, in elements
    Scalar,       ///< bool, i32 or f32: a run-time scalar, by its index in Module::scalars
  };
  Kind kind = Kind::Dim;
  uint32_t index = 0;
  uint32_t axis = 0;             ///< of TensorSize and TensorStride
  ir::Type type = ir::Type::I64; ///< of the word
};

/// The variable of compiled code (templates/mod/ops.cuh) that stands for tensors without elements.
constexpr const char* kZeroVariable = "attnc_zero";

/// Whether packArgs() needs a zero.
bool readsTensors(llvm::ArrayRef<ArgWord> slots);

/// Writes slots.size() words: the ModArgs of one launch. `bindings` belong to the module that the slots came from.
/// Tensors and `zero` (8 aligned bytes of zeros) are in the memory of the device that runs the code. Allocates nothing.
void packArgs(llvm::ArrayRef<ArgWord> slots, const ir::Bindings& bindings, const void* zero, uint64_t* words);

} // namespace attnc::codegen
