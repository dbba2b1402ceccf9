// Code generation: the text of `attnc_mod.cuh` from the IR of a mod, and the words that a launch passes to it.
//
// In: a verified module after the passes, with the outputs derived for kernels. Out: CUDA C++ that defines ModArgs and
// Mod as templates/mod/contract.cuh requires. It includes only templates/mod/ops.cuh and also compiles for the host.
// Values are computed at the outermost level that knows them. Text of the user reaches the output only as mangled names
// and as the file name of #line. Not: optimization, which the passes have done.
#pragma once

#include "analysis/mod_facts.h"
#include "codegen/pack_args.h"
#include "ir/capture_gradient.h"
#include "ir/ir.h"

#include <llvm/ADT/ArrayRef.h>

#include <cstdint>
#include <string>
#include <vector>

namespace attnc::codegen {

/// One of the mods that a mod chooses between (analysis/variants.h), derived for kernels.
struct Variant {
  ir::Module module;
  analysis::ModFacts facts;
  size_t firstDerived;
};

struct ModSource {
  std::string text; ///< of attnc_mod.cuh
  /// The text without names, file and lines, which do not affect machine code. The cache uses it as key: it is equal
  /// for mods of equal IR, and changes with the code generator.
  std::string key;
  std::vector<ArgWord> slots; ///< fields of ModArgs, in order. Empty: ModArgs is one unused word
  int columnBytes = 0;        ///< size of a Mod::Col if kSharesColumns, else 0; of variants, the largest
  int rowBytes = 1;           ///< size of a Mod::Row; of variants, the largest
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

/// Work of the reduction that kernels have for each place of scores.
constexpr int64_t kPlaceWork = 1500;

/// Longer text is not written: `text` and `key` are then empty.
constexpr int64_t kMostWork = 1'000'000;

/// A Mod has kSharesColumns if col() reads memory, or takes this many instructions for a mask whose rows are no
/// intervals; unless it fills more bytes than the limit. Kernels keep the Cols of some hundred columns in shared
/// memory. With a score_mod that is called, sharing costs registers: shifted_window spilled 80 bytes for 16.
constexpr int64_t kSharedColumnWork = 20;
constexpr int kMaxSharedColumnBytes = 64;

/// Writes the text. Never fails for a verified module; equal modules give equal text. `facts`: of the module. Values
/// from `firstDerived` on are attnc's own and get its prefix. `gradients`: gradients of captures to write hooks for;
/// they are outputs of the module. `judgesBlocks`: whether judge() is wanted. `variants`: of a mod that has the output
/// `variant`; their modules have its declarations.
ModSource emitMod(const ir::Module& module, const analysis::ModFacts& facts, size_t firstDerived,
                  const ir::CaptureGradients& gradients = {}, bool judgesBlocks = false,
                  llvm::ArrayRef<Variant> variants = {});

} // namespace attnc::codegen
