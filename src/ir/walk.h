// Which nodes a value needs, and which parameters it depends on.
#pragma once

#include "ir/ir.h"

#include <llvm/ADT/STLFunctionalExtras.h>

#include <vector>

namespace attnc::ir {

/// Returns marks, by Value::id, of the roots and all that they need.
std::vector<bool> neededBy(const Module& module, llvm::ArrayRef<Value> roots);
/// Like the above, but does not continue below values for which `isEnd` holds; these values themselves are marked.
std::vector<bool> neededBy(const Module& module, llvm::ArrayRef<Value> roots, llvm::function_ref<bool(Value)> isEnd);
/// Returns marks of the nodes that the outputs need.
std::vector<bool> neededByOutputs(const Module& module);

/// Whether any node has this operation.
bool uses(const Module& module, Op op);

/// Returns the parameters that each value depends on, by Value::id.
std::vector<ParamSet> paramsOf(const Module& module);
/// Returns the parameters that one value depends on.
ParamSet paramsOf(const Module& module, Value value);

} // namespace attnc::ir
