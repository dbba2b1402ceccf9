// Forward attention of few queries over long KV with mma.sync and cp.async, for sm_80 and later: split-KV.
//
//   S = scale Q K^T,  P = softmax(mod(S)),  O = P V,  lse = log sum exp mod(S)
//
// Its aim is to read K and V once, at the speed of memory. Rows of a tile are query tokens times the query heads that share
// a KV head (algo/packed_rows.cuh). The live steps of all tiles are dealt evenly to as many CTAs as run at once
// (algo/decode_work.cuh); who takes part of a tile stores its sums, and the last one to do so merges all parts, in their order
// along KV. Another launch for that would begin only when the last CTA of this one has ended.
//
// A warp owns 16 rows. Warps with different rows and the same columns are a team; a step of kBlockN columns is divided among
// teams, each of which has a ring of K and V of its own and waits for nobody else.
//
//   shared memory   bytes                                     lifetime
//   QPart           kBlockM rows of Q                         an item
//   RingPart        kStages of kBlockN rows of K and of V     slot of step i: filled while steps i - kStages + 1 .. i - 1
//                                                             are worked on
//                   O of each warp, in f32, instead           an item's end
//
//   barrier                    when                           what it says
//   cp.async, __syncthreads    before the first step          Q is there
//   cp.async, the team's       before each step               its K and V are there; those of the step before are used up
//   cp.async, __syncthreads    after the last step            Q and the ring are used up
//   __syncthreads              after that                     O of all warps is there
//   __syncthreads              after a part is stored         it is; the last one to arrive merges
//   __syncthreads              at an item's end               shared memory is free
//
// Grid: any; what is divided has parts for each CTA. Threads: 32 kWarps; kSharedBytes of dynamic shared memory.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/decode_work.cuh"
#include "algo/merge_rows.cuh"
#include "algo/packed_rows.cuh"
#include "params_decode_sm80.cuh"
#include "ptx/global_memory.cuh"
#include "ptx/named_barrier.cuh"
#include "ptx/shared_memory.cuh"
#include "tile/copy_tile.cuh"
#include "tile/gemm_mma.cuh"
#include "tile/shared_memory.cuh"

namespace attnc::decode {

constexpr int kThreads = 32 * kWarps;
constexpr int kTeamWarps = kBlockM / 16;
constexpr int kTeams = kWarps / kTeamWarps;
constexpr int kTeamThreads = 32 * kTeamWarps;
constexpr int kTeamColumns = kBlockN / kTeams;
static_assert(kTeams * kTeamWarps == kWarps && kTeamColumns % 16 == 0 && kTeams * kTeamColumns == kBlockN,
              "teams share rows and columns evenly");
static_assert(kStages >= 2, "a slot is filled while another is worked on");

using QTile = PaddedTile<Element, kBlockM, kHeadDimQk>;
using KTile = PaddedTile<Element, kTeamColumns, kHeadDimQk>;
using VTile = PaddedTile<Element, kTeamColumns, kHeadDimV>;
constexpr int kSlotBytes = KTile::kBytes + VTile::kBytes;
using Scores = Fragment<1, kTeamColumns>;
using Out = Fragment<1, VTile::kColumns>;
using Items = DecodeItems<Mod, kBlockM, kBlockN>;
using Dealer = DecodeDealer<Mod, kBlockM, kBlockN, kThreads>;

/// O and row states of all warps, on their way to be merged.
struct Sums {
  static constexpr int kColumns = Out::kColumns;
  float out[kWarps][16][kColumns];
  float state[kWarps][16][4];
};

constexpr int kRingBytes = kTeams * kStages * kSlotBytes;
struct QPart : SharedPart<QPart, QTile::kBytes> {};
struct RingPart : SharedPart<RingPart, (kRingBytes > int(sizeof(Sums)) ? kRingBytes : int(sizeof(Sums)))> {};
using Memory = SharedMemory<QPart, RingPart>;
static_assert(Memory::kBytes == kSharedBytes, "the host asks for another size: src/plan");

/// Rows of K or V of one (batch, KV head): where blocks of them lie.
struct KvRows {
  const Element* first;
  long long stride;
  ATTNC_DEVICE KvRows(const void* tensor, const Strides& strides, int b, int kv_head)
      : first((const Element*)tensor + b * strides.batch + kv_head * strides.head), stride(strides.row) {}
  /// `start`: a multiple of kTeamColumns.
  ATTNC_DEVICE const Element* block(int start) const { return first + start * stride; }
};

/// The tile's rows of Q, zero past their end. Whole CTA; asynchronous as copy_in().
ATTNC_DEVICE void load_q(QTile to, const ForwardParams& p, const PackedTile& tile) {
  constexpr int kPerChunk = 16 / int(sizeof(Element)), kChunks = QTile::kColumns / kPerChunk;
  const auto row_of = [&](int row) {
    const int i = min(row, tile.rows - 1);
    return (const Element*)p.q + tile.b * p.q_stride.batch + tile.head(p, i) * p.q_stride.head +
           tile.token(p, i) * p.q_stride.row;
  };
  if (p.vectors) {
    for (int i = threadIdx.x; i < kBlockM * kChunks; i += kThreads) {
      const int row = i / kChunks, column = i % kChunks * kPerChunk;
      const bool inside = row < tile.rows && column < kHeadDimQk;
      ptx::cp_async_16(to.row(row) + i % kChunks * 16, row_of(row) + column, inside ? 16 : 0);
    }
  } else {
    for (int i = threadIdx.x; i < kBlockM * QTile::kColumns; i += kThreads) {
      const int row = i / QTile::kColumns, column = i % QTile::kColumns;
      const bool inside = row < tile.rows && column < kHeadDimQk;
      to.elements(row)[column] = inside ? row_of(row)[column] : from_float<Element>(0.f);
    }
  }
}

ATTNC_DEVICE void sync_team(int team) {
  if constexpr (kTeamWarps == 1)
    __syncwarp();
  else
    ptx::named_barrier_sync<kTeamThreads>(1 + team);
}

/// Four columns of a row, final: normalised, rounded, stored.
ATTNC_DEVICE void store(const MergedRow& x, const ForwardParams& p, const PackedTile& tile, int row, int column) {
  const float factor = x.normalise();
  Element* out = (Element*)p.out + tile.b * p.out_stride.batch + tile.head(p, row) * p.out_stride.head +
                 tile.token(p, row) * p.out_stride.row + column;
  if (p.vectors) {
    store2(out, x.out[0] * factor, x.out[1] * factor);
    store2(out + 2, x.out[2] * factor, x.out[3] * factor);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) out[i] = from_float<Element>(x.out[i] * factor);
  }
  if (column != 0) return;
  if (p.lse) p.lse[tile.row_of_all(p, row)] = x.lse();
  if constexpr (kRowMax)
    if (p.row_max) p.row_max[tile.row_of_all(p, row)] = x.max();
}

