// Which nodes a value needs, and what it depends on.
#pragma once

#include "ir/ir.h"

#include <llvm/ADT/STLFunctionalExtras.h>

#include <vector>

namespace attnc::ir {

/// Marks, by Value::id, the roots and all that they need.
std::vector<bool> neededBy(const Module& module, llvm::ArrayRef<Value> roots);
/// The same without what is needed by way of values that `isEnd` holds for; they themselves are marked.
std::vector<bool> neededBy(const Module& module, llvm::ArrayRef<Value> roots, llvm::function_ref<bool(Value)> isEnd);
/// Marks what the outputs need.
std::vector<bool> neededByOutputs(const Module& module);

/// Whether any node is of this operation.
bool uses(const Module& module, Op op);

/// The parameters that each value depends on, by Value::id.
std::vector<ParamSet> paramsOf(const Module& module);
/// Those of one value.
ParamSet paramsOf(const Module& module, Value value);

} // namespace attnc::ir
