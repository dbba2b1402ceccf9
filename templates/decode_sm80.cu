// Forward attention of few queries over long KV with mma.sync and cp.async, for sm_80 and later: split-KV.
//
//   S = scale Q K^T,  P = softmax(mod(S)),  O = P V,  lse = log sum exp mod(S)
//
// Its aim is to read K and V once, at the speed of memory. Rows of a tile are query tokens times the query heads that share
// a KV head (algo/packed_rows.cuh). The live steps of all tiles are dealt evenly to as many CTAs as run at once
// (algo/decode_work.cuh); who takes part of a tile stores its sums, and the last one to do so merges all parts
// (algo/merge_rows.cuh). Another launch for that would begin only when the last CTA of this one has ended.
//
// K and V may be of fp8 (kFp8Kv): bytes in the ring, f16 in registers (tile/gemm_e4m3.cuh). Scales of a KV head go into that
// of the scores, and into O at an item's end.
//
// A warp owns 16 rows. Warps with different rows and the same columns are a team; a step of kBlockN columns is divided among
// teams, each of which has a ring of K and V of its own and waits for nobody else. Loads go on from item to item: while sums
// of one are added up, the ring fills with the next.
//
//   shared memory   bytes                                      lifetime
//   QPart           2 of kBlockM rows of Q; f16 with K of fp8  an item; that of the next is filled
//   RingPart        kTeams * kStages slots: kTeamColumns       a slot: from the load, kStages - 1 steps ahead, to the step
//                   rows of K and of V
//                   the free slot of each team, instead:       an item's end
//                   eight rows of O of each warp, in f32
//
//   barrier                    when                            what it says
//   cp.async, __syncthreads    before an item's first step     Q is there, and the team's K and V; with K of fp8 a
//                                                              second one: Q is there as f16
//   cp.async, the team's       before each other step          its K and V are there; those of the step before are used up
//   the team's                 after the last step             K and V are used up
//   __syncthreads              then, for 8 rows of each warp   O is there
//   __syncthreads              after they are added up         it is used up; results, or a part, are stored
//   __syncthreads              after a part is counted in      who came last, and merges, is known
//
// New rows of K and V (kAppends), those of the tokens of q, are written into K and V by the CTA that has an item's first step,
// while all take them from where they were given: nobody reads what this launch writes.
//
// Grid: any; what is divided has parts for each CTA. Threads: 32 kWarps; kSharedBytes of dynamic shared memory.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/append.cuh"
#include "algo/copy_pages.cuh"
#include "algo/decode_work.cuh"
#include "algo/merge_rows.cuh"
#include "algo/packed_rows.cuh"
#include "algo/scaled_q.cuh"
#include "params_decode_sm80.cuh"
#include "ptx/global_memory.cuh"
#include "ptx/named_barrier.cuh"
#include "ptx/shared_memory.cuh"
#include "tile/copy_tile.cuh"
#include "tile/gemm_e4m3.cuh"
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

using KvElement = typename Choose<kFp8Kv, E4M3, Element>::Type;
using QTile = PaddedTile<Element, kBlockM, kHeadDimQk>;
using KTile = PaddedTile<KvElement, kTeamColumns, kHeadDimQk>;
using VTile = PaddedTile<KvElement, kTeamColumns, kHeadDimV>;
using Scores = Fragment<1, kTeamColumns>;
using Out = Fragment<1, VTile::kColumns>;
using Dealer = DecodeDealer<Mod, kBlockM, kBlockN, kThreads>;
using Work = Dealer::Work;

/// Eight rows of O of each warp of a team, and their states, on their way to be added up.
struct HalfSums {
  static constexpr int kStride = Out::kColumns + 8; // rows begin eight banks apart
  float out[kTeamWarps][8][kStride];
  float state[kTeamWarps][8][4];
};

constexpr bool kIsCached = kPageSize != 0 || kAppends;
using Params = typename ParametersOf<DecodeParams, kIsCached>::Type;

constexpr int kKvBytes = KTile::kBytes + VTile::kBytes;
constexpr int kSlotBytes = kKvBytes > int(sizeof(HalfSums)) ? kKvBytes : int(sizeof(HalfSums));
struct QPart : SharedPart<QPart, 2 * QTile::kBytes> {};
struct RingPart : SharedPart<RingPart, kTeams * kStages * kSlotBytes> {};
using Memory = SharedMemory<QPart, RingPart>;
static_assert(Memory::kBytes == kSharedBytes, "the host asks for another size: src/plan");

