// Dropout behind the softmax: weights of 0, or times one factor of the head (the pass derive-drops). Sums of the
// softmax are those of before. A row's result is multiplied by the factor at the end; a backward kernel adds the
// factor's logarithm to its exponents.
//
// A counter of Philox has a byte for each of 16 positions (mod/random.cuh): two rows of Q and two columns of KV next to
// each other, and those 8 further on. Two threads hold these positions, of a tile or of a transposed one; each computes
// every other counter. The first byte of a number decides if the bound is a multiple of 2^-8.
#pragma once

#include "attnc_mod.cuh"

#include "mod/random.cuh"
#include "ptx/math.cuh"
#include "tile/fragment.cuh"

namespace attnc {

template <class M> constexpr bool kDrops = requires { M::kDrops; };

/// Returns the factor of weights that are kept; 1 in mods without dropout.
template <class M> ATTNC_DEVICE float kept_factor(const ModArgs& args, const typename M::Head& head) {
  if constexpr (kDrops<M>)
    return M::kept_factor(args, head); // SEAM(kept_factor)
  else
    return 1.f;
}

/// What a warp knows of the numbers of a head. Empty in mods without dropout.
// NOTE: a base of places. As a member, even an empty one, it makes ptxas choose other registers.
template <class M, bool IsOn = kDrops<M>> struct Drops {
  ATTNC_DEVICE static constexpr float factor() { return 1.f; }
};

/// A bound of bytes.
struct ByteBound {
  unsigned low;  // its last 7 bits, or 128 for a bound of 256, in each byte
  unsigned high; // whether it is 128 or more: all bits

  ByteBound() = default;
  ATTNC_DEVICE explicit ByteBound(unsigned bound)
      : low(ptx::uniform((bound & 127u | bound >> 1 & 128u) * 0x1010101u)), high(ptx::uniform(bound < 128 ? 0u : ~0u)) {
  }

  /// Returns which of 16 bytes are not below the bound: byte i of word n has bit 7 - n of byte i.
  ATTNC_DEVICE unsigned admits(const mod::PhiloxWords& bytes) const {
    const auto choose = [](unsigned mask, unsigned x, unsigned y) { return x & mask | y & ~mask; };
    unsigned admitted = 0;
#pragma unroll
    for (int n = 3; n >= 0; --n) {
      const unsigned word = bytes.word[n], rest = (word | 0x80808080u) - low;
      const unsigned is = word & rest | (word | rest) & ~high; // bit 7 of each byte
      admitted = n == 3 ? is >> 3 : choose(0x80808080u >> n, is >> n, admitted);
    }
    return admitted;
  }
};

template <class M> struct Drops<M, true> {
  static constexpr bool kAbove = requires { M::drop_above; }; // complements of numbers are compared
  static constexpr bool kHasRest = requires { M::drop_rest; };

  unsigned key[2], b, h, kept;    // kept: the bits of the factor
  ByteBound first, second, third; // of the bytes of a number, the highest one first
  ByteBound beyond[2];            // of first and second, plus 1

  Drops() = default;
  ATTNC_DEVICE Drops(const ModArgs& args, const M::Head& head, int b, int h) : b(b), h(h) {
    const long long seed = M::drop_seed(args, head); // SEAM(drop_seed)
    key[0] = ptx::uniform(unsigned(seed)), key[1] = ptx::uniform(unsigned(seed >> 32));
    // NOTE: found here. With a division next to the use, ptxas serialises wgmma (C7514).
    kept = ptx::uniform(__float_as_uint(kept_factor<M>(args, head)));
    unsigned bound;
    if constexpr (kAbove)
      bound = M::drop_above(args, head); // SEAM(drop_above)
    else
      bound = M::drop_below(args, head); // SEAM(drop_below)
    first = ByteBound(bound);
    if constexpr (kHasRest) {
      const unsigned rest = M::drop_rest(args, head); // SEAM(drop_rest)
      second = ByteBound(rest >> 8), third = ByteBound(rest & 255);
      beyond[0] = ByteBound(min(bound + 1, 256u)), beyond[1] = ByteBound((rest >> 8) + 1);
    }
  }

  /// Returns what weights that are kept are multiplied by.
  ATTNC_DEVICE float factor() const { return __uint_as_float(kept); }

  /// Returns which of the 16 positions that q and kv are one of keep their weights, in bits as ByteBound::admits().
  ATTNC_DEVICE unsigned kept_at(unsigned q, unsigned kv) const {
    const mod::PhiloxWords upper = words_at(q, kv, 0);
    unsigned kept = first.admits(upper);
    if constexpr (kHasRest) kept = decided(kept, upper, q, kv);
    return kept;
  }

private:
  /// Returns the same where a number's first byte may not decide. `kept`: by that byte.
  ATTNC_DEVICE unsigned decided(unsigned kept, const mod::PhiloxWords& upper, unsigned q, unsigned kv) const {
    const unsigned is_beyond = beyond[0].admits(upper);
    const mod::PhiloxWords middle = words_at(q, kv, 1);
    const unsigned second_kept = second.admits(middle),
                   open = kept & ~is_beyond & second_kept & ~beyond[1].admits(middle);
    kept = is_beyond | kept & second_kept;
    if (__any_sync(0xffffffffu, (open & 0xf0f0f0f0u) != 0)) [[unlikely]]
      kept &= ~open | third.admits(words_at(q, kv, 8));
    return kept;
  }

  /// Returns the words of a counter with the n-th bytes of numbers.
  ATTNC_DEVICE mod::PhiloxWords words_at(unsigned q, unsigned kv, unsigned n) const {
    mod::PhiloxWords words = {{kv & ~9u | n, q & ~9u, h, b}};
    words.run(key[0], key[1]);
    if constexpr (kAbove)
      for (unsigned& word : words.word) word = ~word;
    return words;
  }
};

/// Finds the bits of two counters, 16 positions apart along an axis of the tile. `odd`: the bit 0 of the lane's
/// position along the other axis; the lane with the other one, which has all else in common, computes the other
/// counter. kept_at(i): of the i-th counter.
template <class KeptAt> ATTNC_DEVICE void share(unsigned (&bits)[2], unsigned odd, KeptAt kept_at) {
  const unsigned own = kept_at(odd), other = __shfl_xor_sync(0xffffffffu, own, 4);
  bits[0] = odd ? other : own, bits[1] = odd ? own : other;
}

/// Calls function(bits, m, j) for columns [16 j, 16 j + 16) of KV and rows 2 m and 2 m + 1 of a lane. Bit 7 - 2 r of
/// byte 2 i + e of `bits`: whether the weight of row 2 m + r and column 8 i + e is kept. `q_first`, `kv_first`:
/// positions of the lane's row 0 and column (0, 0). KV begins at a multiple of 16, rows also unless AnyRow. Called by
/// all lanes of the warp.
template <int RowGroups, int Columns, bool AnyRow, class M, class Function>
ATTNC_DEVICE void visit_kept(const Drops<M>& drops, int q_first, int kv_first, Function function) {
#pragma unroll
  for (int m = 0; m < RowGroups; ++m)
#pragma unroll
    for (int j = 0; j < (Columns + 8) / 16; j += 2) {
      const unsigned q = q_first + 16 * m, kv = kv_first + 16 * j;
      unsigned bits[2];
      if constexpr (AnyRow) { // rows next to each other may not share a counter
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          bits[i] = 0;
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const unsigned row = q + 8 * r, of_rows = drops.kept_at(row, kv + 16 * i);
            bits[i] |= (of_rows << ((row & 1) + (row >> 2 & 2)) & 0x80808080u) >> 2 * r;
          }
        }
      } else {
        const unsigned odd = q & 1;
        share(bits, odd, [&](unsigned i) { return drops.kept_at(q, kv + 16 * i); });
        bits[0] <<= odd, bits[1] <<= odd;
      }
      function(bits[0], m, j);
      if (16 * j + 16 < Columns) function(bits[1], m, j + 1);
    }
}

