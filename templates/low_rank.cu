// Writes the further columns of wider q and k, which hold a low-rank term of the score, for a kernel that follows:
//
//   score = scale q k^T + sum over r of q_factor(r) kv_factor(r) = scale [q, q_factor / scale] [k, kv_factor]^T
//
// A factor is divided into up to three numbers of q's type: x0 is x rounded, x1 what is missing, rounded, and so on.
// Two keep 16 bits, three 24. Round r has a column for each product of a piece of q and a piece of k, without products
// below the error of the others: piece i meets piece j if i + j < kPieces. So column c * kRank + r holds, by c,
//
//   pieces of q, of k   1, 1   1, 2    2, 1    2, 2       3, 1       3, 3
//   q, u                u0     u0 u0   u0 u1   u0 u1 u0   u0 u1 u2   u0 u1 u2 u0 u1 u0
//   k, w                w0     w0 w1   w0 w0   w0 w0 w1   w0 w0 w0   w0 w0 w0 w1 w1 w2
//
// Columns behind these are 0. A factor that is not finite stands only in the first column: in others it would make NaN
// of a piece that is 0.
//
// If kIsApart, these columns are tensors of their own, and q, k and v stay where they are: no heads share the columns
// of q, and the kernel's k_heads are those of the columns. Else q and k are copied in front of them.
//
// All threads have one role. No shared memory, no barriers.
//
// Grid: tiles of kBlockM rows of q * q_heads * batch, then of k * k_heads * k_batch, then of v * k_heads * v_batch,
// in one dimension; for a ragged batch slots of q * q_heads, then of k * k_heads, then tiles of all rows of v *
// k_heads. A tensor that is null has none. Threads: 32 kWarps.
//
// Config: Element is 16 bits wide; kHeadDimQk and kHeadDimV are those of q, k and v; kBlockM, kWarps; kWideHeadDim,
// kRank, kQPieces, kKvPieces, kIsApart.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/low_rank_columns.cuh"
#include "algo/sequence.cuh"
#include "tile/element.cuh"

namespace attnc::low_rank {

/// Copies the columns of the rows. `from`: row 0 of the head, `to`: of the dense copy.
template <int From, int To>
ATTNC_DEVICE void copy_rows(Element* to, const Element* from, long long stride, const Place& at, bool vectors) {
  constexpr int kPerRow = From / kChunk;
  if (vectors) {
    for (int i = threadIdx.x; i < (at.end - at.first) * kPerRow; i += kThreads) {
      const int row = at.first + i / kPerRow, column = i % kPerRow * kChunk;
      *(uint4*)(to + (long long)row * To + column) = *(const uint4*)(from + row * stride + column);
    }
    return;
  }
  for (int i = threadIdx.x; i < (at.end - at.first) * From; i += kThreads) {
    const int row = at.first + i / From, column = i % From;
    to[(long long)row * To + column] = from[row * stride + column];
  }
}

ATTNC_DEVICE bool is_finite(float x) { return x - x == 0.f; }

/// The pieces of a factor.
struct Pieces {
  Element first;    // of any factor
  Element piece[3]; // 0 if it is not finite

