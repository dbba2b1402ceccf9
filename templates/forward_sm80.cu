// Forward attention with mma.sync and cp.async, for sm_80 and later.
//
//   S = scale Q K^T,  P = softmax(mod(S)),  O = P V,  lse = log sum exp mod(S)
//
// After FlashAttention-2 (Dao, arXiv:2307.08691): a CTA owns kBlockM rows of Q and walks the live KV tiles of kBlockN
// columns; each warp owns 16 kMmaM rows and all columns, so that a row's softmax stays within a quad of lanes.
//
//   shared memory   bytes                          lifetime
//   q_tile          kBlockM   row_bytes(kDimQk)    whole kernel; the output is staged over it
//   k_tile          kBlockN   row_bytes(kDimQk)    filled for tile i + 1 while S of tile i is worked on
//   v_tile          kBlockN   row_bytes(kDimV)     filled while S = Q K^T runs
//
// Grid: q tiles * q_heads * batch, in one dimension. Threads: 32 kWarps. Seams: head, row, col, score, mask.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/block_walk.cuh"
#include "algo/online_softmax.cuh"
#include "tile/copy_tile.cuh"
#include "tile/mma_tile.cuh"

namespace attnc {

constexpr int kThreads = 32 * kWarps;
constexpr int kMmaM = kBlockM / (16 * kWarps); // groups of 16 rows a warp owns
static_assert(kMmaM * 16 * kWarps == kBlockM, "a warp owns whole groups of 16 rows");
static_assert(kBlockN % 16 == 0, "K fragments are loaded 16 rows at a time");

constexpr int kQTileBytes = kBlockM * (kDimQk > kDimV ? row_bytes(kDimQk) : row_bytes(kDimV));
constexpr int kKTileBytes = kBlockN * row_bytes(kDimQk);

using ScoreTile = float[kMmaM][kBlockN / 8][4];
using OutTile = float[kMmaM][kDimV / 8][4];

/// What a thread knows of its place: rows q_start + 16 m + 8 half for its row groups, columns kv_start + 8 n + e.
struct Place {
  const ForwardParams& p;
  const ModArgs& args;
  int b, h, q_start; // q_start: the thread's first row
  Mod::Head head;
  Mod::Row row[kMmaM][2];

  ATTNC_DEVICE int q_idx(int m, int half) const { return min(q_start + 16 * m + 8 * half, p.q_len - 1); }
};

/// Turns products q k^T into scores: score_mod, then -inf where mask_mod or the end of KV says so. On exit x is the
/// natural score if the mod has a score_mod (or `premultiply`), else still the product.
ATTNC_DEVICE void apply_mod(ScoreTile& x, const Place& place, KvTile tile, bool premultiply) {
  const ForwardParams& p = place.p;
  const int kv_start = tile.kv_start + threadIdx.x % 4 * 2;
  const auto at_each_score = [&](auto&& function) {
#pragma unroll
    for (int n = 0; n < kBlockN / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int kv_idx = min(kv_start + 8 * n + e, p.kv_len - 1);
        const Mod::Col col = Mod::col(place.args, place.head, place.b, place.h, kv_idx, float(kv_idx));
#pragma unroll
        for (int m = 0; m < kMmaM; ++m)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const Coord at = {place.b, place.h, place.q_idx(m, half), kv_idx};
            function(x[m][n][2 * half + e], place.row[m][half], col, at);
          }
      }
  };
  if constexpr (Mod::kHasScoreMod) {
    at_each_score([&](float& s, const Mod::Row& row, const Mod::Col& col, Coord at) {
      s = Mod::score(place.args, place.head, row, col, at, s * p.scale); // SEAM(score)
    });
  } else if (premultiply) {
#pragma unroll
    for (auto& group : x)
#pragma unroll
      for (auto& fragment : group)
#pragma unroll
        for (float& s : fragment) s *= p.scale;
  }
  if (Mod::kHasMaskMod && tile.masked) {
    at_each_score([&](float& s, const Mod::Row& row, const Mod::Col& col, Coord at) {
      if (!Mod::mask(place.args, place.head, row, col, at)) s = negative_infinity(); // SEAM(mask)
    });
  }
  if (tile.kv_start + kBlockN > p.kv_len) {
#pragma unroll
    for (int n = 0; n < kBlockN / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (kv_start + 8 * n + e % 2 >= p.kv_len)
#pragma unroll
          for (int m = 0; m < kMmaM; ++m) x[m][n][e] = negative_infinity();
  }
}

/// What a warp carries from tile to tile.
struct Accumulators {
  OutTile o = {};
  SoftmaxRow softmax[kMmaM][2];
  float max[kMmaM][2]; // largest x of a row, if kRowMax
};

/// P = 2^(factor x + bias) in place, row sums and, where a maximum rises, O brought up to date.
ATTNC_DEVICE void softmax_step(ScoreTile& x, Accumulators& acc, float factor) {
  float tile_max[kMmaM][2];
  bool rises = false;
#pragma unroll
  for (int m = 0; m < kMmaM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float& largest = tile_max[m][half];
      largest = negative_infinity();
#pragma unroll
      for (auto& fragment : x[m]) largest = fmaxf(largest, fmaxf(fragment[2 * half], fragment[2 * half + 1]));
      largest = quad_max(largest);
      if (kRowMax) acc.max[m][half] = fmaxf(acc.max[m][half], largest);
      rises |= acc.softmax[m][half].must_rescale(largest, factor);
    }
  if (__any_sync(0xffffffffu, rises)) {
#pragma unroll
    for (int m = 0; m < kMmaM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float correction = acc.softmax[m][half].rescale(tile_max[m][half], factor);
#pragma unroll
        for (auto& fragment : acc.o[m]) {
          fragment[2 * half] *= correction;
          fragment[2 * half + 1] *= correction;
        }
      }
  }
#pragma unroll
  for (int m = 0; m < kMmaM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float bias = acc.softmax[m][half].weight_bias();
      float sum = 0.f;
#pragma unroll
      for (auto& fragment : x[m])
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          fragment[2 * half + e] = ptx::ex2(fragment[2 * half + e] * factor + bias);
          sum += fragment[2 * half + e];
        }
      acc.softmax[m][half].sum += sum;
    }
}

