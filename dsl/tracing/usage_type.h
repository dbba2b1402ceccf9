// Guesses the type of an undefined name from the place where it is used.
//
// In: the path from a statement down to the use, and the functions around it. Out: the type that the use needs, or
// nothing if it does not tell. Not: what other names stand for; only the parameters of mods are known.
#pragma once

#include "dsl/syntax/ast.h"

#include <optional>

namespace attnc::dsl {

/// Which parameter of a mod a name is.
enum class Role : uint8_t { None, Score, Batch, Head, Row, Column };

/// What a statement does with its expression.
enum class Place : uint8_t { Value, Result, Condition, Iterable };

struct UseSite {
  std::vector<const Expr*> path;                       ///< from the statement's expression down
  llvm::SmallVector<const FunctionNode*, 4> functions; ///< around the statement, outermost first
  Place place = Place::Value;

  Role roleOf(llvm::StringRef variable) const;
};

/// Returns the number of parameters that a call must give: 5 make a score_mod, 4 a mask_mod.
size_t requiredParameters(const FunctionNode& function);

/// The type of a value as its use tells.
enum class UsedAs : uint8_t { Bool, Int, Real };

struct UseType {
  std::optional<UsedAs> type;
  bool steers = false; ///< whether the value must be known before launch
};

/// Guesses the type of the value at site.path[at]. `isIndexed`: whether the value is an element of a tensor.
UseType typeOfUse(const UseSite& site, size_t at, bool isIndexed);

} // namespace attnc::dsl
