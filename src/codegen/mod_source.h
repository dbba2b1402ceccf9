// Code generation: the text of `attnc_mod.cuh` from the IR of a mod, and the words that a launch passes to it.
//
// In: a verified module after the passes, with the outputs derived for kernels. Out: CUDA C++ that defines ModArgs and
// Mod as templates/mod/contract.cuh requires. It includes only templates/mod/ops.cuh and also compiles for the host.
// Values are computed at the outermost level that knows them. Text of the user reaches the output only as mangled names
// and as the file name of #line. Not: optimization, which the passes have done.
#pragma once

#include "analysis/mod_facts.h"
#include "ir/bindings.h"
#include "ir/capture_gradient.h"
#include "ir/ir.h"

#include <llvm/ADT/ArrayRef.h>

#include <cstdint>
#include <string>
#include <vector>

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

struct ModSource {
  std::string text;        ///< of attnc_mod.cuh
  /// The text without names, file and lines, which do not affect machine code. The cache uses it as key: it is equal
  /// for mods of equal IR, and changes with the code generator.
  std::string key;
  std::vector<ArgWord> slots; ///< fields of ModArgs, in order. Empty: ModArgs is one unused word
  int columnBytes = 0;     ///< size of a Mod::Col if kColumnsLoad, else 0
  int rowBytes = 1;        ///< size of a Mod::Row
  /// The cost of compiling: instructions of all functions, as ops.def counts them; kFieldWork for each member of Row
  /// and Col; and kPlaceWork for each place where a capture receives a gradient.
  int64_t work = 0;
};

/// Limit for inlining: if functions for a score have more work together, they are called; otherwise each score of a
/// tile has its copy. Other functions are judged one by one. NVRTC's time grows with the square of the inlined code.
constexpr int64_t kInlinedWork = 500;

/// Called functions that would need more members of Row and Col compute these values themselves: structs in memory cost
/// NVRTC more time than anything else.
constexpr size_t kMostFieldsOfCalls = 32;

/// Work of a value that a lane keeps for each of its rows or columns.
constexpr int64_t kFieldWork = 30;

/// Work of the reduction that kernels have for each place.
constexpr int64_t kPlaceWork = 1500;

/// Longer text is not written: `text` and `key` are then empty.
constexpr int64_t kMostWork = 1'000'000;

/// A Mod has kColumnsLoad if col() reads memory and fills at most this many bytes. Kernels keep the Cols of some
/// hundred columns in shared memory.
constexpr int kMaxSharedColumnBytes = 64;

/// Writes the text. Never fails for a verified module; equal modules give equal text. `facts`: of the module. Values
/// from `firstDerived` on are attnc's own and get its prefix. `gradients`: gradients of captures to write hooks for;
/// they are outputs of the module.
ModSource emitMod(const ir::Module& module, const analysis::ModFacts& facts, size_t firstDerived,
                  const ir::CaptureGradients& gradients = {});

/// The variable of compiled code (templates/mod/ops.cuh) that stands for tensors without elements.
constexpr const char* kZeroVariable = "attnc_zero";

/// Whether packArgs() needs a zero.
bool readsTensors(llvm::ArrayRef<ArgWord> slots);

/// Writes slots.size() words: the ModArgs of one launch. `bindings` belong to the module that the slots came from.
/// Tensors and `zero` (8 aligned bytes of zeros) are in the memory of the device that runs the code. Allocates nothing.
void packArgs(llvm::ArrayRef<ArgWord> slots, const ir::Bindings& bindings, const void* zero, uint64_t* words);

} // namespace attnc::codegen
