// Binding: matches a module's declarations with what a caller gives.
//
// In: a module, captures by name, the extents of the problem. Out: views, scalars and extents in the module's own
// order. Checks names, kinds, dtypes, ranks and extents. Never reads a tensor's elements, which may be device memory.
#pragma once

#include "attnc/captures.h"
#include "attnc/error.h"
#include "attnc/operands.h"
#include "attnc/problem.h"
#include "ir/bindings.h"
#include "ir/ir.h"

namespace attnc::ir {

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
