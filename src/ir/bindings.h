// Binding: what a module declares, matched with what a caller gives.
//
// In: a module, captures by name, the extents of the problem. Out: views, scalars and extents in the module's own
// order. It checks names, kinds, dtypes, ranks and extents; it never reads a tensor's elements, which may be device
// memory.
#pragma once

#include "attnc/captures.h"
#include "attnc/error.h"
#include "attnc/operands.h"
#include "attnc/problem.h"
#include "ir/ir.h"

#include <llvm/ADT/SmallVector.h>

namespace attnc::ir {

/// Kernels run with batch, heads and lengths up to this, so an index is exact in f32 and the difference of two indices
/// is, too. bind() refuses larger problems, and a number of heads that is no multiple of HKV; the passes rely on both.
constexpr int64_t kMaxExtent = int64_t(1) << 24;

/// The value of one run-time scalar: `integer` for i32 (sign-extended) and bool (0 or 1), `real` for f32. The other
/// field is 0.
struct ScalarValue {
  int64_t integer = 0;
  float real = 0;
};

/// Values of everything a module declares. Binding makes no heap allocation within the inline capacities; the views are
/// borrowed from the captures' owner.
struct Bindings {
  llvm::SmallVector<TensorView, 8> tensors;  ///< in the order of Module::tensors
  llvm::SmallVector<ScalarValue, 8> scalars; ///< in the order of Module::scalars
  llvm::SmallVector<int64_t, 16> dims;       ///< in the order of Module::dims

  /// A number of a grid of the module. It is no Rest.
  int64_t of(const Grid::Number& number) const;
  /// All extents of a grid. A Rest is rounded down.
  llvm::SmallVector<int64_t, 3> extentsOf(const Grid& grid) const;
  /// A scalar beyond kMaxExtent or below -kMaxExtent; nothing where there is none.
  std::optional<int64_t> farScalar() const;
};

/// What a launch tells of the sequences of its batch: the tensors that the pass `sequences` declared. Null: not given.
struct SequenceTensors {
  const TensorView* kvLengths = nullptr;
  const TensorView* qOffsets = nullptr;
  const TensorView* cuSeqlensQ = nullptr;  ///< [B + 1], where each sequence begins, and the end of the last one
  const TensorView* cuSeqlensKv = nullptr; ///< likewise; both or none
};

/// The problem that a ragged batch poses. `rows`: the extents of its tensors.
ProblemShape problemOf(ProblemShape rows, const RaggedBatch& ragged);

/// Matches captures with the module's declarations; tensors of sequences come from `sequences` if given there. Errors
/// are Blame::Environment and name the capture: missing, of the wrong kind, dtype, rank or extent, out of int32's
/// range, without data, or not declared by the mod. Free dims take the extent of the first tensor that names them; all
/// others must agree. An integer is accepted for a float scalar. Then every condition of the module must hold; the
/// error has its words and the extents and scalars that it asks about.
Expected<Bindings> bind(const Module& module, const Captures& captures, const ProblemShape& problem,
                        const SequenceTensors& sequences = {});

} // namespace attnc::ir
