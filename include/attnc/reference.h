// Attention on the CPU in double precision, computed from its definition. Kernels are tested against it, and machines
// without a GPU can use it, slowly.
#pragma once

#include "attnc/error.h"
#include "attnc/mod.h"
#include "attnc/operands.h"

namespace attnc {

/// Computes what a forward launch writes. Operands, captures, lists and outputs are as for Prepared::launch(), but in
/// host memory. Tensors q, k and v may have any strides. Tensors k and v may be F32, F16, BF16 or E4M3 whatever the
/// dtype of q.
///
/// Mods are evaluated in f32, as everywhere; products, softmax and sums are in double precision. If kvLengths are given
/// without qOffsets, the last query stands at the last key. Rows of a ragged batch outside all sequences get the result
/// of a fully masked row. New rows are written into k and v, or into the pages, after everything else.
///
/// Results are deterministic. Takes time O(B H Q_LEN KV_LEN D) on all cores, and memory for the results. With pages or
/// new rows it also takes memory for k and v. Returns when it is done.
///
/// Errors (environment), with nothing written: shapes, dtypes and captures that do not fit; operands that no kernel
/// takes together; outputs that share addresses. Also values that name what does not exist: cumulative lengths, KV
/// lengths, positions, pages, and lists of a block mask. Also appended rows that two sequences have, and scales that
/// are NaN, infinite or negative. With ATTNC_CHECK=1 also captured indices of gathers.
Status computeOnCpu(const Mod& mod, const Operands& operands, const Outputs& outputs);

/// Computes what a backward launch writes, in host memory. It recomputes `out` and `lse`, and does not read those of
/// `operands`. Block masks need no lists by column; given ones must agree with those by row. Otherwise as
/// computeOnCpu().
///
/// Errors (environment): those of computeOnCpu(); a gradient of a name that is no captured float. Also what no backward
/// kernel takes: pages, new rows, k and v of E4M3; kvLengths of a ragged batch, or with k of batch 1.
Status computeBackwardOnCpu(const Mod& mod, const BackwardOperands& operands, const BackwardOutputs& outputs);

} // namespace attnc
