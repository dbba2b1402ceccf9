// Code generation: the IR of a mod as the text of `attnc_mod.cuh`, and the words that a launch passes to it.
//
// In: a verified module after the passes, with the outputs that they derive for kernels. Out: CUDA C++ that defines
// ModArgs and Mod as templates/mod/contract.cuh asks, stands on templates/mod/ops.cuh alone and compiles for the host
// as well. Values are computed at the outermost level that knows them. Text of the user reaches the output only as
// mangled names and as the file name of #line. Not here: optimisation; the passes have done that.
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

/// One 8-byte word of ModArgs; a value of less than 8 bytes stands in the low ones.
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
  /// The text without what does not change the machine code: names, file, lines. Equal for mods of equal IR, so the
  /// cache keys on it; a change of the code generator changes it.
  std::string key;
  std::vector<ArgWord> slots; ///< of ModArgs, in order. Empty: ModArgs is one word that nothing reads
  int columnBytes = 0;     ///< of a Mod::Col if kColumnsLoad, else 0
  int rowBytes = 1;        ///< of a Mod::Row
  /// What compiling costs: instructions of all functions, as ops.def counts them, kFieldWork for each member of Row and
  /// Col, and kPlaceWork for each place where a capture gets a gradient.
  int64_t work = 0;
};

/// Functions for a score that take more work together are called; up to here each score of a tile has its copy. So are
/// others, each by itself. NVRTC's time grows by the square of what is inline.
constexpr int64_t kInlinedWork = 500;

/// Functions that are called and would take more members of Row and Col than these compute them instead: members of
/// structs in memory take NVRTC longer than anything else.
constexpr size_t kMostFieldsOfCalls = 32;

/// Of a value that a lane keeps for each of its rows or columns.
constexpr int64_t kFieldWork = 30;

/// Of the reduction that kernels have for each place.
constexpr int64_t kPlaceWork = 1500;

/// No text is written that is longer: `text` and `key` are empty then.
constexpr int64_t kMostWork = 1'000'000;

/// A Mod has kColumnsLoad if col() reads memory and fills no more bytes than this: kernels keep those of some hundred
/// columns in shared memory.
constexpr int kMaxSharedColumnBytes = 64;

/// Never fails on a module that verifies. Equal modules give equal text. `facts`: of the module. Values from
/// `firstDerived` on are attnc's own, and named as such. `gradients`: of captures, that the text has hooks for; outputs
/// of the module.
ModSource emitMod(const ir::Module& module, const analysis::ModFacts& facts, size_t firstDerived,
                  const ir::CaptureGradients& gradients = {});

/// The variable of compiled code (templates/mod/ops.cuh) that tensors without elements are read from.
constexpr const char* kZeroVariable = "attnc_zero";

/// Whether packArgs() needs a zero.
bool readsTensors(llvm::ArrayRef<ArgWord> slots);

/// Writes slots.size() words: the ModArgs of one launch. `bindings` belong to the module that the slots came from;
/// tensors are in the memory of the device that runs the code, and so is `zero`: 8 aligned bytes of zeros. Allocates
/// nothing.
void packArgs(llvm::ArrayRef<ArgWord> slots, const ir::Bindings& bindings, const void* zero, uint64_t* words);

} // namespace attnc::codegen
