// Binding: matches a module's declarations with what a caller gives.
//
// In: a module, captures by name, the extents of the problem. Out: views, scalars and extents in the module's own
// order. Checks names, kinds, dtypes, ranks and extents. bind() never reads a tensor's
// elements, which may be device memory.
#pragma once

#include "attnc/captures.h"
#include "attnc/error.h"
#include "attnc/operands.h"
#include "attnc/problem.h"
#include "ir/bindings.h"
#include "ir/ir.h"

namespace attnc::ir {

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

/// Does the same for captures in host memory, and reads those that choose mods. Error: an element that names no mod.
Expected<Bindings> bindOnHost(const Module& module, const Captures& captures, const ProblemShape& problem,
                              const Operands* sequences = nullptr);

} // namespace attnc::ir
