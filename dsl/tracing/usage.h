// How a text uses a name that it does not define: what the author would have to declare.
//
// In: the statements of a text and a name. Out: rank and extents from the indices, the type from what it is combined
// with. It reads the syntax tree alone, so that it also sees the text after an error. The answer is a guess, for hints
// in messages.
#pragma once

#include "dsl/syntax/ast.h"

#include <optional>
#include <string>

namespace attnc::dsl {

struct Usage {
  enum class Type : uint8_t { Bool, Int, Real };

  bool isCalled = false;
  bool isGivenAsMod = false;           ///< to create_block_mask or flex_attention
  bool isMentioned = false;            ///< as a name, an attribute, a parameter or a string
  bool steers = false;                 ///< a loop or an `if` asks for it: it must be known before launch
  std::string member;                  ///< `cap` of `name.cap`; empty if there is none
  std::optional<Type> type;            ///< of the value, or of an element
  llvm::SmallVector<std::string> dims; ///< of the indices: an extent such as KV_LEN, or a free name; empty: not indexed
};

Usage usageOf(const Block& text, llvm::StringRef name);

/// `document_id: i32[KV_LEN]`, `window: int`; empty where the use does not tell.
std::string declarationOf(llvm::StringRef name, const Usage& usage);

} // namespace attnc::dsl
