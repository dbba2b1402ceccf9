#include "infer/noise.h"

#include "infer/find.h"

#include <array>

namespace attnc::inferred {
namespace {

constexpr int kReach = 4; // elements to each side whose majority an element follows
constexpr size_t kMostPlaces = 4;
constexpr double kWorth = 70; // masks that cost less are simple

/// Fills `out` with a row moved by `by` columns.
void moved(const Word* row, const Relation& mask, int64_t by, std::vector<Word>& out) {
  const int64_t words = mask.words;
  for (int64_t i = 0; i < words; ++i) {
    const int64_t at = i * 64 - by, word = at >> 6, bit = at & 63;
    const auto get = [&](int64_t w) { return w >= 0 && w < words ? row[w] : Word(0); };
    out[size_t(i)] = bit ? get(word) >> bit | get(word + 1) << (64 - bit) : get(word);
  }
}

/// Returns the mask with each element set to the majority along a direction.
Relation majority(const Relation& mask, int64_t rowStep, int64_t columnStep) {
  Relation result(mask.slices, mask.rows, mask.columns);
  std::vector<Word> line(size_t(mask.words), 0), inside(size_t(mask.words), 0), row(size_t(mask.words), 0);
  Relation all(1, 1, mask.columns);
  for (int64_t i = 0; i < mask.words; ++i) all.bits[size_t(i)] = ones(0, mask.columns, i);
  for (int64_t at = 0; at < mask.allRows(); ++at) {
    // Numbers of live and of masked neighbours, as planes of bits.
    std::vector<std::array<Word, 4>> lives(size_t(mask.words)), deaths(size_t(mask.words));
    const auto add = [](std::array<Word, 4>& planes, Word carry) {
      for (Word& plane : planes) {
        const Word next = plane & carry;
        plane ^= carry;
        carry = next;
      }
    };
    for (int i = -kReach; i <= kReach; ++i) {
      const int64_t q = at % mask.rows + i * rowStep;
      if (q < 0 || q >= mask.rows) continue;
      moved(mask.row(at + i * rowStep), mask, -i * columnStep, line);
      moved(all.row(0), mask, -i * columnStep, inside);
      for (size_t word = 0; word < line.size(); ++word)
        add(lives[word], line[word]), add(deaths[word], inside[word] & ~line[word]);
    }
    for (size_t word = 0; word < line.size(); ++word) {
      Word more = 0, equal = ~Word(0); // lives > deaths, from the highest plane down
      for (size_t plane = 4; plane-- > 0;) {
        more |= equal & lives[word][plane] & ~deaths[word][plane];
        equal &= ~(lives[word][plane] ^ deaths[word][plane]);
      }
      result.row(at)[word] = (more | (equal & mask.row(at)[word])) & all.bits[word];
    }
  }
  return result;
}

/// Whether an element differs from all its neighbours, as noise that lies apart does.
bool hasLoner(const Relation& mask) {
  for (int64_t at = 0; at < mask.allRows(); ++at) {
    const Word* row = mask.row(at);
    const Word* above = at % mask.rows ? row - mask.words : nullptr;
    const Word* below = (at + 1) % mask.rows ? row + mask.words : nullptr;
    for (int64_t i = 0; i < mask.words; ++i) {
      const Word left = row[i] << 1 | (i ? row[i - 1] >> 63 : ~row[i] & 1);
      const int64_t last = std::min<int64_t>(mask.columns - 64 * i, 64) - 1;
      const Word right =
          i + 1 < mask.words ? row[i] >> 1 | row[i + 1] << 63 : row[i] >> 1 | (~row[i] >> last & 1) << last;
      Word differs = (row[i] ^ left) & (row[i] ^ right) & ones(0, mask.columns, i);
      if (above) differs &= row[i] ^ above[i];
      if (below) differs &= row[i] ^ below[i];
      if (differs) return true;
    }
  }
  return false;
}

/// Whether the elements in which masks differ may be noise: few, most of them without a neighbour among them.
bool isNoise(const Relation& differs, double share, int64_t fewest) {
  int64_t elements = 0, joined = 0;
  for (int64_t at = 0; at < differs.allRows(); ++at) {
    const Word* row = differs.row(at);
    const Word* above = at % differs.rows ? row - differs.words : nullptr;
    for (int64_t i = 0; i < differs.words; ++i) {
      const Word left = row[i] << 1 | (i ? row[i - 1] >> 63 : 0);
      elements += countOf(row[i]);
      joined += countOf(row[i] & (left | (above ? above[i] : 0)));
    }
  }
  const double all = double(differs.allRows()) * double(differs.columns);
  return elements > 0 && double(elements) <= share * all && joined * fewest <= elements;
}

std::optional<Noise> differences(const Relation& mask, Expr expr) {
  Noise noise{std::move(expr), 0, {}};
  Relation differs(mask.slices, mask.rows, mask.columns);
  std::vector<Word> words(size_t(mask.words), 0);
  for (int64_t at = 0; at < mask.allRows(); ++at) {
    noise.expr.row(at, words.data(), mask.columns);
    Word* own = differs.row(at);
    for (int64_t i = 0; i < mask.words; ++i) own[i] = words[size_t(i)] ^ mask.row(at)[i];
    forEachOne(own, mask.words, [&](int64_t column) {
      ++noise.elements;
      if (noise.places.size() < kMostPlaces) noise.places.push_back({at, column});
    });
  }
  if (!isNoise(differs, 0.01, 5)) return {};
  return noise;
}

} // namespace

std::optional<Noise> noiseOf(const Relation& mask, int64_t batch, int64_t heads, double cost) {
  std::optional<Noise> best;
  if (cost < kWorth || mask.rows < 2 * kReach || !hasLoner(mask)) return best;
  double least = cost / 2;
  for (const auto& [rows, columns] : {std::pair(1, 1), {1, 0}, {0, 1}}) {
    const Relation calm = majority(majority(mask, rows, columns), rows, columns);
    Relation differs = calm;
    for (size_t i = 0; i < differs.bits.size(); ++i) differs.bits[i] ^= mask.bits[i];
    if (!isNoise(differs, 0.02, 2)) continue; // corners are no noise, but are told from it only below
    Expr expr = find(calm, batch, heads, /*isQuick=*/true);
    if (expr.cost() > least) continue;
    const double own = expr.cost();
    if (auto noise = differences(mask, std::move(expr))) {
      best = std::move(noise);
      least = own;
    }
  }
  return best;
}

} // namespace attnc::inferred
