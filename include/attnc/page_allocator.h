// Deals the pages of a pool to sequences, to fill Operands::pageTable. For callers without their own page management.
//
// ```
//   auto pages = attnc::PageAllocator::create(/*pages=*/4096, /*pageSize=*/64);
//   const auto sequence = pages->add();
//   auto copy = pages->append(sequence, promptLength);                    // room for the rows of a prompt
//   pages->fill({sequence}, columns, table, lengths);                     // host memory, then uploaded
// ```
//
// The allocator knows neither tensors nor layers, since one table serves K and V of all layers. It needs only host
// memory, no GPU.
#pragma once

#include "attnc/error.h"

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace attnc {

/// A copy that the caller must make in K and V of all layers: the first `rows` rows of page `from` into page `to`. Make
/// it before anything else writes to `to`. It is soon enough if a stream runs it behind what wrote `from`.
struct PageCopy {
  int32_t from = 0, to = 0;
  int64_t rows = 0;
  friend bool operator==(const PageCopy&, const PageCopy&) = default;
};

/// Deals pages to sequences. Not thread-safe. A call that returns an error has changed nothing.
///
/// Pages of a freed sequence are reused at once. Work that is already enqueued still reads them correctly if the new
/// writes follow on the same stream.
class PageAllocator {
public:
  /// A sequence, by a number that no other sequence gets.
  using Sequence = int64_t;

  /// Creates an allocator for a pool of `pages` pages, 0 .. 2^31 - 1, of `pageSize` rows each, at least 1. Kernels take
  /// only kPageSizes. Errors (environment): values outside these ranges.
  static Expected<PageAllocator> create(int64_t pages, int64_t pageSize);

  /// Adds a sequence with no rows and no pages.
  Sequence add();

  /// Adds a sequence that begins with the first `rows` rows of sequence `of`, and shares their pages. If the last
  /// shared page is not full, the first sequence to append gets its own copy of it. Errors (environment): an unknown
  /// sequence; more rows than it has.
  Expected<Sequence> share(Sequence of, int64_t rows);

  /// Reserves pages for `rows` rows in all; the last page is then the sequence's own. Later append() calls up to there
  /// return no error unless the sequence is shared again. Returns the copy to make, if any. Errors (environment): too
  /// few free pages; an unknown sequence.
  Expected<std::optional<PageCopy>> reserve(Sequence sequence, int64_t rows);

  /// Appends `rows` rows to the sequence; reserves pages as reserve() does. Returns the copy to make, if any. Errors
  /// (environment): those of reserve().
  Expected<std::optional<PageCopy>> append(Sequence sequence, int64_t rows);

  /// Removes rows from the end until `rows` are left. Gives back all pages past them, including reserved ones. Errors
  /// (environment): an unknown sequence; one with fewer rows.
  Status truncate(Sequence sequence, int64_t rows);

  /// Removes a sequence, and gives back the pages that no other sequence shares. Errors (environment): an unknown
  /// sequence.
  Status free(Sequence sequence);

  /// Returns the rows of a page.
  int64_t pageSize() const { return rowsOfPage; }
  /// Returns the pages of the pool.
  int64_t pages() const { return int64_t(users.size()); }
  /// Returns the pages that no sequence has.
  int64_t freePages() const { return int64_t(unused.size()); }

  /// Returns the rows of a sequence. Precondition: it exists.
  int64_t length(Sequence sequence) const { return all.at(sequence).length; }
  /// Returns the pages of a sequence in order, reserved ones last; owned by this object. Precondition: it exists.
  const std::vector<int32_t>& pagesOf(Sequence sequence) const { return all.at(sequence).pages; }

  /// Fills the tensors that a launch takes for these sequences, in this order. Both are dense, in host memory that the
  /// caller owns. For Operands::pageTable: `table`, i32 [sequences, columns]; entries without a page are -1. For
  /// Operands::kvLengths: `lengths`, i32 [sequences]. Errors (environment), with nothing written: an unknown sequence;
  /// one with more pages than `columns`.
  Status fill(const std::vector<Sequence>& sequences, int64_t columns, int32_t* table, int32_t* lengths) const;

private:
  struct State {
    int64_t length = 0;
    std::vector<int32_t> pages;
  };
  PageAllocator(int64_t pages, int64_t pageSize);
  Expected<State*> find(Sequence sequence);
  int32_t take();
  void giveBack(int32_t page);

  int64_t rowsOfPage;
  std::vector<int32_t> users;  ///< For each page: the number of sequences that have it.
  std::vector<int32_t> unused; ///< Free pages. The next one to deal is last.
  std::map<Sequence, State> all;
  Sequence next = 0;
};

} // namespace attnc
