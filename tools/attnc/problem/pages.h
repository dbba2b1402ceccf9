// Caches of K and V in host memory, dense or in pages of a pool. Gathers them for the reference, distributes dense rows
// to pages, and appends rows.
#pragma once

#include "problem/host_tensor.h"

#include <optional>

namespace attnc::cli {

/// Gathers K or V of a pool [pages, HKV, page_size, D] into rows [B, HKV, N page_size, D] of sequences, by a table i32
/// [B, N]. Rows past a sequence's length, i32 [B], are 0; table entries past it are not read. Preconditions:
/// shapes as above, and values as reference::checkValues() wants them.
HostTensor gatherPages(const HostTensor& pool, const HostTensor& table, const HostTensor& lengths);

/// Does the inverse, into a pool of `pages` pages. Rows of no sequence are NaN, so that reading them is noticed.
/// Precondition: the entries that count are pages.
HostTensor dealToPages(const HostTensor& rows, const HostTensor& table, const HostTensor& lengths, int64_t pages,
                       int64_t pageSize);

/// Writes the new rows [B, HKV, Q_LEN, D] at the end of each sequence's length, into a pool or, without a table, into K
/// or V [B, HKV, KV_LEN, D]. With cumulative lengths of a ragged batch the rows are [1, HKV, total, D]. Rows of another
/// dtype are divided by `scales` of heads and rounded to e4m3. Preconditions as for gatherPages().
void appendRows(HostTensor& target, const HostTensor& rows, const HostTensor* table, const HostTensor& lengths,
                const std::optional<HostTensor>& cuSeqlensQ, const std::optional<HostTensor>& scales = {});

/// Draws a table i32 [B, N] of pages in random order; each belongs to one sequence. The same seed gives the same table.
HostTensor drawPageTable(int64_t batch, int64_t pagesOfSequence, uint64_t seed);

} // namespace attnc::cli
