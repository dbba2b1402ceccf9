// Pages of a pool dealt to sequences: the bookkeeping beside Operands::pageTable, for who has none of his own.
//
//   auto pages = attnc::PageAllocator::create(/*pages=*/4096, /*pageSize=*/64);
//   const auto sequence = pages->add();
//   auto copy = pages->append(sequence, promptLength);                    // room for the rows of a prompt
//   pages->fill({sequence}, columns, table, lengths);                     // host memory, then uploaded
//
// It knows neither tensors nor layers: one table serves K and V of all layers. Host memory alone; needs no GPU.
#pragma once

#include "attnc/error.h"

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace attnc {

/// What the caller copies, in K and V of all layers, before anything else is written to `to`: the first `rows` rows of
/// a page. In the order of a stream behind what wrote `from`, that is soon enough.
struct PageCopy {
  int32_t from = 0, to = 0;
  int64_t rows = 0;
  friend bool operator==(const PageCopy&, const PageCopy&) = default;
};

/// Not thread-safe. A call that gives an error has changed nothing. Pages of a freed sequence are dealt again at once:
/// what was enqueued before still reads them, if what writes them comes behind it on the same stream.
class PageAllocator {
public:
  /// A sequence, by a number that no other one gets.
  using Sequence = int64_t;

  /// `pages`: of the pool, 0 .. 2^31 - 1. `pageSize`: rows of each, at least 1 (kernels take kPageSizes). Errors
  /// (environment): others.
  static Expected<PageAllocator> create(int64_t pages, int64_t pageSize);

  /// A sequence without rows, and without pages.
  Sequence add();

  /// A new sequence that begins with the first `rows` rows of another: it shares their pages. Who is appended to first
  /// gets a page of his own, where the last of them is not full. Errors (environment): no such sequence; more rows than
  /// it has.
  Expected<Sequence> share(Sequence of, int64_t rows);

  /// Sees that a sequence has pages for `rows` rows in all, its last one its own, so that append() up to there gives no
  /// error as long as nobody shares it anew. Returns what must be copied, if anything. Errors (environment): too few
  /// free pages; no such sequence.
  Expected<std::optional<PageCopy>> reserve(Sequence sequence, int64_t rows);

  /// reserve() for `rows` more rows than it has, which then count.
  Expected<std::optional<PageCopy>> append(Sequence sequence, int64_t rows);

  /// Takes rows off the end, until `rows` are left, and gives back the pages that are no longer needed, reserved ones
  /// too. Errors (environment): no such sequence; it has fewer.
  Status truncate(Sequence sequence, int64_t rows);

  /// Gives back its pages, those that nobody shares. Errors (environment): no such sequence.
  Status free(Sequence sequence);

  int64_t pageSize() const { return rowsOfPage; }
  int64_t pages() const { return int64_t(users.size()); }
  int64_t freePages() const { return int64_t(unused.size()); }

  /// Rows of a sequence; its pages, in order, reserved ones at the end. Precondition: it exists.
  int64_t length(Sequence sequence) const { return all.at(sequence).length; }
  const std::vector<int32_t>& pagesOf(Sequence sequence) const { return all.at(sequence).pages; }

  /// What a launch takes of these sequences, in this order: `table`, i32 [sequences, columns] for Operands::pageTable,
  /// and `lengths`, i32 [sequences] for Operands::kvLengths, in host memory. Entries without a page are -1. Errors
  /// (environment), with nothing written: no such sequence; one that has more pages than `columns`.
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
  std::vector<int32_t> users;  ///< of each page: the sequences that have it
  std::vector<int32_t> unused; ///< the next one last
  std::map<Sequence, State> all;
  Sequence next = 0;
};

} // namespace attnc