/// Rows of K or V of one (batch, KV head): where blocks of them lie. Of pages: where the KV head's pool begins.
struct KvRows {
  const KvElement* first;
  long long stride;
  ATTNC_DEVICE KvRows(const void* tensor, const Strides& strides, const PackedTile& tile, bool in_pages = kPageSize != 0)
      : first((const KvElement*)tensor + (in_pages ? 0 : tile.b) * strides.batch + tile.kv_head * strides.head +
              tile.start.kv() * strides.row),
        stride(strides.row) {}
  /// `start`: a multiple of kTeamColumns.
  ATTNC_DEVICE const KvElement* block(int start) const { return first + start * stride; }
};

/// The tile's rows of Q, zero past their end. Whole CTA; asynchronous as copy_in().
ATTNC_DEVICE void load_q(QTile to, const ForwardParams& p, const PackedTile& tile) {
  constexpr int kPerChunk = 16 / int(sizeof(Element)), kChunks = QTile::kColumns / kPerChunk;
  const auto row_of = [&](int row) {
    const int i = min(row, tile.rows - 1);
    return (const Element*)p.q + tile.b * p.q_stride.batch + tile.head(p, i) * p.q_stride.head +
           tile.row_of_q(p, i) * p.q_stride.row;
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

template <class Q, class K> ATTNC_DEVICE void multiply_k(Scores& s, Q q, K k) {
  if constexpr (kFp8Kv)
    e4m3::multiply_scores(s, q, k);
  else
    mma::gemm(s, q, transposed(k));
}
template <class V> ATTNC_DEVICE void multiply_v(Out& o, const Scores& p, V v) {
  if constexpr (kFp8Kv)
    e4m3::multiply_values(o, p, v);
  else
    mma::gemm(o, p, v);
}

/// A lane's row of O.
template <class O>
ATTNC_DEVICE void store_sums(float* line, const O& o, int r, const DecodeParams& p, const PackedTile& tile) {
  if constexpr (kFp8Kv) {
    e4m3::store_row(line, o, r, p.v_scale.of(tile.b, tile.kv_head));
  } else {
    line += O::first_column();
#pragma unroll
    for (int n = 0; n < O::kGroups; ++n) store2(line + 8 * n, o.at(r, n, 0), o.at(r, n, 1));
  }
}

ATTNC_DEVICE void sync_team(int team) {
  if constexpr (kTeamWarps == 1)
    __syncwarp();
  else
    ptx::named_barrier_sync<kTeamThreads>(1 + team);
}

/// Four columns of a row of the output, not normalised yet.
ATTNC_DEVICE void store(const float (&x)[4], const RowState& state, const ForwardParams& p, const PackedTile& tile, int row,
                        int column) {
  const float factor = state.normalise();
  Element* out = (Element*)p.out + tile.b * p.out_stride.batch + tile.head(p, row) * p.out_stride.head +
                 tile.row_of_q(p, row) * p.out_stride.row + column;
  if (p.vectors) {
    store2(out, x[0] * factor, x[1] * factor);
    store2(out + 2, x[2] * factor, x[3] * factor);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) out[i] = from_float<Element>(x[i] * factor);
  }
  if (column != 0) return;
  if (p.lse) p.lse[tile.row_of_all(p, row)] = state.lse();
  if constexpr (kRowMax)
    if (p.row_max) p.row_max[tile.row_of_all(p, row)] = state.max();
}

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

/// Adds up eight rows of each warp, from row 8 * half of it on, over teams. Stores the results, or this CTA's part. `sums`: the
/// first team's; the next team's lies kStages slots behind. Whole CTA.
ATTNC_DEVICE void finish_rows(const unsigned char* sums, int half, const DecodeParams& p, const Work& work) {
  const auto of_team = [&](int team) -> const HalfSums& { return *(const HalfSums*)(sums + team * kStages * kSlotBytes); };
  for (int i = threadIdx.x; i < kTeamWarps * 8 * kQuads; i += kThreads) {
    const int warp = i / (8 * kQuads), line = i / kQuads % 8, column = i % kQuads * 4;
    const int row = warp * 16 + half * 8 + line;
    if (row >= work.tile.rows) break;
    RowState state = RowState::none();
#pragma unroll
    for (int team = 0; team < kTeams; ++team) state.see(of_team(team).state[warp][line]);
    float out[4] = {};
#pragma unroll
    for (int team = 0; team < kTeams; ++team) {
      const float factor = state.add(of_team(team).state[warp][line]);
#pragma unroll
      for (int j = 0; j < 4; ++j) out[j] += factor * of_team(team).out[warp][line][column + j];
    }
    if (work.share.is_whole()) {
      store(out, state, p.forward, work.tile, row, column);
    } else {
      const Part part(p, blockIdx.x, work.share.own_place());
      ptx::st_global_cg(part.out + row * kHeadDimV + column, out);
      if (column == 0) {
        float x[4];
        state.store(x);
        ptx::st_global_cg(part.state + row * 4, x);
      }
    }
  }
}

/// Two rows of all parts of an item, kWarps apart. Whole warp.
ATTNC_DEVICE void merge_rows(const DecodeParams& p, const Work& work, int row) {
  constexpr int kRows = 2, kQuadsOfLane = (kQuads + 31) / 32, kBatch = 8 / kQuadsOfLane;
  const int lane = threadIdx.x % 32, parts = work.share.parts;
  const auto row_of = [&](int r) { return min(row + r * kWarps, work.tile.rows - 1); };
  const auto part_of = [&](int i) { return Part(p, work.share.first_cta + i, i == 0 ? work.share.place : 0); };
  float x[kRows][4];
  const auto load_states = [&](int i) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) ptx::ld_global_cg(x[r], part_of(min(i, parts - 1)).state + row_of(r) * 4);
  };
  RowState state[kRows] = {RowState::none(), RowState::none()};
