// Pages dealt to sequences: each has its own rows, whatever others do to those that they share. A pool of row numbers
// stands for K and V.
#include "helpers/take.h"
#include "tools/examples/page_allocator.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <random>
#include <set>

using namespace attnc;
using example::PageAllocator;
using example::PageCopy;

namespace {

template <class T> std::string messageOf(const Expected<T>& result) {
  REQUIRE_FALSE(result);
  CHECK(result.error().blame == Blame::Environment);
  return result.error().message;
}

/// Allocator, pool, and what each sequence ought to hold.
struct Model {
  PageAllocator pages;
  std::vector<int64_t> pool;
  std::map<PageAllocator::Sequence, std::vector<int64_t>> rows;
  int64_t nextRow = 1;

  Model(int64_t count, int64_t pageSize) : pages(count, pageSize), pool(size_t(count * pageSize)) {}

  void copy(const std::optional<PageCopy>& copy) {
    if (!copy) return;
    const auto from = pool.begin() + copy->from * pages.pageSize();
    std::copy_n(from, copy->rows, pool.begin() + copy->to * pages.pageSize());
  }
  int64_t& at(PageAllocator::Sequence sequence, int64_t row) {
    return pool[size_t(pages.pagesOf(sequence)[size_t(row / pages.pageSize())] * pages.pageSize() +
                       row % pages.pageSize())];
  }
  /// False: there were no pages for it.
  bool append(PageAllocator::Sequence sequence, int64_t count) {
    const int64_t freeBefore = pages.freePages();
    auto copied = pages.append(sequence, count);
    if (!copied) {
      CHECK(pages.freePages() == freeBefore);
      CHECK(freeBefore <= count / pages.pageSize() + 1);
      return false;
    }
    copy(*copied);
    for (int64_t i = 0; i < count; ++i) {
      rows[sequence].push_back(nextRow);
      at(sequence, int64_t(rows[sequence].size()) - 1) = nextRow++;
    }
    return true;
  }
  void check() {
    std::set<int32_t> used;
    int64_t wrong = 0;
    for (const auto& [sequence, expected] : rows) {
      REQUIRE(pages.length(sequence) == int64_t(expected.size()));
      for (size_t i = 0; i < expected.size(); ++i) wrong += at(sequence, int64_t(i)) != expected[i];
      used.insert(pages.pagesOf(sequence).begin(), pages.pagesOf(sequence).end());
    }
    CHECK(wrong == 0);
    CHECK(pages.freePages() == pages.pages() - int64_t(used.size()));
  }
};

} // namespace

TEST_CASE("pages come as rows do, and go back", "[api]") {
  PageAllocator pages(4, 16);
  const auto a = pages.add(), b = pages.add();
  CHECK(a != b);
  CHECK(pages.freePages() == 4);
  CHECK_FALSE(take(pages.append(a, 16)));
  CHECK(pages.pagesOf(a).size() == 1);
  CHECK_FALSE(take(pages.append(a, 1)));
  CHECK(pages.pagesOf(a).size() == 2);
  CHECK(pages.length(a) == 17);
  CHECK_FALSE(take(pages.append(b, 0)));
  CHECK(pages.pagesOf(b).empty());
  CHECK_FALSE(take(pages.append(b, 32)));
  CHECK(pages.freePages() == 0);
  CHECK(messageOf(pages.append(b, 1)) == "sequence 1 needs 1 more pages, 0 are free");
  CHECK(pages.length(b) == 32);
  REQUIRE(pages.free(a));
  CHECK(pages.freePages() == 2);
  CHECK(messageOf(pages.free(a)) == "there is no sequence 0");
  CHECK_FALSE(take(pages.append(b, 1)));
  CHECK(pages.add() == 2);
}

TEST_CASE("what is reserved can be appended", "[api]") {
  PageAllocator pages(3, 8);
  const auto a = pages.add(), b = pages.add();
  CHECK_FALSE(take(pages.reserve(a, 17)));
  CHECK(pages.freePages() == 0);
  CHECK(pages.length(a) == 0);
  CHECK(messageOf(pages.append(b, 1)) == "sequence 1 needs 1 more pages, 0 are free");
  for (int i = 0; i < 24; ++i) CHECK_FALSE(take(pages.append(a, 1)));
  CHECK(messageOf(pages.append(a, 1)) == "sequence 0 needs 1 more pages, 0 are free");
  REQUIRE(pages.truncate(a, 9));
  CHECK(pages.freePages() == 1);
  CHECK(pages.length(a) == 9);
}

