// Operands whose values say what is read: which rows, pages and blocks there are, and which entries of captures.
// Scales.
//
// In: operands whose shapes fit. Out: whether each value names something that exists, and each scale is a number, in
// words that name the tensor, the place and the value. Launches on a GPU do not ask, unless they are told to
// (PrepareOptions::check).
#pragma once

#include "attnc/error.h"
#include "attnc/kernel.h"
#include "attnc/operands.h"
#include "ir/ir.h"
#include "jit/env.h"
#include "launch/workspace.h"

namespace attnc {

/// Whether ATTNC_CHECK asks for checks of every launch.
bool asksForChecks(const jit::Env& env);

/// Checks operands in host memory: what reference::checkValues() does, and the lists of a block mask; those by column
/// for a backward pass. Precondition: plan::checkSequences() and plan::checkAddresses() accepted them.
Status checkValues(const Operands& operands, KernelKind kind);

/// Checks the gathers whose index comes from a captured tensor: their indices lie in the tensor at all positions, also
/// where a mask hides the score. Says on stderr which gathers it leaves out, since they take too long. All is in host
/// memory. `module`: with the outputs for the sequences of the operands. Precondition: checkValues() accepted these.
Status checkGathers(const ir::Module& module, const Operands& operands);

/// Does both for operands in device memory. Copies what it needs, behind the work of the stream, and waits. Errors
/// (environment): the stream is being captured.
Status checkOnDevice(const ir::Module& module, const Operands& operands, KernelKind kind, Stream stream);

/// Checks that a workspace holds zeros where launches rely on zeros, and leave them. Copies, and waits. Error
/// (environment): it holds others.
Status checkZeros(const plan::WorkspaceView& workspace, Stream stream);

} // namespace attnc
