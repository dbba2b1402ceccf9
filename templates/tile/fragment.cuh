// Accumulators of a matrix product in registers, and the row and column of each of them.
//
// mma.sync (m16n8) and wgmma (m64, 16 rows per warp) use the same layout. Lane l, with g = l / 4 and t = l % 4, holds
// rows g and g + 8 of each group of 16 rows, and columns 2 t and 2 t + 1 of each group of 8 columns:
//
//   x[m][n][2 half + e] = (row 16 m + 8 half + g, column 8 n + 2 t + e)        half, e in {0, 1}
//
// So a row lies in the four lanes of a quad, and a lane has 2 RowGroups rows, numbered r = 2 m + half.
#pragma once

#include "ptx/cvt_e4m3.cuh"
#include "tile/element.cuh"

namespace attnc {

/// Returns the largest x of the four lanes of a quad, ignoring NaN.
ATTNC_DEVICE float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
ATTNC_DEVICE float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/// 16 RowGroups rows and `Columns` columns of a warp, in fp32.
template <int RowGroups, int Columns> struct Fragment {
  static_assert(Columns % 8 == 0, "columns come in groups of 8");
  static constexpr int kRowGroups = RowGroups;
  static constexpr int kColumns = Columns;
  static constexpr int kGroups = Columns / 8; // of columns
  static constexpr int kRows = 2 * RowGroups; // of a lane

  float x[RowGroups][kGroups][4];

  /// Row and column in the warp's tile of this lane's row r and column (n, e).
  ATTNC_DEVICE static int row(int r) { return row_offset(r) + int(threadIdx.x) % 32 / 4; }
  ATTNC_DEVICE static int column(int n, int e) { return 8 * n + e + first_column(); }
  /// The same, split into a compile-time offset and the lane's row 0 or column 0.
  ATTNC_DEVICE static constexpr int row_offset(int r) { return r / 2 * 16 + r % 2 * 8; }
  ATTNC_DEVICE static int first_column() { return int(threadIdx.x) % 4 * 2; }

  ATTNC_DEVICE float& at(int r, int n, int e) { return x[r / 2][n][r % 2 * 2 + e]; }
  ATTNC_DEVICE float at(int r, int n, int e) const { return x[r / 2][n][r % 2 * 2 + e]; }

  /// Calls function(element, r) for each element of this lane.
  template <class Function> ATTNC_DEVICE void for_each(Function function) {
#pragma unroll
    for (int m = 0; m < RowGroups; ++m)
#pragma unroll
      for (auto& group : x[m])
#pragma unroll
        for (int e = 0; e < 4; ++e) function(group[e], 2 * m + e / 2);
  }

  /// As for_each(), in a loop: few instructions that take long. For work that hardly any step has.
  // NOTE: registers have no index, so the loop works on the first groups and moves all others up. bench/NOTES.md has
  // what rare code within a step costs if it is unrolled.
  template <class Function> ATTNC_DEVICE void for_each_rarely(Function function) {
    constexpr int kAtOnce = kGroups % 2 ? 1 : 2;
#pragma unroll 1
    for (int i = 0; i < kGroups; i += kAtOnce) {
#pragma unroll
      for (int m = 0; m < RowGroups; ++m)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float first[kAtOnce];
#pragma unroll
          for (int n = 0; n < kAtOnce; ++n) function(first[n] = x[m][n][e], 2 * m + e / 2);
#pragma unroll
          for (int n = 0; n < kGroups - kAtOnce; ++n) x[m][n][e] = x[m][n + kAtOnce][e];
#pragma unroll
          for (int n = 0; n < kAtOnce; ++n) x[m][kGroups - kAtOnce + n][e] = first[n];
        }
    }
  }

  /// Calls function(element) for each element of the lane's row r.
  template <class Function> ATTNC_DEVICE void for_each_of_row(int r, Function function) {
#pragma unroll
    for (int n = 0; n < kGroups; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) function(at(r, n, e));
  }

