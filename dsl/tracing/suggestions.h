// What a message may propose in place of a name that attnc does not know.
#pragma once

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/StringRef.h>

#include <string>

namespace attnc::dsl {

/// "did you mean `kv_idx`?" for the candidate that is spelled alike; empty if there is none.
std::string closest(llvm::StringRef name, llvm::ArrayRef<llvm::StringRef> candidates);

/// What to write in place of a function that Python or torch has and the mod language has not; null for other names.
const char* insteadOf(llvm::StringRef name);

} // namespace attnc::dsl
