// Deals the pages of a pool to sequences, to fill Operands::pageTable. A start for callers without their own page
// management; it knows neither tensors nor layers, since one table serves K and V of all layers.
#pragma once

#include <attnc/error.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace example {

/// A copy that the caller must make in K and V of all layers: the first `rows` rows of page `from` into page `to`. Make
/// it before anything else writes to `to`. It is soon enough if a stream runs it behind what wrote `from`.
struct PageCopy {
  int32_t from = 0, to = 0;
  int64_t rows = 0;
  friend bool operator==(const PageCopy&, const PageCopy&) = default;
};

/// Not thread-safe. A call that returns an error has changed nothing.
///
/// Pages of a freed sequence are reused at once. Work that is already enqueued still reads them correctly if the new
/// writes follow on the same stream.
class PageAllocator {
public:
  /// A sequence, by a number that no other sequence gets.
  using Sequence = int64_t;

  /// `pages`: of the pool, 0 .. 2^31 - 1. `pageSize`: their rows, one of attnc::kPageSizes.
  PageAllocator(int64_t pages, int64_t pageSize) : rowsOfPage(pageSize), users(size_t(pages)) {
    for (int64_t page = pages; page-- > 0;) unused.push_back(int32_t(page));
  }

  /// Adds a sequence with no rows and no pages.
  Sequence add() {
    all[next];
    return next++;
  }

  /// Adds a sequence that begins with the first `rows` rows of sequence `of`, and shares their pages. If the last
  /// shared page is not full, the first sequence to append gets its own copy of it. Error: an unknown sequence; more
  /// rows than it has.
  attnc::Expected<Sequence> share(Sequence of, int64_t rows) {
    attnc::Expected<State*> state = find(of, rows);
    if (!state) return state.error();
    const auto first = (*state)->pages.begin();
    State shared{rows, {first, first + pagesFor(rows)}};
    for (int32_t page : shared.pages) ++users[size_t(page)];
    all[next] = std::move(shared);
    return next++;
  }

  /// Reserves pages for `rows` rows in all; the last page is then the sequence's own. Later append() calls up to there
  /// return no error unless the sequence is shared again. Returns the copy to make, if any. Error: too few free pages;
  /// an unknown sequence.
  attnc::Expected<std::optional<PageCopy>> reserve(Sequence sequence, int64_t rows) {
    attnc::Expected<State*> found = find(sequence, 0);
    if (!found) return found.error();
    State& state = **found;
    if (rows <= state.length) return std::optional<PageCopy>();
    const int64_t last = state.length / rowsOfPage, written = state.length % rowsOfPage;
    const bool copies = written && users[size_t(state.pages[size_t(last)])] > 1;
    const int64_t more = std::max<int64_t>(pagesFor(rows) - int64_t(state.pages.size()), 0);
    if (more + copies > freePages())
      return attnc::Error::environment("sequence " + std::to_string(sequence) + " needs " +
                                           std::to_string(more + copies) + " more pages, " +
                                           std::to_string(freePages()) + " are free",
                                       "free a sequence, or make the pool larger");
    for (int64_t i = 0; i < more; ++i) state.pages.push_back(take());
    if (!copies) return std::optional<PageCopy>();
    int32_t& page = state.pages[size_t(last)];
    const PageCopy copy{page, take(), written};
    giveBack(page);
    page = copy.to;
    return std::optional(copy);
  }

  /// Appends `rows` rows to the sequence; reserves pages as reserve() does. Returns the copy to make, if any. Error:
  /// those of reserve(); a number of rows below 0, or one that exceeds 2^31 - 1 in all.
  attnc::Expected<std::optional<PageCopy>> append(Sequence sequence, int64_t rows) {
    attnc::Expected<State*> state = find(sequence, 0);
    if (!state) return state.error();
    if (rows < 0 || rows > std::numeric_limits<int32_t>::max() - (*state)->length)
      return attnc::Error::environment(std::to_string(rows) + " rows are appended to " +
                                       std::to_string((*state)->length));
    auto copy = reserve(sequence, (*state)->length + rows);
    if (copy) (*state)->length += rows;
    return copy;
  }

  /// Removes rows from the end until `rows` are left. Gives back all pages past them, including reserved ones. Error:
  /// an unknown sequence; one with fewer rows.
  attnc::Status truncate(Sequence sequence, int64_t rows) {
    attnc::Expected<State*> state = find(sequence, rows);
    if (!state) return state.error();
    std::vector<int32_t>& pages = (*state)->pages;
    for (; int64_t(pages.size()) > pagesFor(rows); pages.pop_back()) giveBack(pages.back());
    (*state)->length = rows;
    return {};
  }

  /// Removes a sequence, and gives back the pages that no other sequence shares. Error: an unknown sequence.
  attnc::Status free(Sequence sequence) {
    if (attnc::Status status = truncate(sequence, 0); !status) return status;
    all.erase(sequence);
    return {};
  }

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
  /// Operands::kvLengths: `lengths`, i32 [sequences]. Error, with nothing written: an unknown sequence; one with more
  /// pages than `columns`.
  attnc::Status fill(const std::vector<Sequence>& sequences, int64_t columns, int32_t* table, int32_t* lengths) const {
    for (Sequence sequence : sequences) {
      auto found = all.find(sequence);
      if (found == all.end()) return noSequence(sequence);
      if (int64_t(found->second.pages.size()) > columns)
        return attnc::Error::environment("sequence " + std::to_string(sequence) + " has " +
                                         std::to_string(found->second.pages.size()) + " pages, the table room for " +
                                         std::to_string(columns));
    }
    for (Sequence sequence : sequences) {
      const State& state = all.at(sequence);
      std::fill(std::copy(state.pages.begin(), state.pages.end(), table), table + columns, -1);
      table += columns;
      *lengths++ = int32_t(state.length);
    }
    return {};
  }

private:
  struct State {
    int64_t length = 0;
    std::vector<int32_t> pages;
  };

  static attnc::Error noSequence(Sequence sequence) {
    return attnc::Error::environment("there is no sequence " + std::to_string(sequence));
  }
  /// Returns a sequence with at least `rows` rows.
  attnc::Expected<State*> find(Sequence sequence, int64_t rows) {
    auto found = all.find(sequence);
    if (found == all.end()) return noSequence(sequence);
    if (rows < 0 || rows > found->second.length)
      return attnc::Error::environment("sequence " + std::to_string(sequence) + " has " +
                                       std::to_string(found->second.length) + " rows, " + std::to_string(rows) +
                                       " are asked for");
    return &found->second;
  }
  int64_t pagesFor(int64_t rows) const { return rows / rowsOfPage + (rows % rowsOfPage != 0); }
  int32_t take() {
    const int32_t page = unused.back();
    unused.pop_back();
    users[size_t(page)] = 1;
    return page;
  }
  void giveBack(int32_t page) {
    if (--users[size_t(page)] == 0) unused.push_back(page);
  }

  int64_t rowsOfPage;
  std::vector<int32_t> users;  ///< For each page: the number of sequences that have it.
  std::vector<int32_t> unused; ///< Free pages. The next one to deal is last.
  std::map<Sequence, State> all;
  Sequence next = 0;
};

} // namespace example