#pragma unroll 1
  for (int i = (parts - 1) / 32 * 32; i >= 0; i -= 32) { // the last ones seen are the first ones needed
    load_states(i + lane);
#pragma unroll
    for (int r = 0; r < kRows; ++r) state[r].see(x[r]);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) state[r].see_lanes();

  float out[kRows][kQuadsOfLane][4] = {}, factor[kRows];
#pragma unroll 1
  for (int i = 0; i < parts; i += kBatch) {
    float y[kRows][kBatch][kQuadsOfLane][4];
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        const float* from = part_of(min(i + j, parts - 1)).out + row_of(r) * kHeadDimV;
#pragma unroll
        for (int q = 0; q < kQuadsOfLane; ++q) ptx::ld_global_cg(y[r][j][q], from + min(lane + 32 * q, kQuads - 1) * 4);
      }
    if (i % 32 == 0) {
      if (i > 0) load_states(i + lane);
#pragma unroll
      for (int r = 0; r < kRows; ++r) factor[r] = i + lane < parts ? state[r].add(x[r]) : 0.f;
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        const float f = __shfl_sync(0xffffffffu, factor[r], (i + j) % 32);
#pragma unroll
        for (int q = 0; q < kQuadsOfLane; ++q)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            if (i + j < parts) out[r][q][e] += f * y[r][j][q][e];
      }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) state[r].add_lanes();
#pragma unroll 1
  for (int r = 0; r < kRows && row + r * kWarps < work.tile.rows; ++r) {
#pragma unroll
    for (int q = 0; q < kQuadsOfLane; ++q)
      if (lane + 32 * q < kQuads) store(out[0][q], state[0], p.forward, work.tile, row_of(r), (lane + 32 * q) * 4);
    state[0] = state[1];
#pragma unroll
    for (int q = 0; q < kQuadsOfLane; ++q)
#pragma unroll
      for (int e = 0; e < 4; ++e) out[0][q][e] = out[1][q][e];
  }
}

/// Counts this CTA's part in. The last one of an item merges its parts, and leaves the counter 0. Whole CTA, all threads of
/// which are known to have stored the part.
ATTNC_DEVICE void merge_parts(const DecodeParams& p, const Work& work, int* is_last) {
  if (threadIdx.x == 0) {
    __threadfence(); // of what the whole CTA has stored
    *is_last = atomicAdd(p.arrived + work.share.item, 1) == work.share.parts - 1;
    if (*is_last) p.arrived[work.share.item] = 0;
    __threadfence();
  }
  __syncthreads();
  if (!*is_last) return;
#pragma unroll 1
  for (int row = threadIdx.x / 32; row < work.tile.rows; row += 2 * kWarps) merge_rows(p, work, row);
}

