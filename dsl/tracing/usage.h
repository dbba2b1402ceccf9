// Finds how a text uses a name that it does not define, and so what the author would have to declare.
//
// In: the statements of a text and a name. Out: rank and extents from the indices, and the type from the operands
// around it. It reads only the syntax tree, so it also sees the text after an error. The answer is a guess, for hints
// in messages.
#pragma once

#include "dsl/syntax/ast.h"
#include "dsl/tracing/usage_type.h"

#include <optional>
#include <string>

namespace attnc::dsl {

struct Usage {
  bool isCalled = false;
  bool isGivenAsMod = false;           ///< whether create_block_mask or flex_attention is given it
  bool isMentioned = false;            ///< whether it occurs as a name, an attribute, a parameter or a string
  bool steers = false;                 ///< whether a loop or an `if` reads it: it must be known before launch
  std::string member;                  ///< `cap` in `name.cap`; may be empty
  std::optional<UsedAs> type;          ///< type of the value, or of an element
  llvm::SmallVector<std::string> dims; ///< from the indices: an extent such as KV_LEN, or a free name; may be empty
};

/// With `asParameter`, parameters of the name mean the same value: a factory is usually given what is named alike.
Usage usageOf(const Block& text, llvm::StringRef name, bool asParameter = false);

/// Returns `document_id: i32[KV_LEN]` or `window: int`; empty if the use does not tell.
std::string declarationOf(llvm::StringRef name, const Usage& usage);

} // namespace attnc::dsl
