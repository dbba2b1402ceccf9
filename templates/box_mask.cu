// Builds BlockLists over boxes of tokens on grids from a mask_mod: which boxes of keys are empty, partial, full for a
// box of queries.
//
// Like block_mask.cu, except for the blocks. The shapes of boxes are launch parameters, so that one kernel serves all
// tiles. A CTA owns one row of blocks. Boxes of keys outside of what the mod says the row's queries see (Mod::box) are
// skipped. Tokens of a box past the end of its grid do not count, but a block with one of them is never full.
//
//   shared memory   bytes   lifetime
//   places          6 KiB   coordinates of the row's queries, and of keys within their box: whole kernel
//   seen            24      what some query of the row sees: whole kernel
//
//   barrier                  when                  what it guarantees
//   __syncthreads            before the first box  both are ready
//   __syncthreads_or, twice  after each box        votes: does any element live, is any masked
//
// Grid: boxes of queries * heads * batch, in one dimension. Threads: 32 kWarps. All tokens lie on the grids.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/grid_box.cuh"
#include "params.cuh"

namespace attnc::box_mask {

constexpr int kThreads = 32 * kWarps;
constexpr int kMostTokens = 256; // of a box

struct Places {
  int of_query[kMostTokens][3], of_key[kMostTokens][3];
  GridRange seen;
};

ATTNC_DEVICE int tokens_of(const int (&box)[3]) { return box[0] * box[1] * box[2]; }

/// Writes the coordinates of token i of a box at `origin`.
ATTNC_DEVICE void place_token(int i, const int (&box)[3], const int (&origin)[3], int (&x)[3]) {
#pragma unroll
  for (int axis = 2; axis >= 0; --axis) {
    x[axis] = origin[axis] + i % box[axis];
    i /= box[axis];
  }
}

/// Writes the origin of box i of a lattice.
ATTNC_DEVICE void place_box(int i, const int (&box)[3], const int (&extent)[3], int (&origin)[3]) {
#pragma unroll
  for (int axis = 2; axis >= 0; --axis) {
    const int along = (extent[axis] + box[axis] - 1) / box[axis];
    origin[axis] = i % along * box[axis];
    i /= along;
  }
}

ATTNC_DEVICE bool is_inside(const int (&x)[3], const int (&extent)[3]) {
  return x[0] < extent[0] && x[1] < extent[1] && x[2] < extent[2];
}

/// Fills the places. Called by all threads together.
ATTNC_DEVICE void look(Places& places, const BoxMaskParams& p, const ModArgs& args, const Mod::Head& head, int b, int h,
                       const int (&origin)[3]) {
  if (threadIdx.x < 3) places.seen.begin[threadIdx.x] = kMaxExtent, places.seen.end[threadIdx.x] = 0;
  __syncthreads();
  const int nowhere[3] = {0, 0, 0};
  for (int i = threadIdx.x; i < tokens_of(p.kv_box); i += kThreads) place_token(i, p.kv_box, nowhere, places.of_key[i]);
  for (int i = threadIdx.x; i < tokens_of(p.q_box); i += kThreads) {
    int(&x)[3] = places.of_query[i];
    place_token(i, p.q_box, origin, x);
    if (!is_inside(x, p.q_extent)) continue;
    const GridRange keys = keys_of(args, head, b, h, token_at(x, p.q_extent, 0), p.kv_extent);
    if (keys.is_empty()) continue;
    for (int axis = 0; axis < 3; ++axis) {
      atomicMin(&places.seen.begin[axis], keys.begin[axis]);
      atomicMax(&places.seen.end[axis], keys.end[axis]);
    }
  }
  __syncthreads();
}

/// Evaluates one block with all threads. Returns bit 0: some element lives; bit 1: some element is masked.
ATTNC_DEVICE int classify(const Places& places, const BoxMaskParams& p, const ModArgs& args, const Mod::Head& head,
                          int b, int h, const int (&origin)[3]) {
  const int queries = tokens_of(p.q_box), keys = tokens_of(p.kv_box);
  int seen = 0;
  // A lane takes columns, a warp rows.
  for (int j = threadIdx.x % 32; j < keys; j += 32) {
    const int x[3] = {origin[0] + places.of_key[j][0], origin[1] + places.of_key[j][1],
                      origin[2] + places.of_key[j][2]};
    if (!is_inside(x, p.kv_extent)) {
      seen |= 2;
      continue;
    }
    const Token kv = token_at(x, p.kv_extent, 0);
    const Mod::Col col = Mod::col(args, head, b, h, kv, float(kv.index), 0.f); // SEAM(col)
    for (int i = threadIdx.x / 32; i < queries && seen != 3; i += kWarps) {
      if (!is_inside(places.of_query[i], p.q_extent)) {
        seen |= 2;
        continue;
      }
      const Token q = token_at(places.of_query[i], p.q_extent, 0);
      const Mod::Row row = Mod::row(args, head, b, h, q, float(q.index));         // SEAM(row)
      seen |= Mod::mask(args, head, row, col, {b, h, q.index, kv.index}) ? 1 : 2; // SEAM(mask)
    }
  }
  return (__syncthreads_or(seen & 1) ? 1 : 0) | (__syncthreads_or(seen & 2) ? 2 : 0);
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attnc_box_mask(const __grid_constant__ BoxMaskParams p, const __grid_constant__ ModArgs args) {
  __shared__ Places places;
  int q_boxes = 1, along[3];
  for (int axis = 0; axis < 3; ++axis) {
    q_boxes *= (p.q_extent[axis] + p.q_box[axis] - 1) / p.q_box[axis];
    along[axis] = (p.kv_extent[axis] + p.kv_box[axis] - 1) / p.kv_box[axis];
  }
  const int h = blockIdx.x / q_boxes % p.heads, b = blockIdx.x / q_boxes / p.heads;
  const Mod::Head head = Mod::head(args, b, h); // SEAM(head)
  int origin[3];
  place_box(int(blockIdx.x % q_boxes), p.q_box, p.q_extent, origin);
  look(places, p, args, head, b, h, origin);

  const long long first = (long long)blockIdx.x * along[0] * along[1] * along[2]; // of the row's indices
  int begin[3], end[3]; // boxes along each axis of which some query sees a part
  for (int axis = 0; axis < 3; ++axis) {
    begin[axis] = places.seen.begin[axis] / p.kv_box[axis];
    end[axis] = (places.seen.end[axis] + p.kv_box[axis] - 1) / p.kv_box[axis];
  }
  int partial_count = 0, full_count = 0, at[3];
  for (at[0] = begin[0]; at[0] < end[0]; ++at[0])
    for (at[1] = begin[1]; at[1] < end[1]; ++at[1])
      for (at[2] = begin[2]; at[2] < end[2]; ++at[2]) {
        const int keys[3] = {at[0] * p.kv_box[0], at[1] * p.kv_box[1], at[2] * p.kv_box[2]};
        const int seen = classify(places, p, args, head, b, h, keys);
        const int box = (at[0] * along[1] + at[1]) * along[2] + at[2];
        if (threadIdx.x == 0 && seen == 1) p.full_index[first + full_count] = box;
        if (threadIdx.x == 0 && seen == 3) p.partial_index[first + partial_count] = box;
        full_count += seen == 1;
        partial_count += seen == 3;
      }
  if (threadIdx.x == 0) {
    p.partial_count[blockIdx.x] = partial_count;
    p.full_count[blockIdx.x] = full_count;
  }
}

} // namespace attnc::box_mask