/// Fetches items, and loads their steps, of one item and of the next, into this team's ring. A thread's groups of
/// asynchronous copies are steps, one by one.
struct Loader {
  unsigned q, ring, thread; ///< addresses of QPart and of the team's first slot; number within the team
  int column;               ///< the team's first column of a step
  Dealer dealer;
  Work next;
  bool has_next = false;
  int issued = 0; ///< steps of the item at hand and, behind them, of the next one
  int slot = 0;   ///< to be filled
  int parity = 0; ///< of the item at hand: which Q is its

  ATTNC_DEVICE bool fetch(const ForwardParams& p, const ModArgs& args) { return has_next = dealer.next(p, args, next); }

  /// The next step, if it is of these two items. Behind the last item's: empty ones, so that groups can be counted.
  ATTNC_DEVICE void advance(const Params& p, const Work& work) {
    const bool is_next = issued >= work.walk.count;
    if (!is_next || has_next) {
      const int i = is_next ? issued - work.walk.count : issued;
      if (is_next && i >= next.walk.count) return;
      Work of = work; // copied: a reference to one of two would put both into local memory
      if (is_next) of = next;
      load(p, of, i, parity ^ int(is_next));
    }
    ptx::cp_async_commit_group();
    ++issued;
    slot = slot + 1 == kStages ? 0 : slot + 1;
  }

