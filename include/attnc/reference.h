// Attention on the CPU, in double precision, straight from its definition: what kernels are held against, and how a
// machine without a GPU computes, slowly.
#pragma once

#include "attnc/error.h"
#include "attnc/mod.h"
#include "attnc/operands.h"

namespace attnc {

/// Computes what a forward launch writes. Operands, captures, lists and outputs as of Prepared::launch(), but in host
/// memory; q, k and v with any strides, and with k and v of F32, F16, BF16 or E4M3 whatever q is. New rows are written
/// into k and v, or into the pages, behind all else: after an error nothing is written. Where there are kvLengths and
/// no qOffsets, the last query stands at the last key. Mods are evaluated in f32, as everywhere; products, softmax and
/// sums are in double precision. Deterministic. Takes B H Q_LEN KV_LEN D time on all cores, and memory for the results,
/// and of pages and with new rows for k and v. Errors (environment): shapes, dtypes and captures that do not fit;
/// operands that no kernel takes together; an entry of the page table before a KV length that is no page. Rows of a
/// ragged batch that are in no sequence get what a fully masked row gets.
Status computeOnCpu(const Mod& mod, const Operands& operands, const Outputs& outputs);

/// Computes what a backward launch writes. Of the forward launch's results, `out` and `lse`, nothing is read: they are
/// computed again. Block masks need no lists by column. Errors (environment) also: a gradient of what is no captured
/// float; kvLengths, qOffsets but of a ragged batch, pages, new rows, and k and v of E4M3, which no backward kernel
/// takes.
Status computeBackwardOnCpu(const Mod& mod, const BackwardOperands& operands, const BackwardOutputs& outputs);

} // namespace attnc
