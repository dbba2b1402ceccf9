// Makes user text and numbers safe for CUDA C++.
#pragma once

#include "ir/ir.h"

#include <llvm/ADT/StringMap.h>
#include <llvm/ADT/StringRef.h>

#include <string>

namespace attnc::codegen {

/// Makes unique identifiers. They consist of [A-Za-z0-9_], start with the given prefix (which must rule out keywords
/// and macros) and have at most 64 characters.
class Names {
public:
  /// Returns "v_slopes" for "v_" and "slopes"; the second time "v_slopes_2". Other characters of `name` become '_';
  /// clashes are numbered in the same way. `prefix` and `suffix` are attnc's own.
  std::string unique(llvm::StringRef prefix, llvm::StringRef name, llvm::StringRef suffix = {});

private:
  llvm::StringMap<int> taken; // the number to try when the name is requested again
};

/// Returns a file name as a string literal, with quotes, that cannot end early. Quotes, backslashes and question marks
/// (trigraphs) are escaped; control characters and invalid UTF-8 become '_'. Keeps only the last 512 bytes.
std::string fileLiteral(llvm::StringRef name);

/// Returns a constant of the IR as an expression; negative ones begin with '-'.
std::string literal(ir::Type type, int64_t bits);

} // namespace attnc::codegen
