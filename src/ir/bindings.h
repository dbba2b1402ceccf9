// Binding: matches a module's declarations with what a caller gives.
//
// In: a module, captures by name, the extents of the problem. Out: views, scalars and extents in the module's own
// order. Checks names, kinds, dtypes, ranks and extents. Never reads a tensor's elements, which may be device memory.
#pragma once

#include "attnc/captures.h"
#include "attnc/error.h"
#include "attnc/operands.h"
#include "attnc/problem.h"
#include "ir/ir.h"

#include <llvm/ADT/SmallVector.h>

namespace attnc::ir {

/// The largest batch, number of heads, and length of kernels, so that an index and the difference of two indices are
/// exact in f32. bind() refuses larger problems, and a number of heads that is not a multiple of HKV. The passes rely
/// on both.
constexpr int64_t kMaxExtent = int64_t(1) << 24;

/// The value of one run-time scalar: `integer` for i32 (sign-extended) and bool (0 or 1), `real` for f32. The other
/// field is 0.
struct ScalarValue {
  int64_t integer = 0;
  float real = 0;
};

/// Values of everything a module declares. Binding allocates nothing within the inline capacities. The captures' owner
/// owns the views' memory.
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

/// Returns the extents of the problem that a mod sees. `rows`: those of the tensors, which differ for a ragged batch.
ProblemShape problemOf(ProblemShape rows, const Operands& operands);

/// Matches captures with the module's declarations. Tensors that the pass `sequences` declared come from `sequences`,
/// or from the captures if it is null or lacks them. Free
/// dims take the extent of the first tensor that names them; all others must agree. An integer is accepted for a float
/// scalar. Then every condition of the module must hold. Errors are Blame::Environment. They name a capture that is
/// missing, of the wrong kind, dtype, rank or extent, outside int32, without data, or not declared by the mod. For a
/// condition, the error has its words and the extents and scalars that it reads.
Expected<Bindings> bind(const Module& module, const Captures& captures, const ProblemShape& problem,
                        const Operands* sequences = nullptr);

} // namespace attnc::ir