  /// A finite factor stays finite.
  ATTNC_DEVICE explicit Pieces(float x) {
    constexpr float kLargest = Same<Element, Bf16>::value ? 3.38953139e38f : 65504.f;
    const bool finite = is_finite(x);
    float rest = finite ? fminf(fmaxf(x, -kLargest), kLargest) : 0.f;
    first = from_float<Element>(finite ? rest : x);
#pragma unroll
    for (Element& part : piece) {
      part = from_float<Element>(rest);
      rest -= to_float(part);
    }
  }
  ATTNC_DEVICE Element in_column(int column, int i) const { return column == 0 ? first : piece[i]; }
};

/// Writes the columns with factors, and zeros behind them. `row_of(row)` is called for rows, `factor(known, row,
/// round)` gives the factor, `store(columns, pieces)` fills those of a round.
template <class RowOf, class Factor, class Store>
ATTNC_DEVICE void write_factors(Element* to, const Place& at, RowOf row_of, Factor factor, Store store) {
  for (int i = threadIdx.x; i < (at.end - at.first) * kRank; i += kThreads) {
    const int row = at.first + i / kRank, round = i % kRank;
    store(to + (long long)row * kRowColumns + kFirstColumn + round, Pieces(factor(row_of(row), row, round)));
  }
  constexpr int kZeros = kWideHeadDim - kHeadDimQk - kColumns;
  constexpr int kDivisor = kZeros > 0 ? kZeros : 1; // nvcc warns of a division by 0 in a loop without rounds
  for (int i = threadIdx.x; i < (at.end - at.first) * kZeros; i += kThreads)
    to[(long long)(at.first + i / kDivisor) * kRowColumns + kFirstColumn + kColumns + i % kDivisor] = Element{0};
}

ATTNC_DEVICE void widen_q(const LowRankParams& p, const ModArgs& args, const Place& at) {
  const ForwardParams& base = params_of<Mod>(p.base, args, at.b);
  Element* to = (Element*)p.q + first_q_row(p.base, args, at.b, at.h) * kRowColumns;
  if constexpr (!kIsApart)
    copy_rows<kHeadDimQk, kWideHeadDim>(to,
                                        (const Element*)base.q + at.b * base.q_stride.batch + at.h * base.q_stride.head,
                                        base.q_stride.row, at, base.vectors);
  const Mod::Head head = Mod::head(args, at.b, at.h); // SEAM(head)
  const int origin = position_of<Mod>(args, head, 0);
  write_factors(
      to, at, [&](int row) { return Mod::row(args, head, at.b, at.h, origin + row, float(origin + row)); }, // SEAM(row)
      [&](const Mod::Row& row, int index, int round) {
        return Mod::q_factor(args, head, row, {at.b, at.h, origin + index, 0}, round) * // SEAM(q_factor)
               p.factor_times;
      },
      [](Element* to, const Pieces& u) {
        visit_products([&](int c, int i, int) { to[c * kRank] = u.in_column(c, i); });
      });
}

ATTNC_DEVICE void widen_k(const LowRankParams& p, const ModArgs& args, const Place& at) {
  const ForwardParams& base = params_of<Mod>(p.base, args, at.b);
  const int h = at.h * (base.q_heads / p.k_heads); // a query head
  Element* to = (Element*)p.k + first_k_row(p.base, args, at.b, at.h, p.k_heads) * kRowColumns;
  if constexpr (!kIsApart)
    copy_rows<kHeadDimQk, kWideHeadDim>(to,
                                        (const Element*)base.k + at.b * base.k_stride.batch +
                                            at.h / (p.k_heads / base.kv_heads) * base.k_stride.head,
                                        base.k_stride.row, at, base.vectors);
  const Mod::Head head = Mod::head(args, at.b, h); // SEAM(head)
  write_factors(
      to, at, [&](int row) { return Mod::col(args, head, at.b, h, row, float(row), 0.f); }, // SEAM(col)
      [&](const Mod::Col& col, int index, int round) {
        return Mod::kv_factor(args, head, col, {at.b, h, 0, index}, round); // SEAM(kv_factor)
      },
      [](Element* to, const Pieces& w) {
        visit_products([&](int c, int, int j) { to[c * kRank] = w.in_column(c, j); });
      });
}

/// Copies v once for each head of k. `rows`: of a head; for a ragged batch those of all sequences.
ATTNC_DEVICE void spread_v(const LowRankParams& p, int rows, const Place& at) {
  const ForwardParams& base = p.base;
  const int shared_by = p.k_heads / base.kv_heads;
  Element* to = (Element*)p.v + ((long long)at.b * p.k_heads + at.h) * rows * kHeadDimV;
  copy_rows<kHeadDimV, kHeadDimV>(
      to, (const Element*)base.v + at.b * base.v_stride.batch + at.h / shared_by * base.v_stride.head,
      base.v_stride.row, at, base.vectors);
}

extern "C" __global__ void __launch_bounds__(32 * kWarps)
    attnc_low_rank(const __grid_constant__ LowRankParams p, const __grid_constant__ ModArgs args) {
  const ForwardParams& base = p.base;
  const int of_q = p.q ? q_tiles(base, base.batch) * base.q_heads : 0;
  const int of_k = p.k ? k_tiles(base, p.k_batch) * p.k_heads : 0;
  const int tile = int(blockIdx.x), rows = kIsRagged<Mod> ? base.rows.kv : base.kv_len;
  if (tile < of_q)
    widen_q(p, args, q_place(base, args, tile, base.q_heads));
  else if (tile < of_q + of_k)
    widen_k(p, args, k_place(base, args, tile - of_q, p.k_heads));
  else
    spread_v(p, rows, place_of(tile - of_q - of_k, rows, p.k_heads));
}

} // namespace attnc::low_rank
