// Counts the operations that values take.
#pragma once

#include "ir/ir.h"

#include <llvm/ADT/ArrayRef.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace attnc::analysis {

/// Operations that some values of a module need, each counted once, at the outermost level that knows it; inside a sum,
/// once per round. Counts saturate.
struct OperationCount {
  std::array<uint64_t, 5> byLevel{};          ///< indexed by ir::Level
  std::map<std::string, uint64_t> perElement; ///< operations of level Element, by the operation's name in the IR
  uint64_t at(ir::Level level) const { return byLevel[size_t(level)]; }
  uint64_t total() const;
};
/// Returns how often each value is computed at its level, by Value::id: rounds of the sums around it. 0 for what the
/// roots do not need, and for what takes no instruction.
std::vector<uint64_t> timesComputed(const ir::Module& module, llvm::ArrayRef<ir::Value> roots);
OperationCount countOperations(const ir::Module& module, llvm::ArrayRef<ir::Value> roots);

} // namespace attnc::analysis