/// Normalises O, stages the warp's rows in shared memory and stores them; lse and row max go out directly.
ATTNC_DEVICE void store_output(Accumulators& acc, const Place& place, unsigned char* staging, int warp_row,
                               float natural) {
  const ForwardParams& p = place.p;
  const int lane = threadIdx.x % 32;
  const long long row_of_head = ((long long)place.b * p.q_heads + place.h) * p.q_len;
#pragma unroll
  for (int m = 0; m < kMmaM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      SoftmaxRow& row = acc.softmax[m][half];
      const float normalise = row.finish();
      Element* line = (Element*)(staging + (16 * m + 8 * half + lane / 4) * row_bytes(kDimV));
#pragma unroll
      for (int n = 0; n < kDimV / 8; ++n)
        store2(line + 8 * n + lane % 4 * 2, acc.o[m][n][2 * half] * normalise, acc.o[m][n][2 * half + 1] * normalise);
      const int q_idx = place.q_start + 16 * m + 8 * half;
      if (lane % 4 == 0 && q_idx < p.q_len) {
        if (p.lse) p.lse[row_of_head + q_idx] = row.lse();
        if (kRowMax && p.row_max) p.row_max[row_of_head + q_idx] = unless_nan(row.sum, acc.max[m][half] * natural);
      }
    }
  __syncwarp();
  Element* out = (Element*)p.out + place.b * p.out_stride.batch + place.h * p.out_stride.head;
  copy_tile_out<16 * kMmaM, kHeadDimV>(staging, out, p.out_stride.row, warp_row, p.q_len, p.vectors);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    attnc_forward(const __grid_constant__ ForwardParams p, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(16) unsigned char shared[];
  unsigned char* q_tile = shared;
  unsigned char* k_tile = q_tile + kQTileBytes;
  unsigned char* v_tile = k_tile + kKTileBytes;

  // Later rows see more keys under causal-like masks, so the long rows start first.
  const int q_tiles = (p.q_len + kBlockM - 1) / kBlockM;
  const int q_start = (q_tiles - 1 - int(blockIdx.x % q_tiles)) * kBlockM;
  const int h = blockIdx.x / q_tiles % p.q_heads, b = blockIdx.x / q_tiles / p.q_heads;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  const Element* q = (const Element*)p.q + b * p.q_stride.batch + h * p.q_stride.head;
  const Element* k = (const Element*)p.k + b * p.k_stride.batch + h / p.group * p.k_stride.head;
  const Element* v = (const Element*)p.v + b * p.v_stride.batch + h / p.group * p.v_stride.head;
  // NOTE: where S and O take most registers and lists some more, the addresses of heads are formed anew for each tile:
  // kept, they would make the main loop spill. Elsewhere that costs up to 7 %.
  constexpr bool kFormAnew = kBlockSparse && sizeof(ScoreTile) + sizeof(OutTile) > 128 * sizeof(float);
  const int kv_head = h / p.group;
  const auto load_k = [&](KvTile tile) {
    const Element* head =
        kFormAnew ? (const Element*)p.k + b * p.k_stride.batch + ptx::opaque(kv_head) * p.k_stride.head : k;
    copy_tile_in<kBlockN, kHeadDimQk, kThreads>(k_tile, head, p.k_stride.row, tile.kv_start, p.kv_len, p.vectors);
  };
  const auto load_v = [&](KvTile tile) {
    const Element* head =
        kFormAnew ? (const Element*)p.v + b * p.v_stride.batch + ptx::opaque(kv_head) * p.v_stride.head : v;
    copy_tile_in<kBlockN, kHeadDimV, kThreads>(v_tile, head, p.v_stride.row, tile.kv_start, p.kv_len, p.vectors);
  };

  const BlockWalk<kBlockN, kBlockSparse, Mod::kHasMaskMod> walk(p.lists, b, h, q_start, p.kv_len);
  KvTile tile = walk.count ? walk.tile(0) : KvTile{};
  copy_tile_in<kBlockM, kHeadDimQk, kThreads>(q_tile, q, p.q_stride.row, q_start, p.q_len, p.vectors);
  if (walk.count) load_k(tile);
  ptx::cp_async_commit_group();

  Place place = {p, args, b, h, q_start + warp * 16 * kMmaM + lane / 4, Mod::head(args, b, h)};
#pragma unroll
  for (int m = 0; m < kMmaM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int q_idx = place.q_idx(m, half);
      place.row[m][half] = Mod::row(args, place.head, b, h, q_idx, float(q_idx));
    }

  // x is a score in natural units if something comes between the product and the softmax, else the product itself; a
  // scale that is not positive would turn the maximum into a minimum, so then the product is multiplied first.
  const bool premultiply = Mod::kHasScoreMod || !(p.scale > 0.f);
  const float natural = premultiply ? 1.f : p.scale, factor = natural * kLog2e;
  const unsigned q_warp = ptx::shared_address(q_tile) + warp * 16 * kMmaM * row_bytes(kDimQk);

  ScoreTile s;
  Accumulators acc;
#pragma unroll
  for (auto& pair : acc.max) pair[0] = pair[1] = negative_infinity();
#pragma unroll 1
  for (int i = 0; i < walk.count; ++i) {
    // NOTE: a known step from tile to tile would be strength-reduced into sixteen 64-bit pointers, and spill.
    KvTile next = i + 1 < walk.count ? walk.tile(i + 1) : tile;
    next.kv_start = ptx::opaque(next.kv_start);
    ptx::cp_async_wait_group<0>();
    __syncthreads(); // K of this tile is there; V of the last one is used up
    load_v(tile);
    ptx::cp_async_commit_group();

    multiply_qk<kMmaM, kBlockN>(s, q_warp, ptx::shared_address(k_tile)); // S = Q K^T

    ptx::cp_async_wait_group<0>();
    __syncthreads(); // V is there; K is used up
    if (i + 1 < walk.count) load_k(next);
    ptx::cp_async_commit_group();

    apply_mod(s, place, tile, premultiply);
    softmax_step(s, acc, factor);                                    // P = exp(S - max)
    multiply_pv<kMmaM, kBlockN>(acc.o, s, ptx::shared_address(v_tile));       // O += P V
    tile = next;
  }

  // The staging rows of a warp are the rows of Q that only this warp reads; the first pass of a CTA without any tile
  // still has Q's copy under way.
  ptx::cp_async_wait_group<0>();
  __syncthreads();
  store_output(acc, place, q_tile + warp * 16 * kMmaM * row_bytes(kDimV), q_start + warp * 16 * kMmaM, natural);
}

} // namespace attnc
