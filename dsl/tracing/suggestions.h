// Suggestions for names that attnc does not know.
#pragma once

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/StringRef.h>

#include <string>

namespace attnc::dsl {

/// Returns "did you mean `kv_idx`?" for the candidate that is spelled similarly; empty if none is.
std::string closest(llvm::StringRef name, llvm::ArrayRef<llvm::StringRef> candidates);

/// Returns what to write instead of a function of Python or torch that the mod language lacks; null for other names.
const char* insteadOf(llvm::StringRef name);

} // namespace attnc::dsl