ATTNC_DEVICE RowState state_of(const float (&x)[4]) { return {x[0], x[1], x[2], x[3]}; }

/// Where a part lies: its rows of O, their states.
struct Part {
  float *out, *state;
  ATTNC_DEVICE Part(const DecodeParams& p, int cta, int place) {
    const long long row = (2ll * cta + place) * p.part_rows;
    out = p.part_out + row * kHeadDimV;
    state = p.part_state + row * 4;
  }
};

constexpr int kQuads = kHeadDimV / 4; // of columns

/// What a launch is to batch entry b alone.
template <class M> ATTNC_DEVICE decltype(auto) decode_params_of(const DecodeParams& p, const ModArgs& args, int b) {
  if constexpr (kIsRagged<M>) {
    DecodeParams own = p;
    own.forward = params_of<M>(p.forward, args, b);
    return own;
  } else {
    return (p);
  }
}

/// Adds up what the warps of a CTA have of an item's rows, and stores the results, or this CTA's part.
ATTNC_DEVICE void finish_share(const Sums& sums, const DecodeParams& p, const PackedTile& tile, const ItemShare& share,
                               const Shares& shares) {
  for (int i = threadIdx.x; i < tile.rows * kQuads; i += kThreads) {
    const int row = i / kQuads, column = i % kQuads * 4;
    MergedRow merged;
#pragma unroll
    for (int team = 0; team < kTeams; ++team) {
      const int warp = team * kTeamWarps + row / 16;
      merged.fold(state_of(sums.state[warp][row % 16]), *(const float(*)[4])&sums.out[warp][row % 16][column]);
    }
    if (share.is_whole()) {
      store(merged, p.forward, tile, row, column);
    } else {
      const Part part(p, blockIdx.x, part_place(shares, blockIdx.x, share.start));
      ptx::st_global_cg(part.out + row * kHeadDimV + column, merged.out);
      const RowState& s = merged.state;
      if (column == 0) ptx::st_global_cg(part.state + row * 4, {s.reference, s.sum, s.top, s.shift});
    }
  }
}

