#include "attnc/page_allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace attnc {
namespace {

Error noSequence(PageAllocator::Sequence sequence) {
  return Error::environment(fmt::format("page allocator: there is no sequence {}", sequence));
}

Error wrongRows(PageAllocator::Sequence sequence, int64_t has, int64_t rows) {
  return Error::environment(
      fmt::format("page allocator: sequence {} has {} rows, {} are asked for", sequence, has, rows));
}

} // namespace

PageAllocator::PageAllocator(int64_t pages, int64_t pageSize) : rowsOfPage(pageSize), users(size_t(pages)) {
  for (int64_t page = pages; page-- > 0;) unused.push_back(int32_t(page));
}

Expected<PageAllocator> PageAllocator::create(int64_t pages, int64_t pageSize) {
  if (pages < 0 || pages > std::numeric_limits<int32_t>::max())
    return Error::environment(fmt::format("page allocator: a pool of {} pages", pages), "0 to 2^31 - 1 are possible");
  if (pageSize < 1 || pageSize > std::numeric_limits<int32_t>::max())
    return Error::environment(fmt::format("page allocator: pages of {} rows", pageSize), "they have at least one");
  return PageAllocator(pages, pageSize);
}

Expected<PageAllocator::State*> PageAllocator::find(Sequence sequence) {
  auto found = all.find(sequence);
  if (found == all.end()) return noSequence(sequence);
  return &found->second;
}

int32_t PageAllocator::take() {
  const int32_t page = unused.back();
  unused.pop_back();
  users[size_t(page)] = 1;
  return page;
}

void PageAllocator::giveBack(int32_t page) {
  if (--users[size_t(page)] == 0) unused.push_back(page);
}

PageAllocator::Sequence PageAllocator::add() {
  all[next];
  return next++;
}

Expected<PageAllocator::Sequence> PageAllocator::share(Sequence of, int64_t rows) {
  Expected<State*> state = find(of);
  if (!state) return state.error();
  if (rows < 0 || rows > (*state)->length) return wrongRows(of, (*state)->length, rows);
  const auto first = (*state)->pages.begin();
  State shared{rows, {first, first + (rows + rowsOfPage - 1) / rowsOfPage}};
  for (int32_t page : shared.pages) ++users[size_t(page)];
  all[next] = std::move(shared);
  return next++;
}

Expected<std::optional<PageCopy>> PageAllocator::reserve(Sequence sequence, int64_t rows) {
  Expected<State*> found = find(sequence);
  if (!found) return found.error();
  State& state = **found;
  if (rows <= state.length) return std::optional<PageCopy>();
  const int64_t last = state.length / rowsOfPage, written = state.length % rowsOfPage;
  const bool copies = written && users[size_t(state.pages[size_t(last)])] > 1;
  const int64_t more = std::max<int64_t>((rows - 1) / rowsOfPage + 1 - int64_t(state.pages.size()), 0);
  if (more + copies > freePages())
    return Error::environment(
        fmt::format("page allocator: sequence {} needs {} more pages of {} rows, and {} of {} are free", sequence,
                    more + copies, rowsOfPage, freePages(), pages()),
        "free a sequence, or make the pool larger");
  for (int64_t i = 0; i < more; ++i) state.pages.push_back(take());
  if (!copies) return std::optional<PageCopy>();
  int32_t& page = state.pages[size_t(last)];
  const PageCopy copy{page, take(), written};
  giveBack(page);
  page = copy.to;
  return std::optional(copy);
}

Expected<std::optional<PageCopy>> PageAllocator::append(Sequence sequence, int64_t rows) {
  Expected<State*> state = find(sequence);
  if (!state) return state.error();
  if (rows < 0 || rows > std::numeric_limits<int32_t>::max() - (*state)->length)
    return Error::environment(fmt::format("page allocator: {} rows are appended to {}", rows, (*state)->length),
                              "a sequence has 0 to 2^31 - 1");
  auto copy = reserve(sequence, (*state)->length + rows);
  if (copy) (*state)->length += rows;
  return copy;
}

Status PageAllocator::truncate(Sequence sequence, int64_t rows) {
  Expected<State*> state = find(sequence);
  if (!state) return state.error();
  if (rows < 0 || rows > (*state)->length) return wrongRows(sequence, (*state)->length, rows);
  std::vector<int32_t>& pages = (*state)->pages;
  for (; int64_t(pages.size()) > (rows + rowsOfPage - 1) / rowsOfPage; pages.pop_back()) giveBack(pages.back());
  (*state)->length = rows;
  return {};
}

Status PageAllocator::free(Sequence sequence) {
  if (Status status = truncate(sequence, 0); !status) return status;
  all.erase(sequence);
  return {};
}

Status PageAllocator::fill(const std::vector<Sequence>& sequences, int64_t columns, int32_t* table,
                           int32_t* lengths) const {
  for (Sequence sequence : sequences) {
    auto found = all.find(sequence);
    if (found == all.end()) return noSequence(sequence);
    if (int64_t(found->second.pages.size()) > columns)
      return Error::environment(fmt::format("page allocator: sequence {} has {} pages, the table room for {}", sequence,
                                            found->second.pages.size(), columns));
  }
  for (Sequence sequence : sequences) {
    const State& state = all.at(sequence);
    std::fill(std::copy(state.pages.begin(), state.pages.end(), table), table + columns, -1);
    table += columns;
    *lengths++ = int32_t(state.length);
  }
  return {};
}

} // namespace attnc
