#include "infer/expression.h"

#include <cmath>
#include <set>

namespace attnc::inferred {

void Atom::andInto(int64_t row, Word* words, int64_t count) const {
  if (index.empty()) {
    const int64_t from = begin[size_t(row)], to = end[size_t(row)];
    for (int64_t i = 0; i < count; ++i) words[i] &= ones(from, to, i);
  } else {
    const Word* own = rows.row(index[size_t(row)]);
    for (int64_t i = 0; i < count; ++i) words[i] &= own[i];
  }
}

void Atom::andNotInto(int64_t row, Word* words, int64_t count) const {
  if (index.empty()) {
    const int64_t from = begin[size_t(row)], to = end[size_t(row)];
    for (int64_t i = 0; i < count; ++i) words[i] &= ~ones(from, to, i);
  } else {
    const Word* own = rows.row(index[size_t(row)]);
    for (int64_t i = 0; i < count; ++i) words[i] &= ~own[i];
  }
}

int64_t Atom::countOutside(int64_t row, const Word* words, int64_t count) const {
  int64_t sum = 0;
  if (index.empty()) {
    const int64_t from = begin[size_t(row)], to = end[size_t(row)];
    for (int64_t i = 0; i < count; ++i)
      if (words[i]) sum += countOf(words[i] & ~ones(from, to, i));
  } else {
    const Word* own = rows.row(index[size_t(row)]);
    for (int64_t i = 0; i < count; ++i) sum += countOf(words[i] & ~own[i]);
  }
  return sum;
}

Expr Expr::join(Kind kind, std::vector<Expr> parts) {
  const Kind neutral = kind == Kind::And ? Kind::True : Kind::False;
  const Kind absorbing = kind == Kind::And ? Kind::False : Kind::True;
  Expr result{kind, false, nullptr, {}};
  for (Expr& part : parts) {
    if (part.kind == absorbing) return {absorbing, false, nullptr, {}};
    if (part.kind == neutral) continue;
    if (part.kind == kind)
      for (Expr& inner : part.parts) result.parts.push_back(std::move(inner));
    else
      result.parts.push_back(std::move(part));
  }
  if (result.parts.empty()) return {neutral, false, nullptr, {}};
  if (result.parts.size() == 1) return Expr(std::move(result.parts.front()));
  return result;
}

Expr Expr::negated() const {
  switch (kind) {
  case Kind::True: return {Kind::False, false, nullptr, {}};
  case Kind::False: return {Kind::True, false, nullptr, {}};
  case Kind::Leaf: return leaf(atom, !isNegated);
  case Kind::And:
  case Kind::Or: break;
  }
  Expr result{kind == Kind::And ? Kind::Or : Kind::And, false, nullptr, {}};
  for (const Expr& part : parts) result.parts.push_back(part.negated());
  return result;
}

void Expr::row(int64_t at, Word* words, int64_t columns) const {
  const int64_t count = (columns + 63) / 64;
  if (kind == Kind::Or) {
    std::fill(words, words + count, 0);
    std::vector<Word> one(size_t(count), 0);
    for (const Expr& part : parts) {
      part.row(at, one.data(), columns);
      for (int64_t i = 0; i < count; ++i) words[i] |= one[size_t(i)];
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) words[i] = kind == Kind::False ? 0 : ones(0, columns, i);
  if (kind == Kind::Leaf) {
    if (isNegated)
      atom->andNotInto(at, words, count);
    else
      atom->andInto(at, words, count);
  }
  if (kind != Kind::And) return;
  std::vector<Word> one(size_t(count), 0);
  for (const Expr& part : parts) {
    if (part.kind == Kind::Leaf) { // in place
      if (part.isNegated)
        part.atom->andNotInto(at, words, count);
      else
        part.atom->andInto(at, words, count);
      continue;
    }
    part.row(at, one.data(), columns);
    for (int64_t i = 0; i < count; ++i) words[i] &= one[size_t(i)];
  }
}

namespace {

template <class Counts> double costOf(const Expr& expr, Counts counts) {
  double sum = 0;
  int leaves = 0;
  std::vector<const Table*> tables;
  std::set<std::string> differences; // two bounds of one are written as one
  forEachLeaf(expr, [&](const Atom& atom, bool) {
    if (atom.left.empty() || differences.insert(atom.variable).second)
      ++leaves, sum += 9 + std::min(double(atom.text.size()), 50.0);
    for (const TablePtr& table : atom.tables) {
      const auto isSame = [&](const Table* other) {
        return other == table.get() || (other->shape == table->shape && other->values == table->values);
      };
      if (!counts(*table) || std::any_of(tables.begin(), tables.end(), isSame)) continue;
      tables.push_back(table.get());
      const double size = double(table->values.size());
      sum += 20 + 4 * std::log2(size + 1) + (table->isPlane ? 60 + size / 100 : 0);
    }
  });
  return sum + 15 * std::max(0, leaves - 3);
}

} // namespace

double Expr::cost() const {
  return costOf(*this, [](const Table&) { return true; });
}

double Expr::costByPosition() const {
  return costOf(*this, [](const Table& table) { return !table.isOfSlices(); });
}

double Expr::costOfText() const {
  return costOf(*this, [](const Table&) { return false; });
}

} // namespace attnc::inferred
