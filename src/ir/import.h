// Imports: values of a module, copied into another one.
//
// In: two modules, with their own captures and extents. Out: declarations of both in one, each name once, and copies of
// values that mean the same. Not: outputs, which the caller combines.
#pragma once

#include "attnc/error.h"
#include "ir/ir.h"

#include <optional>

namespace attnc::ir {

/// Copies values of a module into another one. Captures and extents of equal names become one.
class Import {
public:
  /// Adds the declarations of `from` that `to` lacks. Error (environment): one name with two declarations.
  static Expected<Import> into(Module& to, const Module& from);

  /// Returns the copy of a value, with another value in place of a parameter if one is given.
  Value copy(Value root, ParamKind replaced = ParamKind::Score, std::optional<Value> by = {});

private:
  Import(Module& to, const Module& from) : to(to), from(from) {}
  Module& to;
  const Module& from;
  std::vector<int64_t> dims, tensors, scalars, grids; // indices in `to`
};

} // namespace attnc::ir
