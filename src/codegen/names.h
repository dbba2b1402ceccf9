// Spelling: user text and numbers made safe for CUDA C++.
#pragma once

#include "ir/ir.h"

#include <llvm/ADT/StringMap.h>
#include <llvm/ADT/StringRef.h>

#include <string>

namespace attnc::codegen {

/// Hands out identifiers, each once. They consist of [A-Za-z0-9_], start with the given prefix (which must make a
/// keyword or a macro impossible) and have at most 64 characters.
class Names {
public:
  /// "v_" and "slopes" -> "v_slopes"; the second time "v_slopes_2". Other characters of `name` become '_' and are
  /// numbered apart in the same way. `prefix` and `suffix` are attnc's own.
  std::string unique(llvm::StringRef prefix, llvm::StringRef name, llvm::StringRef suffix = {});

private:
  llvm::StringMap<int> taken; // and the number to try when the name is asked for again
};

/// A file name as a string literal, quotes included, that cannot end early: quotes, backslashes and question marks
/// (trigraphs) are escaped, control characters and what is not UTF-8 become '_'. Only the last 512 bytes are kept.
std::string fileLiteral(llvm::StringRef name);

/// A constant of the IR as an expression; negative ones begin with '-'.
std::string literal(ir::Type type, int64_t bits);

} // namespace attnc::codegen
