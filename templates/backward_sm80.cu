// Backward attention with mma.sync and cp.async, for sm_80 and later. Deterministic: no atomics.
//
//   P = exp(mod(scale Q K^T) - lse),  delta = rows of dO O - d_lse,  G = P (dO V^T - delta)
//   dS = scale mod'(scale Q K^T) G,   dV = P^T dO,  dK = dS^T Q,  dQ = dS K
//
// Three kernels, each a launch of its own:
//
//   attnc_backward_delta   a warp a row of O: delta
//   attnc_backward_kv      a CTA owns kBlockN rows of K and V and walks Q in steps of kBlockM rows, of all query heads of
//                          its KV head (and of all batches where K and V are broadcast). S^T = K Q^T and dP^T = V dO^T
//                          have their rows along KV, so P^T and dS^T are in registers what dV and dK take. A warp owns 16
//                          rows. Where dK and dV together take too many registers, a CTA computes one of them.
//   attnc_backward_q       a CTA owns kBlockM rows of Q and walks KV in steps of kBlockN columns, as the forward kernel does;
//                          a warp owns 16 rows
//
// P and dS are computed twice, 7 products for 5: the price of no atomics and no partial dQ in memory.
//
//   shared memory of _kv    bytes                                lifetime
//   KPart, VPart            kBlockN rows of K, of V              whole kernel; then dK, dV on their way out
//   QPart, OPart            kBlockM rows of Q, of dO             a step
//   rows (static)           kBlockM RowInfo                      a step
//   of _q: QPart, OPart whole kernel, KPart, VPart a step; dQ leaves through QPart
//
//   barrier                       when                           what it says
//   __syncthreads                 begin of a step                the tiles of the step before are used up
//   cp.async, __syncthreads       before its products            the tiles of this step, and `rows`, are there
//   __syncthreads                 at the end                     tiles may be written over with results
//
// Grids, in one dimension: _delta rows / kWarps; _kv kv tiles * kv_heads * kv_batch (twice that where dK and dV are apart);
// _q q tiles * q_heads * batch. Threads: 32 kWarps; kSharedBytes of dynamic shared memory for _kv and _q. kBlockM and kBlockN
// are 16 kWarps in the kernel that owns them.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/apply_mod.cuh"
#include "algo/kv_walk.cuh"
#include "algo/q_walk.cuh"
#include "algo/softmax.cuh"
#include "ptx/shared_memory.cuh"
#include "tile/copy_tile.cuh"
#include "tile/gemm_mma.cuh"
#include "tile/shared_memory.cuh"

namespace attnc::sm80 {

constexpr int kThreads = 32 * kWarps;
static_assert(kBlockM % 16 == 0 && kBlockN % 16 == 0, "tiles are multiplied 16 rows at a time");

using QTile = PaddedTile<Element, kBlockM, kHeadDimQk>;
using OTile = PaddedTile<Element, kBlockM, kHeadDimV>;
using KTile = PaddedTile<Element, kBlockN, kHeadDimQk>;
using VTile = PaddedTile<Element, kBlockN, kHeadDimV>;
struct QPart : SharedPart<QPart, QTile::kBytes> {};
struct OPart : SharedPart<OPart, OTile::kBytes> {};
struct KPart : SharedPart<KPart, KTile::kBytes> {};
struct VPart : SharedPart<VPart, VTile::kBytes> {};
using Memory = SharedMemory<QPart, OPart, KPart, VPart>;
static_assert(Memory::kBytes == kSharedBytes, "the host asks for another size: src/plan");

/// Row `index` of a [batch, heads, rows] array.
ATTNC_DEVICE long long row_of_all(const ForwardParams& p, int b, int h, int q_idx) {
  return ((long long)b * p.q_heads + h) * p.q_len + q_idx;
}

/// What y = log2(e) score + bias turns into the weight 2^y: minus lse in units of log2, less what apply_mod() leaves out
/// of the scores. -inf for a row without live columns, whose weights are 0.
ATTNC_DEVICE float weight_bias(float lse, float row_shift) {
  return lse == negative_infinity() ? lse : (row_shift - lse) * kLog2e;
}

/// The gradient of q k^T, less the scale, from that of the weight. A dead element contributes 0, whatever mod' and V are
/// there.
template <class M>
ATTNC_DEVICE float score_gradient(const ForwardParams& p, const ModArgs& args, const Mod::Head& head, const Mod::Row& row,
                                  const Mod::Col& col, Coord at, float product, float weight, float d_weight, float delta) {
  float g = weight * (d_weight - delta);
  if constexpr (!Mod::Exponents::kGradientIsOne)
    g = M::d_score(args, head, row, col, at, product * p.scale, g); // SEAM(d_score)
  return weight == 0.f ? 0.f : g;
}

/// A warp's rows times `factor` to rows [row_start, ...) of a [length, Columns] matrix, through `rows` in shared memory.
template <int Columns, int N>
ATTNC_DEVICE void store_rows(PaddedTile<Element, 16, Columns> rows, const Fragment<1, N>& from, float factor, Element* to,
                             long long row_stride, int row_start, int length, bool vectors) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    Element* line = rows.elements(from.row(r)) + from.first_column();
#pragma unroll
    for (int n = 0; n < N / 8; ++n) store2(line + 8 * n, from.at(r, n, 0) * factor, from.at(r, n, 1) * factor);
  }
  __syncwarp();
  copy_out(rows, to, row_stride, row_start, length, vectors);
}

