// Adds up the partial sums of an item in a decode kernel: those of a CTA's teams through shared memory, and those of
// CTAs through global memory, where the last CTA to store its part merges all.
#pragma once

#include "attnc_config.cuh"

#include "algo/decode_work.cuh"
#include "algo/merge_rows.cuh"
#include "params_decode.cuh"
#include "ptx/global_memory.cuh"
#include "tile/gemm_e4m3.cuh"

namespace attnc::decode {

constexpr int kThreads = 32 * kWarps;
constexpr int kTeamWarps = kBlockM / 16;
constexpr int kTeams = kWarps / kTeamWarps;
constexpr int kTeamThreads = 32 * kTeamWarps;
constexpr int kTeamColumns = kBlockN / kTeams;
static_assert(kTeams * kTeamWarps == kWarps && kTeamColumns % 16 == 0 && kTeams * kTeamColumns == kBlockN,
              "teams share rows and columns evenly");
static_assert(kStages >= 2, "a slot is filled while another is worked on");

using Out = Fragment<1, computed_columns(kHeadDimV)>;
using Dealer = DecodeDealer<Mod, kBlockM, kBlockN, kThreads>;
using Work = Dealer::Work;

/// Eight rows of O of each warp of a team, with their states, about to be added up.
struct HalfSums {
  static constexpr int kStride = Out::kColumns + 8; // rows begin eight banks apart
  float out[kTeamWarps][8][kStride];
  float state[kTeamWarps][8][4];
};

/// Stores a lane's row of O.
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

/// Normalises and stores four columns of an output row; column 0 also stores lse and row maximum.
ATTNC_DEVICE void store(const float (&x)[4], const RowState& state, const PackedParams& p, const PackedTile& tile,
                        int row, int column) {
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

/// Addresses of a part: its rows of O and their states.
struct Part {
  float *out, *state;
  ATTNC_DEVICE Part(const DecodeParams& p, int cta, int place) {
    const long long row = (2ll * cta + place) * p.part_rows;
    out = p.part_out + row * kHeadDimV;
    state = p.part_state + row * 4;
  }
};

constexpr int kQuads = kHeadDimV / 4; // groups of four columns

/// Adds up eight rows of each warp, from its row 8 * half on, over all teams. Stores the results, or this CTA's part.
/// `sums`: the first team's; each team's lies `stride` bytes behind the one before. Called by the whole CTA.
ATTNC_DEVICE void finish_rows(const unsigned char* sums, int stride, int half, const DecodeParams& p,
                              const Work& work) {
  const auto of_team = [&](int team) -> const HalfSums& { return *(const HalfSums*)(sums + team * stride); };
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

/// Merges two rows, kWarps apart, of all parts of an item. Called by a whole warp.
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
  for (int i = (parts - 1) / 32 * 32; i >= 0; i -= 32) { // descending: the states loaded last are the ones used first
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

/// Counts this CTA's part in. The last CTA of an item merges the parts, and resets the counter to 0. Called by the
/// whole CTA, after a barrier behind the stores of the part.
ATTNC_DEVICE void merge_parts(const DecodeParams& p, const Work& work, int* is_last) {
  if (threadIdx.x == 0) {
    *is_last = ptx::atom_add_acq_rel(p.arrived + work.share.item, 1) == work.share.parts - 1;
    if (*is_last) p.arrived[work.share.item] = 0;
  }
  __syncthreads();
  if (!*is_last) return;
#pragma unroll 1
  for (int row = threadIdx.x / 32; row < work.tile.rows; row += 2 * kWarps) merge_rows(p, work, row);
}

} // namespace attnc::decode
