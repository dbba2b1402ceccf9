// Compiles a source whose statements may stand in several orders, until ptxas keeps its products in flight.
//
// Which order ptxas serialises wgmma in depends on its version. Templates that are at the limit of registers have more
// than one: they read the macro ATTNC_ORDER, a number, which is 0 where nothing defines it.
#pragma once

#include "jit/kernel_compiler.h"

namespace attnc::jit {

/// How many orders a template has that reads the macro.
inline constexpr int kOrders = 4;

/// Compiles a source in its first order. If ptxas serialises products in it (C7510 to C7520), compiles it in the
/// others, and returns the first one in which it does not. If it does in each, returns the first order. The log says
/// so. Errors: those of the first order.
Expected<CompiledKernel> compileInOrders(KernelCompiler& compiler, const KernelSource& source);

} // namespace attnc::jit
