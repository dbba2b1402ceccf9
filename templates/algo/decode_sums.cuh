// Adds up the partial sums of an item in a decode kernel: those of a CTA's teams through shared memory, and those of
// CTAs through global memory, where the last CTA to store its part merges all.
#pragma once

#include "attnc_config.cuh"

#include "algo/decode_parts.cuh"
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

/// Stores a lane's row of O, with fp8 V times `factor`.
template <class O> ATTNC_DEVICE void store_sums(float* line, const O& o, int r, float factor) {
  if constexpr (kFp8Kv) {
    e4m3::store_row(line, o, r, factor);
  } else {
    line += O::first_column();
#pragma unroll
    for (int n = 0; n < O::kGroups; ++n) store2(line + 8 * n, o.at(r, n, 0), o.at(r, n, 1));
  }
}

/// Adds up eight rows of each warp, from its row 8 * half on, over all teams. Stores the results, or this CTA's part.
/// `sums`: the first team's; each team's lies `stride` bytes behind the one before. Called by the whole CTA.
ATTNC_DEVICE void finish_rows(const unsigned char* sums, int stride, int half, const DecodeParams& p,
                              const ModArgs& args, const Work& work) {
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
      store(out, state, p.forward, args, work.tile, row, column);
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

/// Counts this CTA's part in. The last CTA of an item merges the parts, and resets the counter to 0. Called by the
/// whole CTA, after a barrier behind the stores of the part.
ATTNC_DEVICE void merge_parts(const DecodeParams& p, const ModArgs& args, const Work& work, int* is_last) {
  if (threadIdx.x == 0) {
    *is_last = ptx::atom_add_acq_rel(p.arrived + work.share.item, 1) == work.share.parts - 1;
    if (*is_last) p.arrived[work.share.item] = 0;
  }
  __syncthreads();
  if (!*is_last) return;
#pragma unroll 1
  for (int row = threadIdx.x / 32; row < work.tile.rows; row += 2 * kWarps)
    merge_rows<2, kWarps, kQuads>(p, args, work.share, work.tile, row, 0);
}

} // namespace attnc::decode