// -------------------------------------------------------------------------------------------------------------- delta

extern "C" __global__ void __launch_bounds__(kThreads) attnc_backward_delta(const __grid_constant__ BackwardParams p) {
  const ForwardParams& f = p.forward;
  const long long index = (long long)blockIdx.x * kWarps + threadIdx.x / 32;
  if (index >= (long long)f.batch * f.q_heads * f.q_len) return;
  const int q_idx = index % f.q_len, h = index / f.q_len % f.q_heads, b = index / f.q_len / f.q_heads;
  const Element* out = (const Element*)f.out + b * f.out_stride.batch + h * f.out_stride.head + q_idx * f.out_stride.row;
  const Element* d_out =
      (const Element*)p.d_out + b * p.d_out_stride.batch + h * p.d_out_stride.head + q_idx * p.d_out_stride.row;
  float sum = 0.f;
  for (int d = threadIdx.x % 32; d < kHeadDimV; d += 32) sum += to_float(out[d]) * to_float(d_out[d]);
#pragma unroll
  for (int lanes = 16; lanes; lanes /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
  if (threadIdx.x % 32 == 0) p.delta[index] = sum - (p.d_lse ? p.d_lse[index] : 0.f);
}

// ----------------------------------------------------------------------------------------------------------- dK and dV

/// What the lanes of a CTA share of a row of Q.
struct RowInfo {
  float bias, delta;
  int begin, end; ///< its live columns, where rows are intervals
  Mod::Row row;
};

template <class M>
ATTNC_DEVICE RowInfo row_info(const BackwardParams& p, const ModArgs& args, const Mod::Head& head, int b, int h, int q_idx,
                              int origin) {
  const ForwardParams& f = p.forward;
  const int inside = min(q_idx, f.q_len - 1);
  RowInfo info;
  info.row = Mod::row(args, head, b, h, inside, float(inside - origin)); // SEAM(row)
  const long long index = row_of_all(f, b, h, inside);
  info.bias = q_idx < f.q_len ? weight_bias(f.lse[index], Mod::row_shift(args, head, info.row)) // SEAM(row_shift)
                              : negative_infinity();
  info.delta = p.delta[index];
  info.begin = 0, info.end = f.kv_len;
  if constexpr (M::kRowsAreIntervals) {
    const auto live = M::bounds(args, head, b, h, inside, inside + 1); // SEAM(bounds)
    info.begin = live.begin, info.end = live.end;
  }
  return info;
}

/// Whether dK and dV are computed by CTAs of their own.
constexpr bool kApart = KTile::kColumns + VTile::kColumns > 256;

struct KvGradients {
  using Scores = Fragment<1, kBlockM>; // transposed: rows along KV
  const BackwardParams& p;
  const ModArgs& args;
  QTile q_tile;
  OTile o_tile;
  KTile k_tile;
  VTile v_tile;
  RowInfo* rows;
  int kv_start, kv_head;

  ATTNC_DEVICE int kv_row(int r) const { return kv_start + int(threadIdx.x) / 32 * 16 + Scores::row(r); }

  /// P^T in s and, if `wanted`, dS^T in d_s.
  template <class M, bool Wanted>
  ATTNC_DEVICE void weights(Scores& s, Scores& d_s, const Mod::Head& head, int b, int h, Step step, int origin) const {
    const ForwardParams& f = p.forward;
    const Mod::Exponents exponents(f.scale, Mod::factors(args, head)); // SEAM(factors)
    Mod::Col col[2];
    int kv_idx[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      kv_idx[r] = min(kv_row(r), f.kv_len - 1);
      col[r] = Mod::col(args, head, b, h, kv_idx[r], float(kv_idx[r] - origin), 0.f); // SEAM(col)
    }
#pragma unroll
    for (int n = 0; n < Scores::kGroups; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const RowInfo& info = rows[Scores::column(n, e)];
        const int q_idx = min(step.start + Scores::column(n, e), f.q_len - 1);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const Coord at = {b, h, q_idx, kv_idx[r]};
          const float product = s.at(r, n, e);
          float x = product;
          if constexpr (Mod::Exponents::kCallsScore)
            x = Mod::score(args, head, info.row, col[r], at, x * exponents.score_scale); // SEAM(score)
          float y = exponents.exponent(x, info.bias, float(kv_idx[r] - origin));
          bool live = kv_row(r) < f.kv_len;
          if constexpr (M::kRowsAreIntervals)
            live = live && kv_idx[r] >= info.begin && kv_idx[r] < info.end;
          else if (M::kHasMaskMod && step.flags & kStepMasked)
            live = live && Mod::mask(args, head, info.row, col[r], at); // SEAM(mask)
          if (!live || info.bias == negative_infinity()) y = negative_infinity();
          const float weight = ptx::ex2(y);
          s.at(r, n, e) = weight;
          if constexpr (Wanted)
            d_s.at(r, n, e) = score_gradient<Mod>(f, args, head, info.row, col[r], at, product, weight, d_s.at(r, n, e), info.delta);
        }
      }
  }

  /// Adds up over the rows of Q of all heads that share the KV head.
  template <bool WantsK, bool WantsV>
  ATTNC_DEVICE void run(Fragment<1, KTile::kColumns>& d_k, Fragment<1, VTile::kColumns>& d_v, int kv_b) const {
    const ForwardParams& f = p.forward;
    const int warp_row = int(threadIdx.x) / 32 * 16;
    const int batches = p.kv_batch == f.batch ? 1 : f.batch;
#pragma unroll 1
    for (int i = 0; i < batches * f.group; ++i) {
      const int b = kv_b + i / f.group, h = kv_head * f.group + i % f.group;
      const Mod::Head head = Mod::head(args, b, h); // SEAM(head)
      const Element* q = (const Element*)f.q + b * f.q_stride.batch + h * f.q_stride.head;
      const Element* d_out = (const Element*)p.d_out + b * p.d_out_stride.batch + h * p.d_out_stride.head;
      const auto walk = walk_q<Mod, kBlockM>(f, args, b, h, kv_start, min(kv_start + kBlockN, f.kv_len));
#pragma unroll 1
      for (int j = 0; j < walk.count; ++j) {
        const Step step = walk.at(j);
        __syncthreads();
        copy_in<kThreads>(q_tile, q, f.q_stride.row, step.start, f.q_len, f.vectors);
        copy_in<kThreads>(o_tile, d_out, p.d_out_stride.row, step.start, f.q_len, f.vectors);
        ptx::cp_async_commit_group();
        const int origin = Place<1>::origin_of(step.start);
        for (int row = threadIdx.x; row < kBlockM; row += kThreads)
          rows[row] = row_info<Mod>(p, args, head, b, h, step.start + row, origin);
        ptx::cp_async_wait_group<0>();
        __syncthreads();

        Scores s, d_s;
        s.fill(0.f);
        mma::gemm<kTf32>(s, k_tile.rows<16>(warp_row), transposed(q_tile)); // S^T = K Q^T
        if constexpr (WantsK) {
          d_s.fill(0.f);
          mma::gemm<kTf32>(d_s, v_tile.rows<16>(warp_row), transposed(o_tile)); // dP^T = V dO^T
        }
        weights<Mod, WantsK>(s, d_s, head, b, h, step, origin);
        if constexpr (WantsV) mma::gemm<kTf32>(d_v, s, o_tile);   // dV += P^T dO
        if constexpr (WantsK) mma::gemm<kTf32>(d_k, d_s, q_tile); // dK += dS^T Q
      }
    }
    ptx::cp_async_wait_group<0>();
    __syncthreads();
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attnc_backward_kv(const __grid_constant__ BackwardParams p, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  __shared__ RowInfo rows[kBlockM];
  const ForwardParams& f = p.forward;
  const unsigned shared = ptx::shared_address(dynamic_shared);
  const int kv_tiles = (f.kv_len + kBlockN - 1) / kBlockN;
  const int index = kApart ? blockIdx.x / 2 : blockIdx.x;
  const int kv_head = index / kv_tiles % f.kv_heads, kv_b = index / kv_tiles / f.kv_heads;
  const KvGradients gradients = {p,
                                 args,
                                 {shared + Memory::offset_of<QPart>()},
                                 {shared + Memory::offset_of<OPart>()},
                                 {shared + Memory::offset_of<KPart>()},
                                 {shared + Memory::offset_of<VPart>()},
                                 rows,
                                 index % kv_tiles * kBlockN,
                                 kv_head};
  const int kv_start = gradients.kv_start, warp_row = int(threadIdx.x) / 32 * 16;
  const Element* k = (const Element*)f.k + kv_b * f.k_stride.batch + kv_head * f.k_stride.head;
  const Element* v = (const Element*)f.v + kv_b * f.v_stride.batch + kv_head * f.v_stride.head;
  copy_in<kThreads>(gradients.k_tile, k, f.k_stride.row, kv_start, f.kv_len, f.vectors);
  copy_in<kThreads>(gradients.v_tile, v, f.v_stride.row, kv_start, f.kv_len, f.vectors);
  ptx::cp_async_commit_group();

  Fragment<1, KTile::kColumns> d_k;
  Fragment<1, VTile::kColumns> d_v;
  d_k.fill(0.f);
  d_v.fill(0.f);
  const bool second = kApart && blockIdx.x % 2;
  if constexpr (!kApart)
    gradients.run<true, true>(d_k, d_v, kv_b);
  else if (second)
    gradients.run<true, false>(d_k, d_v, kv_b);
  else
    gradients.run<false, true>(d_k, d_v, kv_b);

  Element* to_k = (Element*)p.d_k + kv_b * p.d_k_stride.batch + kv_head * p.d_k_stride.head;
  Element* to_v = (Element*)p.d_v + kv_b * p.d_v_stride.batch + kv_head * p.d_v_stride.head;
  if (!kApart || second)
    store_rows(gradients.k_tile.rows<16>(warp_row), d_k, f.scale, to_k, p.d_k_stride.row, kv_start + warp_row,
                      f.kv_len, f.vectors);
  if (!kApart || !second)
    store_rows(gradients.v_tile.rows<16>(warp_row), d_v, 1.f, to_v, p.d_v_stride.row, kv_start + warp_row, f.kv_len,
                      f.vectors);
}

// ------------------------------------------------------------------------------------------------------------------ dQ

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attnc_backward_q(const __grid_constant__ BackwardParams p, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  const ForwardParams& f = p.forward;
  const unsigned shared = ptx::shared_address(dynamic_shared);
  const QTile q_tile = {shared + Memory::offset_of<QPart>()};
  const OTile o_tile = {shared + Memory::offset_of<OPart>()};
  const KTile k_tile = {shared + Memory::offset_of<KPart>()};
  const VTile v_tile = {shared + Memory::offset_of<VPart>()};
  using Scores = Fragment<1, kBlockN>;

  const int q_tiles = (f.q_len + kBlockM - 1) / kBlockM;
  const int q_start = (q_tiles - 1 - int(blockIdx.x % q_tiles)) * kBlockM;
  const int h = blockIdx.x / q_tiles % f.q_heads, b = blockIdx.x / q_tiles / f.q_heads;
  const int warp_row = int(threadIdx.x) / 32 * 16;
  const Element* q = (const Element*)f.q + b * f.q_stride.batch + h * f.q_stride.head;
  const Element* d_out = (const Element*)p.d_out + b * p.d_out_stride.batch + h * p.d_out_stride.head;
  const Element* k = (const Element*)f.k + b * f.k_stride.batch + h / f.group * f.k_stride.head;
  const Element* v = (const Element*)f.v + b * f.v_stride.batch + h / f.group * f.v_stride.head;
  copy_in<kThreads>(q_tile, q, f.q_stride.row, q_start, f.q_len, f.vectors);
  copy_in<kThreads>(o_tile, d_out, p.d_out_stride.row, q_start, f.q_len, f.vectors);
  ptx::cp_async_commit_group();

  const Place<1> place(f, args, b, h, q_start, warp_row + Scores::row(0));
  float bias[2], delta[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const long long index = row_of_all(f, b, h, place.q_idx(f, r));
    bias[r] = weight_bias(f.lse[index], Mod::row_shift(args, place.head, place.row[r])); // SEAM(row_shift)
    delta[r] = p.delta[index];
  }

  const auto walk = walk_kv<Mod, kBlockN, kBlockSparse>(f, args, b, h, q_start, min(q_start + kBlockM, f.q_len));
  Fragment<1, KTile::kColumns> d_q;
  d_q.fill(0.f);
#pragma unroll 1
  for (int i = 0; i < walk.count; ++i) {
    const Step step = walk.at(i);
    __syncthreads();
    copy_in<kThreads>(k_tile, k, f.k_stride.row, step.start, f.kv_len, f.vectors);
    copy_in<kThreads>(v_tile, v, f.v_stride.row, step.start, f.kv_len, f.vectors);
    ptx::cp_async_commit_group();
    ptx::cp_async_wait_group<0>();
    __syncthreads();

    Scores s, d_s;
    s.fill(0.f);
    d_s.fill(0.f);
    mma::gemm<kTf32>(s, q_tile.rows<16>(warp_row), transposed(k_tile));   // S = Q K^T
    mma::gemm<kTf32>(d_s, o_tile.rows<16>(warp_row), transposed(v_tile)); // dP = dO V^T
    Scores products = s;
    apply_mod(s, f, args, place, step, OwnColumns{}, bias);
    // s: y, then P where it is needed; products: S; d_s: dP, then dS.
    s.for_each([&](float& y, int r) { y = bias[r] == negative_infinity() ? 0.f : ptx::ex2(y); });
    at_each_score(products, f, args, place, step, OwnColumns{},
                  [&](float& product, const Mod::Row& row, const Mod::Col& col, Coord at, int r, int n, int e) {
                    float& d = d_s.at(r, n, e);
                    d = score_gradient<Mod>(f, args, place.head, row, col, at, product, s.at(r, n, e), d, delta[r]);
                  });
    mma::gemm<kTf32>(d_q, d_s, k_tile); // dQ += dS K
  }

  ptx::cp_async_wait_group<0>();
  __syncthreads();
  Element* to = (Element*)p.d_q + b * p.d_q_stride.batch + h * p.d_q_stride.head;
  store_rows(q_tile.rows<16>(warp_row), d_q, f.scale, to, p.d_q_stride.row, q_start + warp_row, f.q_len, f.vectors);
}

} // namespace attnc::sm80
