// The values of one launch for everything that a module declares.
#pragma once

#include "attnc/tensor.h"
#include "ir/ir.h"

#include <llvm/ADT/SmallVector.h>

#include <optional>

namespace attnc::ir {

/// The value of one run-time scalar: `integer` for i32 (sign-extended) and bool (0 or 1), `real` for f32. The other
/// field is 0.
struct ScalarValue {
  int64_t integer = 0;
  float real = 0;
};

/// Made by bind() (bind.h). Allocates nothing within the inline capacities. The captures' owner owns the views' memory.
struct Bindings {
  llvm::SmallVector<TensorView, 8> tensors;  ///< in the order of Module::tensors
  llvm::SmallVector<ScalarValue, 8> scalars; ///< in the order of Module::scalars
  llvm::SmallVector<int64_t, 16> dims;       ///< in the order of Module::dims

  /// Returns a number of a grid of the module. Precondition: its kind is not Rest.
  int64_t of(const Grid::Number& number) const;
  /// Returns all extents of a grid. A Rest is rounded down.
  llvm::SmallVector<int64_t, 3> extentsOf(const Grid& grid) const;
  /// Returns a scalar above kMaxExtent or below -kMaxExtent, if any.
  std::optional<int64_t> farScalar() const;
};

} // namespace attnc::ir
