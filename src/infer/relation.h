// Rows of bits: which keys a query sees, for each slice (batch entry and head) of a mask.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace attnc::inferred {

using Word = uint64_t;

/// Returns the number of ones. Compilers make vectors of loops over it, and calls of std::popcount on old processors.
inline int64_t countOf(Word word) {
  word -= word >> 1 & 0x5555555555555555u;
  word = (word & 0x3333333333333333u) + (word >> 2 & 0x3333333333333333u);
  return int64_t(((word + (word >> 4)) & 0x0f0f0f0f0f0f0f0fu) * 0x0101010101010101u >> 56);
}

/// A bit for each slice, row and column. Bits behind the last column are 0.
struct Relation {
  int64_t slices = 0, rows = 0, columns = 0, words = 0;
  std::vector<Word> bits;

  Relation() = default;
  Relation(int64_t slices, int64_t rows, int64_t columns)
      : slices(slices), rows(rows), columns(columns), words((columns + 63) / 64), bits(size_t(slices * rows * words)) {}

  /// Returns the words of a row. `row` counts through all slices.
  Word* row(int64_t row) { return bits.data() + row * words; }
  const Word* row(int64_t row) const { return bits.data() + row * words; }
  int64_t allRows() const { return slices * rows; }
  bool get(int64_t at, int64_t column) const { return row(at)[column >> 6] >> (column & 63) & 1; }
  void set(int64_t at, int64_t column) { row(at)[column >> 6] |= Word(1) << (column & 63); }
  bool empty() const {
    return std::all_of(bits.begin(), bits.end(), [](Word word) { return word == 0; });
  }
  int64_t count() const {
    int64_t sum = 0;
    for (const Word word : bits) sum += countOf(word);
    return sum;
  }
};

/// Returns the word of a row with ones in [begin, end).
inline Word ones(int64_t begin, int64_t end, int64_t word) {
  const int64_t from = std::max<int64_t>(begin - word * 64, 0), to = std::min<int64_t>(end - word * 64, 64);
  if (from >= to) return 0;
  return (to - from == 64 ? ~Word(0) : (Word(1) << (to - from)) - 1) << from;
}

/// Returns the first one of a row, or -1.
inline int64_t firstOne(const Word* row, int64_t words) {
  for (int64_t i = 0; i < words; ++i)
    if (row[i]) return i * 64 + std::countr_zero(row[i]);
  return -1;
}

/// Returns the last one of a row, or -1.
inline int64_t lastOne(const Word* row, int64_t words) {
  for (int64_t i = words; i-- > 0;)
    if (row[i]) return i * 64 + 63 - std::countl_zero(row[i]);
  return -1;
}

/// Calls `visit(column)` for each one of a row.
template <class Visit> void forEachOne(const Word* row, int64_t words, Visit visit) {
  for (int64_t i = 0; i < words; ++i)
    for (Word left = row[i]; left; left &= left - 1) visit(i * 64 + std::countr_zero(left));
}

/// Calls `visit(begin, end)` for each run of ones of a row.
template <class Visit> void forEachRun(const Word* row, int64_t words, Visit visit) {
  int64_t begin = -1;
  for (int64_t i = 0; i < words; ++i) {
    const Word word = row[i];
    if (word == (begin < 0 ? 0 : ~Word(0))) continue;
    Word edges = word ^ (word << 1 | (begin < 0 ? 0 : 1));
    for (; edges; edges &= edges - 1) {
      const int64_t at = i * 64 + std::countr_zero(edges);
      if (begin < 0) {
        begin = at;
      } else {
        visit(begin, at);
        begin = -1;
      }
    }
  }
  if (begin >= 0) visit(begin, words * 64);
}

} // namespace attnc::inferred