TEST_CASE("a shared page is copied by who writes to it first", "[api]") {
  PageAllocator pages(6, 8);
  const auto a = pages.add();
  take(pages.append(a, 20));
  const std::vector<int32_t> before = pages.pagesOf(a);
  auto b = take(pages.share(a, 12));
  CHECK(pages.length(b) == 12);
  CHECK(pages.freePages() == 3);
  CHECK(pages.pagesOf(b) == std::vector<int32_t>(before.begin(), before.begin() + 2));
  const auto copy = take(pages.append(b, 1));
  CHECK(copy == PageCopy{before[1], pages.pagesOf(b)[1], 4});
  CHECK(pages.pagesOf(b)[0] == before[0]);
  CHECK(pages.pagesOf(a) == before);
  CHECK_FALSE(take(pages.append(b, 1)));
  // A full page is never written again, so it stays shared.
  auto c = take(pages.share(a, 16));
  CHECK_FALSE(take(pages.append(c, 1)));
  // The last page: the one who shares it, or the one whom it is shared with.
  auto d = take(pages.share(a, 20));
  const auto own = take(pages.append(a, 1));
  CHECK(own == PageCopy{before[2], pages.pagesOf(a)[2], 4});
  CHECK_FALSE(take(pages.append(d, 1)));
  CHECK(messageOf(pages.share(a, 22)) == "sequence 0 has 21 rows, 22 are asked for");
}

TEST_CASE("a copy needs a page, and none is taken where there is none", "[api]") {
  PageAllocator pages(2, 8);
  const auto a = pages.add();
  take(pages.append(a, 12));
  auto b = take(pages.share(a, 12));
  CHECK(messageOf(pages.append(b, 1)) == "sequence 1 needs 1 more pages, 0 are free");
  CHECK(pages.length(b) == 12);
  CHECK(pages.pagesOf(b) == pages.pagesOf(a));
  REQUIRE(pages.free(a));
  CHECK_FALSE(take(pages.append(b, 1)));
}

TEST_CASE("a table has the pages of its sequences, and -1 behind them", "[api]") {
  PageAllocator pages(10, 4);
  const auto a = pages.add(), b = pages.add(), c = pages.add();
  take(pages.append(a, 9));
  take(pages.append(c, 4));
  std::vector<int32_t> table(12, 77), lengths(3, 77);
  REQUIRE(pages.fill({c, b, a}, 4, table.data(), lengths.data()));
  CHECK(lengths == std::vector<int32_t>{4, 0, 9});
  CHECK(table == std::vector<int32_t>{3, -1, -1, -1, -1, -1, -1, -1, 0, 1, 2, -1});
  CHECK(messageOf(pages.fill({c, a}, 2, table.data(), lengths.data())) ==
        "sequence 0 has 3 pages, the table room for 2");
  CHECK(table[0] == 3);
  CHECK(messageOf(pages.fill({7}, 4, table.data(), lengths.data())) == "there is no sequence 7");
}

TEST_CASE("numbers of rows that cannot be are refused", "[api]") {
  PageAllocator none(0, 16);
  CHECK(messageOf(none.append(none.add(), 1)) == "sequence 0 needs 1 more pages, 0 are free");
  CHECK(messageOf(none.append(0, -1)) == "-1 rows are appended to 0");
  CHECK(messageOf(none.append(0, int64_t(1) << 40)) == "1099511627776 rows are appended to 0");
}

TEST_CASE("whatever is appended, shared, cut and freed, every sequence keeps its rows", "[api]") {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const auto draw = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    Model model(draw(1, 40), int64_t(1) << draw(0, 5));
    for (int step = 0; step < 300; ++step) {
      std::vector<PageAllocator::Sequence> sequences;
      for (const auto& [sequence, rows] : model.rows) sequences.push_back(sequence);
      const auto any = [&] { return sequences[size_t(draw(0, int64_t(sequences.size()) - 1))]; };
      const int64_t what = sequences.empty() ? 0 : draw(0, 9);
      if (what == 0) {
        model.rows[model.pages.add()];
      } else if (what <= 5) {
        model.append(any(), draw(0, 3 * model.pages.pageSize()));
      } else if (what == 6) {
        const auto of = any();
        const int64_t rows = draw(0, model.pages.length(of));
        auto shared = take(model.pages.share(of, rows));
        model.rows[shared] = {model.rows[of].begin(), model.rows[of].begin() + rows};
      } else if (what == 7) {
        const auto of = any();
        const int64_t rows = draw(0, model.pages.length(of));
        REQUIRE(model.pages.truncate(of, rows));
        model.rows[of].resize(size_t(rows));
      } else if (what == 8) {
        const auto of = any();
        auto copied = model.pages.reserve(of, draw(0, 4 * model.pages.pageSize()));
        if (copied) model.copy(*copied);
      } else {
        const auto of = any();
        REQUIRE(model.pages.free(of));
        model.rows.erase(of);
      }
      model.check();
    }
  }
}
