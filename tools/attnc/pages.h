// Caches of K and V in host memory, as they lie or in pages of a pool: gathered for the reference, dealt from rows that lie
// together, and appended to.
#pragma once

#include "host_tensor.h"

#include "attnc/error.h"

namespace attnc::cli {

/// K or V of a pool [pages, HKV, page_size, D] as rows [B, HKV, N page_size, D] of sequences, by a table i32 [B, N]. Rows
/// behind a sequence's length, i32 [B], are 0, and table entries behind it are not looked at. Errors (environment): other
/// entries that are no pages. Preconditions: shapes as said.
Expected<HostTensor> gatherPages(const HostTensor& pool, const HostTensor& table, const HostTensor& lengths);

/// The way back, to a pool of `pages` pages. What no sequence has is NaN, so that whoever reads it shows. Precondition: the
/// entries that count are pages.
HostTensor dealToPages(const HostTensor& rows, const HostTensor& table, const HostTensor& lengths, int64_t pages,
                       int64_t pageSize);

/// Writes the new rows [B, HKV, Q_LEN, D] to the end of each sequence's length, into a pool or, without a table, into K or V
/// [B, HKV, KV_LEN, D]. Errors and preconditions as above.
Status appendRows(HostTensor& target, const HostTensor& rows, const HostTensor* table, const HostTensor& lengths);

/// A table i32 [B, N] of pages in any order, each of one sequence. The same seed gives the same.
HostTensor drawPageTable(int64_t batch, int64_t pagesOfSequence, uint64_t seed);

} // namespace attnc::cli