  /// Waits for step i of the item at hand; for this thread's copies.
  ATTNC_DEVICE void wait(int i) const {
    if (issued - i == kStages - 1)
      ptx::cp_async_wait_group<kStages - 2>();
    else
      ptx::cp_async_wait_group<0>();
  }

private:
  ATTNC_DEVICE void load(const Params& decode, const Work& work, int i, int q_parity) {
    const ForwardParams& p = decode.forward;
    if (i == 0) load_q(QTile{q + q_parity * QTile::kBytes}, p, work.tile);
    const KvRows k(p.k, p.k_stride, work.tile), v(p.v, p.v_stride, work.tile);
    const int start = work.walk.start_of(i) + column, rows = work.walk.length - start;
    const unsigned to = ring + slot * kSlotBytes;
    const KTile k_tile = {to};
    const VTile v_tile = {to + KTile::kBytes};
    if constexpr (kIsCached) {
      PageBlock<kPageSize, kTeamColumns> pages;
      pages.look_up(pages_of(decode, work.tile.b), start, work.walk.length);
      const int first = first_new(p, work.walk.length);
      const auto load_rows = [&](auto to, const KvRows& rows, const Strides& strides, const void* fresh,
                                 const Strides& new_strides) {
        if (kAppends && start + kTeamColumns > first)
          copy_in<kTeamThreads>(to, pages, rows.first, strides,
                                KvRows(fresh, new_strides, work.tile, false).first, new_strides.row,
                                first, work.walk.length, p.vectors, thread);
        else
          copy_in<kTeamThreads>(to, pages, rows.first, strides, work.walk.length, p.vectors, thread);
      };
      const CacheParams& cache = cache_of(decode);
      load_rows(k_tile, k, p.k_stride, cache.new_k, cache.new_k_stride);
      load_rows(v_tile, v, p.v_stride, cache.new_v, cache.new_v_stride);
    } else {
      copy_in<kTeamThreads>(k_tile, k.block(start), k.stride, 0, rows, p.vectors, thread);
      copy_in<kTeamThreads>(v_tile, v.block(start), v.stride, 0, rows, p.vectors, thread);
    }
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attnc_decode(const __grid_constant__ Params decode, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  __shared__ int words[kWarps + 2];
  __shared__ float q_factors[kFp8Kv ? kBlockM : 1];
  const ForwardParams& p = decode.forward;
  const unsigned shared = ptx::shared_address(dynamic_shared);
  const int warp = threadIdx.x / 32, team = warp / kTeamWarps, warp_row = warp % kTeamWarps * 16;
  const unsigned ring_offset = Memory::offset_of<RingPart>();
  const unsigned ring = shared + ring_offset + team * kStages * kSlotBytes;

  Loader loader = {shared + unsigned(Memory::offset_of<QPart>()), ring, threadIdx.x % kTeamThreads, team * kTeamColumns,
                   Dealer(p, args, decode.part_out != nullptr, words)};
  int slot = 0; // of the step that is worked on
#pragma unroll 1
  for (int turn = 0;; ++turn) { // the first one fetches an item alone
    const Work work = loader.next;
    if (turn > 0 && !loader.has_next) break;
    loader.fetch(p, args);
    if (turn == 0) continue;
    if constexpr (kAppends) // the walk begins with the last columns
      if (work.share.begin == 0 && work.tile.first == 0)
        append_rows<kThreads>(p, cache_of(decode), pages_of(decode, work.tile.b), work.walk.length, work.tile.b,
                              work.tile.kv_head, 0, p.q_len);

    const QTile q_tile = {loader.q + loader.parity * QTile::kBytes};
    float scale[2] = {p.scale, p.scale};
    PackedPlace<Mod> place(p, args, work.tile, warp_row + Scores::row(0), scale);
    Out o;
    o.fill(0.f);
    SoftmaxRow<kRowMax> row[2];
#pragma unroll 1
    for (int i = loader.issued - (kStages - 1); i < work.walk.count; ++i) { // below 0: steps that are not under way yet
      if (i >= 0) loader.wait(i);
      if (i == 0)
        __syncthreads();
      else if (i > 0)
        sync_team(team);
      loader.advance(decode, work);
      if (i < 0) continue;
      if constexpr (kFp8Kv)
        if (i == 0) {
          scale_q<kThreads>(q_tile, q_factors);
          __syncthreads();
          const float k_scale = decode.k_scale.of(work.tile.b, work.tile.kv_head);
#pragma unroll
          for (int r = 0; r < 2; ++r) scale[r] *= k_scale * q_factors[warp_row + Scores::row(r)];
          place = PackedPlace<Mod>(p, args, work.tile, warp_row + Scores::row(0), scale);
        }
      const unsigned tiles = ring + slot * kSlotBytes;
      slot = slot + 1 == kStages ? 0 : slot + 1;
      Scores s;
      s.fill(0.f);
      multiply_k(s, q_tile.template rows<16>(warp_row), KTile{tiles}); // S = Q K^T

      const int start = work.walk.start_of(i);
      const Step step = {start + loader.column, work.walk.flags_of(i, start)};
      const float bias[2] = {row[0].bias, row[1].bias};
      float rescale[2];
      apply_mod(s, p, args, place, step, bias);
      if (follow_maxima(s, row, rescale, step.flags & kStepFew)) o.scale_rows(rescale);
      WeightSums<2> weights(row);
      to_weights<0, Scores::kGroups>(s, weights);
      weights.store(row);
      multiply_v(o, s, VTile{tiles + KTile::kBytes}); // O += P V
    }
    sync_team(team);

    const unsigned sums = ring_offset + loader.slot * kSlotBytes; // no load is under way to this slot
    RowState state[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      row[r].finish();
      state[r] = attnc::state_of(row[r], place.shift(args, r));
    }
#pragma unroll 1
    for (int half = 0; half < 2 && 8 * half < work.tile.rows; ++half) {
      HalfSums& own = *(HalfSums*)(dynamic_shared + sums + team * kStages * kSlotBytes);
      const int line = threadIdx.x % 32 / 4;
      if (threadIdx.x % 4 == 0) state[0].store(own.state[warp % kTeamWarps][line]);
      store_sums(own.out[warp % kTeamWarps][line], o, 0, decode, work.tile);
      __syncthreads();
      finish_rows(dynamic_shared + sums, half, decode, work);
      __syncthreads();
      state[0] = state[1];
#pragma unroll
      for (int n = 0; n < Out::kGroups; ++n) o.at(0, n, 0) = o.at(1, n, 0), o.at(0, n, 1) = o.at(1, n, 1);
    }
    if (!work.share.is_whole()) merge_parts(decode, work, words);
    loader.issued -= work.walk.count;
    loader.parity ^= 1;
  }
  ptx::cp_async_wait_group<0>();
}

} // namespace attnc::decode
