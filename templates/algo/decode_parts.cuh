// Parts of items in device memory, and how they are merged. A part has O, not normalised, and the states of its rows.
#pragma once

#include "attnc_config.cuh"

#include "algo/decode_work.cuh"
#include "algo/merge_rows.cuh"
#include "algo/prob_mod.cuh"
#include "algo/sink.cuh"
#include "params_decode.cuh"
#include "ptx/global_memory.cuh"

namespace attnc::decode {

constexpr bool kIsCached = kPageSize != 0 || kAppends;

/// Finishes a lane's row of a part. Returns its state. Parts of a weight_mod are added up as they are.
template <class Place>
ATTNC_DEVICE RowState finish(Softmax<2>& softmax, int r, const Place& place, const ModArgs& args) {
  if constexpr (kIsWeight<Mod>) return {0.f, 1.f};
  softmax.finish(r);
  return state_of(softmax, r, place.form(r).weight_factor(), place.row_shift(args, r));
}

/// Returns what a complete row is divided by, for mods with a sink.
ATTNC_DEVICE Denominator with_sink(const RowState& state, const PackedParams& p, const ModArgs& args,
                                   const PackedTile& tile, int row) {
  const int h = tile.head(p, row), position = q_offset_of<Mod>(args, tile.b, h) + tile.token(p, row);
  return Denominator::with_sink(state.sum, state.reference, sink_of<Mod>(args, tile.b, h, position));
}

/// Returns the factor of O of a complete row.
ATTNC_DEVICE float normalise(const RowState& state, const PackedParams& p, const ModArgs& args, const PackedTile& tile,
                             int row) {
  if constexpr (kIsWeight<Mod>) return 1.f;
  return kHasSink<Mod> ? with_sink(state, p, args, tile, row).normalise : state.normalise();
}

/// Stores lse and row maximum.
ATTNC_DEVICE void store_state(const RowState& state, const PackedParams& p, const ModArgs& args, const PackedTile& tile,
                              int row) {
  if (p.lse)
    p.lse[tile.row_of_all(p, row)] = kIsWeight<Mod>  ? 0.f
                                     : kHasSink<Mod> ? with_sink(state, p, args, tile, row).lse
                                                     : state.lse();
  if constexpr (kRowMax)
    if (p.row_max) p.row_max[tile.row_of_all(p, row)] = state.max();
}

/// Normalises and stores four columns of an output row; column 0 also stores lse and row maximum.
ATTNC_DEVICE void store(const float (&x)[4], const RowState& state, const PackedParams& p, const ModArgs& args,
                        const PackedTile& tile, int row, int column) {
  const float factor = normalise(state, p, args, tile, row);
  Element* out = (Element*)p.out + tile.b * p.out_stride.batch + tile.head(p, row) * p.out_stride.head +
                 tile.row_of_q(p, row) * p.out_stride.row + column;
  if (p.vectors) {
    store2(out, x[0] * factor, x[1] * factor);
    store2(out + 2, x[2] * factor, x[3] * factor);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) out[i] = from_float<Element>(x[i] * factor);
  }
  if (column == 0) store_state(state, p, args, tile, row);
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

/// The item that a CTA begins and others complete, for decode_merge.cu. Only a CTA's last item can be one.
struct SharedItem {
  int item, parts; ///< parts: 0 if others complete none
  int place;       ///< of the CTA's part
  ATTNC_DEVICE static SharedItem of_last(const ItemShare& share) {
    const bool begins = share.parts > 1 && share.first_cta == int(blockIdx.x);
    return {share.item, begins ? share.parts : 0, share.place};
  }
  ATTNC_DEVICE static SharedItem& of(const DecodeParams& p, int cta) { return ((SharedItem*)p.arrived)[cta]; }
};

constexpr int kQuads = kHeadDimV / 4; // groups of four columns

/// Merges `Rows` rows, `Distance` apart, of all parts of an item: `Quads` groups of four columns from `first_quad` on,
/// as far as they exist. Called by a whole warp.
template <int Rows, int Distance, int Quads>
ATTNC_DEVICE void merge_rows(const DecodeParams& p, const ModArgs& args, const ItemShare& share, const PackedTile& tile,
                             int row, int first_quad) {
  constexpr int kQuadsOfLane = (Quads + 31) / 32, kBatch = 8 / kQuadsOfLane;
  const int lane = threadIdx.x % 32, parts = share.parts;
  const auto row_of = [&](int r) { return min(row + r * Distance, tile.rows - 1); };
  const auto part_of = [&](int i) { return Part(p, share.first_cta + i, i == 0 ? share.place : 0); };
  float x[Rows][4];
  const auto load_states = [&](int i) {
#pragma unroll
    for (int r = 0; r < Rows; ++r) ptx::ld_global_cg(x[r], part_of(min(i, parts - 1)).state + row_of(r) * 4);
  };
  RowState state[Rows];
#pragma unroll
  for (int r = 0; r < Rows; ++r) state[r] = RowState::none();
#pragma unroll 1
  for (int i = (parts - 1) / 32 * 32; i >= 0; i -= 32) { // descending: the states loaded last are the ones used first
    load_states(i + lane);
#pragma unroll
    for (int r = 0; r < Rows; ++r) state[r].see(x[r]);
  }
#pragma unroll
  for (int r = 0; r < Rows; ++r) state[r].see_lanes();

  float out[Rows][kQuadsOfLane][4] = {}, factor[Rows];
#pragma unroll 1
  for (int i = 0; i < parts; i += kBatch) {
    float y[Rows][kBatch][kQuadsOfLane][4];
#pragma unroll
    for (int r = 0; r < Rows; ++r)
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        const float* from = part_of(min(i + j, parts - 1)).out + row_of(r) * kHeadDimV;
#pragma unroll
        for (int q = 0; q < kQuadsOfLane; ++q)
          ptx::ld_global_cg(y[r][j][q], from + min(first_quad + lane + 32 * q, kQuads - 1) * 4);
      }
    if (i % 32 == 0) {
      if (i > 0) load_states(i + lane);
#pragma unroll
      for (int r = 0; r < Rows; ++r) factor[r] = i + lane < parts ? state[r].add(x[r]) : 0.f;
    }
#pragma unroll
    for (int r = 0; r < Rows; ++r)
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
  for (int r = 0; r < Rows; ++r) state[r].add_lanes();
#pragma unroll 1
  for (int r = 0; r < Rows && row + r * Distance < tile.rows; ++r) {
#pragma unroll
    for (int q = 0; q < kQuadsOfLane; ++q)
      if (const int quad = first_quad + lane + 32 * q; quad < kQuads)
        store(out[0][q], state[0], p.forward, args, tile, row_of(r), quad * 4);
    state[0] = state[Rows - 1];
#pragma unroll
    for (int q = 0; q < kQuadsOfLane; ++q)
#pragma unroll
      for (int e = 0; e < 4; ++e) out[0][q][e] = out[Rows - 1][q][e];
  }
}

} // namespace attnc::decode