/// Counts this CTA's part in. The last one of an item merges its parts, and leaves the counter 0. Whole CTA.
ATTNC_DEVICE void merge_parts(const DecodeParams& p, const PackedTile& tile, const ItemShare& share, const Shares& shares,
                              int* is_last) {
  const int first = shares.owner(share.start), last = shares.owner(share.start + share.length - 1);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    *is_last = atomicAdd(p.arrived + share.item, 1) == last - first;
    if (*is_last) p.arrived[share.item] = 0;
    __threadfence();
  }
  __syncthreads();
  if (!*is_last) return;
  for (int i = threadIdx.x; i < tile.rows * kQuads; i += kThreads) {
    const int row = i / kQuads, column = i % kQuads * 4;
    MergedRow merged;
#pragma unroll 4
    for (int cta = first; cta <= last; ++cta) {
      const Part part(p, cta, part_place(shares, cta, share.start));
      float state[4], out[4];
      ptx::ld_global_cg(state, part.state + row * 4);
      ptx::ld_global_cg(out, part.out + row * kHeadDimV + column);
      merged.fold(state_of(state), out);
    }
    store(merged, p.forward, tile, row, column);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attnc_decode(const __grid_constant__ DecodeParams launch, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  __shared__ int words[kWarps + 2];
  const unsigned shared = ptx::shared_address(dynamic_shared);
  const QTile q_tile = {shared + Memory::offset_of<QPart>()};
  const int warp = threadIdx.x / 32, team = warp / kTeamWarps, warp_row = warp % kTeamWarps * 16;
  const unsigned team_thread = threadIdx.x % kTeamThreads;
  const unsigned ring = shared + Memory::offset_of<RingPart>() + team * kStages * kSlotBytes;
  Sums& sums = *(Sums*)(dynamic_shared + Memory::offset_of<RingPart>());

  Dealer dealer(launch.forward, args, launch.part_out != nullptr, words);
#pragma unroll 1
  for (ItemShare share; dealer.next(launch.forward, args, share);) {
    const PackedTile tile = dealer.items.tile(launch.forward, args, share.item);
    const DecodeParams& decode = decode_params_of<Mod>(launch, args, tile.b);
    const ForwardParams& p = decode.forward;
    auto walk = dealer.items.walk(p, args, tile);
    walk.keep_steps(share.begin, share.end);
    const KvRows k(p.k, p.k_stride, tile.b, tile.kv_head), v(p.v, p.v_stride, tile.b, tile.kv_head);
    const auto load = [&](int i) {
      if (i < walk.count) {
        const int start = walk.start_of(i) + team * kTeamColumns;
        const unsigned slot = ring + i % kStages * kSlotBytes;
        copy_in<kTeamThreads>(KTile{slot}, k.block(start), k.stride, 0, walk.length - start, p.vectors, team_thread);
        copy_in<kTeamThreads>(VTile{slot + KTile::kBytes}, v.block(start), v.stride, 0, walk.length - start, p.vectors,
                              team_thread);
      }
      ptx::cp_async_commit_group();
    };
    load_q(q_tile, p, tile);
#pragma unroll 1
    for (int i = 0; i < kStages - 1; ++i) load(i);

    const PackedPlace<Mod> place(p, args, tile, warp_row + Scores::row(0));
    Out o;
    o.fill(0.f);
    SoftmaxRow<kRowMax> row[2];
    ptx::cp_async_wait_group<kStages - 2>();
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < walk.count; ++i) {
      ptx::cp_async_wait_group<kStages - 2>();
      sync_team(team);
      load(i + kStages - 1);
      const unsigned slot = ring + i % kStages * kSlotBytes;
      Scores s;
      s.fill(0.f);
      mma::gemm(s, q_tile.template rows<16>(warp_row), transposed(KTile{slot})); // S = Q K^T

      const int start = walk.start_of(i);
      const Step step = {start + team * kTeamColumns, walk.flags_of(i, start)};
      const float bias[2] = {row[0].bias, row[1].bias};
      float rescale[2];
      apply_mod(s, p, args, place, step, bias);
      if (follow_maxima(s, row, rescale, step.flags & kStepFew)) o.scale_rows(rescale);
      WeightSums<2> weights(row);
      to_weights<0, Scores::kGroups>(s, weights);
      weights.store(row);
      mma::gemm(o, s, VTile{slot + KTile::kBytes}); // O += P V
    }
    ptx::cp_async_wait_group<0>();
    __syncthreads();

#pragma unroll
    for (int r = 0; r < 2; ++r) {
      row[r].finish();
      const RowState state = attnc::state_of(row[r], place.shift(args, r));
      if (threadIdx.x % 4 == 0) {
        float* to = sums.state[warp][Out::row(r)];
        to[0] = state.reference, to[1] = state.sum, to[2] = state.top, to[3] = state.shift;
      }
      float* line = sums.out[warp][Out::row(r)] + Out::first_column();
#pragma unroll
      for (int n = 0; n < Out::kGroups; ++n) store2(line + 8 * n, o.at(r, n, 0), o.at(r, n, 1));
    }
    __syncthreads();
    finish_share(sums, decode, tile, share, dealer.shares);
    if (!share.is_whole()) merge_parts(decode, tile, share, dealer.shares, words);
    __syncthreads();
  }
}

} // namespace attnc::decode
