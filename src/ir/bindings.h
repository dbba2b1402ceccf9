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

/// A launch's tensors for the sequences of its batch: those that the pass `sequences` declared. Null: not given.
struct SequenceTensors {
  const TensorView* kvLengths = nullptr;
  const TensorView* qOffsets = nullptr;
  const TensorView* cuSeqlensQ = nullptr;  ///< [B + 1], the start of each sequence, and the end of the last
  const TensorView* cuSeqlensKv = nullptr; ///< the same for k and v; both or neither are given
};

/// Returns the extents of the problem of a ragged batch. `rows`: the extents of its tensors.
ProblemShape problemOf(ProblemShape rows, const RaggedBatch& ragged);

/// Matches captures with the module's declarations; tensors of sequences come from `sequences` if given there. Free
/// dims take the extent of the first tensor that names them; all others must agree. An integer is accepted for a float
/// scalar. Then every condition of the module must hold. Errors are Blame::Environment. They name a capture that is
/// missing, of the wrong kind, dtype, rank or extent, outside int32, without data, or not declared by the mod. For a
/// condition, the error has its words and the extents and scalars that it reads.
Expected<Bindings> bind(const Module& module, const Captures& captures, const ProblemShape& problem,
                        const SequenceTensors& sequences = {});

} // namespace attnc::ir