  ATTNC_DEVICE void fill(float value) {
    for_each([&](float& element, int) { element = value; });
  }
  /// Multiplies each row by its factor.
  ATTNC_DEVICE void scale_rows(const float (&factor)[kRows]) {
    for_each([&](float& element, int r) { element *= factor[r]; });
  }
  /// Returns the largest element of a row in this lane, ignoring NaN; -inf if nothing else is left.
  ATTNC_DEVICE float lane_max(int r) const {
    float result = __int_as_float(0xff800000);
#pragma unroll
    for (int n = 0; n < kGroups; ++n) result = fmaxf(result, fmaxf(at(r, n, 0), at(r, n, 1)));
    return result;
  }
};

/// Packs the A operand of one step along K from a fragment.
template <class Element, int RowGroups, int Columns>
ATTNC_DEVICE void pack_step(unsigned (&a)[4], const Fragment<RowGroups, Columns>& from, int m, int step) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float* pair = &from.x[m][2 * step + i / 2][i % 2 * 2];
    a[i] = pack2<Element>(pair[0], pair[1]);
  }
}

/// A fragment rounded to the element type, as operand A of a product: 16 columns of the fragment are one step along K.
/// Its words are in the order of mma.sync and wgmma: (g, 2t..), (g + 8, 2t..), (g, 2t + 8..), (g + 8, 2t + 8..).
template <class Element, int RowGroups, int Columns> struct PackedFragment {
  static_assert(sizeof(Element) == 2 && Columns % 16 == 0, "16-bit elements, 16 columns a step");
  unsigned a[RowGroups][Columns / 16][4];

  /// Packs this lane's row r of group n of 8 columns.
  ATTNC_DEVICE void pack(int r, int n, const float (&x)[2]) {
    a[r / 2][n / 2][n % 2 * 2 + r % 2] = pack2<Element>(x[0], x[1]);
  }
  ATTNC_DEVICE void pack(const Fragment<RowGroups, Columns>& from) {
#pragma unroll
    for (int m = 0; m < RowGroups; ++m)
#pragma unroll
      for (int step = 0; step < Columns / 16; ++step) pack_step<Element>(a[m][step], from, m, step);
  }
};

/// The same for E4M3: 32 columns of the fragment are one step along K. Lane t holds columns 2t, 2t + 1 of each group of
/// 8, and operand A wants 4t .. 4t + 3 of each group of 16. So K is taken in another order, in which operand B must
/// have its rows: 4t + 2i + e of a group of 16 is column 8i + 2t + e of the fragment (i, e in {0, 1}).
template <int RowGroups, int Columns> struct PackedFragment<E4M3, RowGroups, Columns> {
  static_assert(Columns % 32 == 0, "32 columns a step");
  unsigned a[RowGroups][Columns / 32][4];

  ATTNC_DEVICE void pack(const Fragment<RowGroups, Columns>& from) {
#pragma unroll
    for (int m = 0; m < RowGroups; ++m)
#pragma unroll
      for (int step = 0; step < Columns / 32; ++step)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float* first = &from.x[m][4 * step + i / 2 * 2][i % 2 * 2];
          const float* second = &from.x[m][4 * step + i / 2 * 2 + 1][i % 2 * 2];
          a[m][step][i] = unsigned(ptx::cvt_rn_satfinite_e4m3x2(second[1], second[0])) << 16 |
                          ptx::cvt_rn_satfinite_e4m3x2(first[1], first[0]);
        }
  }
};

/// Returns columns 4 t .. 4 t + 3 of group n / 2 of 16 of this lane's row r, times `factor`, rounded: of sums over V of
/// E4M3, whose group of 8 columns n has the even columns of those 16, and n + 1 the odd ones.
template <class Element, int RowGroups, int N>
ATTNC_DEVICE uint2 v_columns(const Fragment<RowGroups, N>& o, int r, int n, float factor) {
  return {pack2<Element>(o.at(r, n, 0) * factor, o.at(r, n + 1, 0) * factor),
          pack2<Element>(o.at(r, n, 1) * factor, o.at(r, n + 1, 1) * factor)};
}

} // namespace attnc
