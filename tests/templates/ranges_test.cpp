// Interval arithmetic of kernels (templates/mod/ranges.cuh) against all elements of small blocks.
#include "mod/ranges.cuh"

#include <catch2/catch.hpp>

#include <random>
#include <vector>

using namespace attnc::mod;

namespace {

using Number = Range<int>;

/// Conditions over a row's value, a column's value, q_idx, kv_idx and a constant.
Range<bool> condition(int which, const Number& a, const Number& b, const Number& q, const Number& kv, const Number& c) {
  switch (which) {
  case 0: return (a == b) & (kv <= q);
  case 1: return (a < b) | (q - kv < c);
  case 2: return (a != b) & (q < c + 6);
  case 3: return (kv <= q) & (q - kv < c);
  case 4: return abs_of(q - kv) <= c;
  case 5: return max_of(a, b) < min_of(q, kv);
  case 6: return Number::choose(a < b, q, kv) <= a + b;
  default: return !(a <= b) & !(a == c);
  }
}

} // namespace

TEST_CASE("ranges hold all values of a block, and tight ones take both bounds", "[templates]") {
  std::mt19937 random(1);
  const auto below = [&](int count) { return int(random() % unsigned(count)); };
  int wrong = 0, tight = 0;
  for (int round = 0; round < 20000; ++round) {
    const int rows = 1 + below(4), columns = 1 + below(4), q = below(8), kv = below(8), c = below(9) - 4;
    std::vector<int> a, b;
    Number ofRows, ofColumns;
    for (int i = 0; i < rows; ++i) {
      a.push_back(below(6));
      i == 0 ? BeginRange<kRow>()(ofRows, a[0]) : AddToRange()(ofRows, a.back());
    }
    for (int i = 0; i < columns; ++i) {
      b.push_back(below(6));
      i == 0 ? BeginRange<kColumn>()(ofColumns, b[0]) : AddToRange()(ofColumns, b.back());
    }
    for (int which = 0; which < 8; ++which) {
      const Range<bool> lives =
          condition(which, ofRows, ofColumns, {q, q + rows - 1, true, kRow}, {kv, kv + columns - 1, true, kColumn}, c);
      int live = 0;
      for (int i = 0; i < rows; ++i)
        for (int j = 0; j < columns; ++j) live += condition(which, a[size_t(i)], b[size_t(j)], q + i, kv + j, c).lo;
      const bool isMixed = live > 0 && live < rows * columns;
      if (lives.lo) wrong += live != rows * columns;
      if (!lives.hi) wrong += live != 0;
      if (!lives.is_single() && lives.is_tight) wrong += !isMixed, ++tight;
    }
  }
  CHECK(wrong == 0);
  CHECK(tight > 20000); // else the test holds little
}