/// Sets weights that dropout drops to 0.
template <bool AnyRow, class M, class Element, int RowGroups, int Columns>
ATTNC_DEVICE void drop(PackedFragment<Element, RowGroups, Columns>& weights, const Drops<M>& drops, int q_first,
                       int kv_first) {
  visit_kept<RowGroups, Columns, AnyRow>(drops, q_first, kv_first, [&](unsigned bits, int m, int j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) weights.a[m][j][i] &= ptx::prmt(bits << 2 * (i % 2), 0, i < 2 ? 0x9988 : 0xbbaa);
  });
}
template <bool AnyRow, class M, int RowGroups, int Columns>
ATTNC_DEVICE void drop(Fragment<RowGroups, Columns>& weights, const Drops<M>& drops, int q_first, int kv_first) {
  visit_kept<RowGroups, Columns, AnyRow>(drops, q_first, kv_first, [&](unsigned bits, int m, int j) {
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if (2 * j + n < Columns / 8 && !(bits & 0x80u >> 2 * r << 8 * (2 * n + e)))
            weights.at(2 * m + r, 2 * j + n, e) = 0.f;
  });
}

/// The same for transposed weights, whose rows are columns of KV from `kv_first` on, and whose groups [Begin, End) of 8
/// columns are rows of Q, from `q_first` on, the position of column (0, 0).
template <int Begin, int End, bool AnyRow, class M, class Element, int Columns>
ATTNC_DEVICE void drop_transposed(PackedFragment<Element, 1, Columns>& weights, const Drops<M>& drops, int q_first,
                                  int kv_first) {
  const unsigned odd = kv_first & 1;
  const unsigned bytes[2] = {odd ? 0xdd99u : 0xcc88u, odd ? 0xffbbu : 0xeeaau}; // of ptx::prmt(), by row
  // Sets weights of a pair of groups to 0: bit 7 - 2 i - e of byte 2 r + odd is of group i, column e and row r.
  const auto drop = [&](int n, unsigned bits) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      weights.a[0][n / 2][i] &= ptx::prmt(bits << i / 2 * 2, bits << (i / 2 * 2 + 1), bytes[i % 2]);
  };
  static_assert(Begin % 2 == 0 && End % 2 == 0, "two groups share counters");
#pragma unroll
  for (int n = Begin; n < End; n += 4) {
    const unsigned q = q_first + 8 * n;
    if constexpr (AnyRow) { // no two rows may share a counter
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        unsigned bits = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const unsigned row = q + 16 * pair + i / 2 * 8 + i % 2, of_row = drops.kept_at(row, kv_first);
          bits |= (of_row << ((row & 1) + (row >> 2 & 2)) & 0x80808080u) >> i;
        }
        if (n + 2 * pair < End) drop(n + 2 * pair, bits);
      }
    } else {
      unsigned bits[2];
      share(bits, odd, [&](unsigned i) { return drops.kept_at(q + 16 * i, kv_first); });
      drop(n, bits[0]);
      if (n + 2 < End) drop(n + 2, bits[1]);
    }
  }
}

} // namespace attnc
