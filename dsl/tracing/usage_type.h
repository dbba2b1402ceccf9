// The type of a value of which only its place in the tree is known.
//
// In: the way from a statement down to the value, and the functions around it. Out: what type it must have for what it
// is combined with; nothing where that does not tell. Not: values that were computed before; names stand for nothing
// but the parameters of mods.
#pragma once

#include "dsl/tracing/usage.h"

namespace attnc::dsl {

/// What the parameters of a mod stand for.
enum class Role : uint8_t { None, Score, Batch, Head, Row, Column };

/// Where a statement has an expression.
enum class Place : uint8_t { Value, Result, Condition, Iterable };

struct UseSite {
  std::vector<const Expr*> path;                       ///< from the statement's expression down
  llvm::SmallVector<const FunctionNode*, 4> functions; ///< around the statement, outermost first
  Place place = Place::Value;

  Role roleOf(llvm::StringRef variable) const;
};

/// Parameters that a call must give: 5 make a score_mod, 4 a mask_mod.
size_t requiredParameters(const FunctionNode& function);

struct UseType {
  std::optional<Usage::Type> type;
  bool steers = false; ///< the value must be known before launch
};

/// Of the value at site.path[at]; `isIndexed`: it is an element of a tensor.
UseType typeOfUse(const UseSite& site, size_t at, bool isIndexed);

} // namespace attnc::dsl
