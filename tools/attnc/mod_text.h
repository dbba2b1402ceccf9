// What a mod is made of, as lines for a person: its functions, its captures, its operations by level.
#pragma once

#include "attnc/mod.h"
#include "ir/ir.h"

#include <array>
#include <map>
#include <string>

namespace attnc::cli {

/// "score_mod, mask_mod"
const char* functionsText(const Mod& mod);

/// The line that says where the masks of score_mod went; empty where it has none.
const char* masksText(const Mod& mod);

/// Lines "captures    slopes: f32[H]", one a capture.
std::string capturesText(const Mod& mod);

/// Operations that some values of a module need, each counted once, at the outermost level where it is known; inside a
/// sum once a round. Counts saturate.
struct OperationCount {
  std::array<uint64_t, 5> byLevel{};          ///< indexed by ir::Level
  std::map<std::string, uint64_t> perElement; ///< those of level Element, by the operation's name in the IR
  uint64_t at(ir::Level level) const { return byLevel[size_t(level)]; }
};
OperationCount countOperations(const ir::Module& module, llvm::ArrayRef<ir::Value> roots);

/// "1 head, 2 element"; "none"
std::string levelsText(const OperationCount& count);

/// Lines "operations  score_mod: 1 head, 2 element", one for each function that the mod has.
std::string operationsText(const ir::Module& module);

} // namespace attnc::cli
