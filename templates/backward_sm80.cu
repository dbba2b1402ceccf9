// Backward attention with mma.sync and cp.async, for sm_80 and later: dK and dV, and sums of dQ. 16-bit elements.
//
//   P = exp(mod(scale Q K^T) - lse),  G = P (dO V^T - delta),  dS = scale mod'(scale Q K^T) G
//   dV = P^T dO,  dK = dS^T Q,  dQ = dS K
//
// After FlashAttention-2's backward pass (Dao, arXiv:2307.08691). A CTA owns kBlockN rows of K and V, which stay in
// shared memory. It walks Q in steps of kBlockM rows, for all query heads of its KV head (and for all batches if K and
// V are broadcast), so dK and dV are summed in registers. dQ is added to fp32 sums in global memory: equal launches may
// differ in its last bits. Each product is computed once; all warps have the same role.
//
// algo/backward_step_mma.cuh has the products of a step and their tiles in shared memory. In addition:
//
//   shared memory   bytes                                     lifetime
//   WalkPart        the steps of a head                       all steps of this head
//   Rows            2 slots of kSplit RowTables               as a slot of Q
//
//   barrier                    when                       what it guarantees
//   cp.async, __syncthreads    begin of a step            its tiles and tables are ready; the step before has released
//                                                         the other slot, SPart and PPart
//   __syncthreads              within a step              SPart and PPart are written
//   __syncthreads, twice       between heads              the old walk is free; the new one is ready
//   __syncthreads              after the last step        K and V are free; then: dK and dV are written
//
// The host provides: d_q_sums zeroed; grid kv tiles * kv_heads * kv_batch, in one dimension; 32 kWarps threads;
// kSharedBytes of dynamic shared memory. Runs after backward_delta.cu and before backward_finish_sm80.cu.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/backward_step_mma.cuh"
#include "algo/q_walk.cuh"
#include "params_backward_sm80.cuh"
#include "tile/copy_tile.cuh"

namespace attnc::sm80 {

/// Returns the parameters of batch entry b only; see params_of().
template <class M> ATTNC_DEVICE decltype(auto) sm80_params_of(const BackwardParamsSm80& p, const ModArgs& args, int b) {
  if constexpr (kHasLengths<M>)
    return BackwardParamsSm80{params_of<M>(p.base, args, b), p.d_q_sums};
  else
    return (p);
}

/// Which rows of K and V a CTA owns.
struct KvTilePlace {
  int b, head, start;

  // NOTE: constructed again at each use, because registers are scarce in between.
  ATTNC_DEVICE KvTilePlace(const ForwardParams& f, const ModArgs& args) {
    const HeadTile tile = kv_tile_at<Mod, kBlockN>(f, args, ptx::opaque(blockIdx.x));
    b = tile.b, head = tile.h, start = tile.start;
  }
};

/// A query head that shares the KV head, and its steps.
struct HeadWalk {
  QWalk<Mod, kBlockM, kBlockSparse> steps;
  int b, h;
};

struct Kernel : KvGradients<BackwardParamsSm80, KvPlace<Mod, kGroups>, RowTable<Mod, kStepRows>, HeadWalk, 64> {
  int kv_start;
  const ForwardParams& launch;

  ATTNC_DEVICE HeadWalk walk_of(int i) const {
    const ForwardParams& f = p.base.forward;
    const KvTilePlace tile(with_padding<Mod>(launch, f), args);
    const int b = tile.b + i / f.group, h = tile.head * f.group + i % f.group;
    return {walk_q<Mod, kBlockM, kBlockSparse>(p.base, args, b, h, kv_start, min(kv_start + kBlockN, f.kv_len)), b, h};
  }

  ATTNC_DEVICE void add_d_q(const Place& place, int start, mma::DqSums sums, const mma::DqSums::Part& d_q) const {
    const ForwardParams& f = p.base.forward;
    if constexpr (kIsRagged<Mod>) {
      sums.add(p.d_q_sums, head_tile_of<Mod, kBlockM>(f, args, place.b, place.h, start), d_q);
    } else {
      const int q_tiles = (f.q_len + kBlockM - 1) / kBlockM;
      sums.add(p.d_q_sums, (long long)(place.b * f.q_heads + place.h) * q_tiles + start / kBlockM, d_q);
    }
  }

  /// Sums over the rows of Q of all heads that share the KV head. While a step is computed, the tiles and tables of the
  /// next one are filled.
  ATTNC_DEVICE void run() {
    const ForwardParams& f = p.base.forward;
    const int heads = batches_of_kv<Mod>(p.base, kv_start) * f.group;
    const bool tail = kv_start + kBlockN > f.kv_len;
    Place place;
    Step step = {0, 0};
    bool has_step = false;
    int slot = 0; // of `step`
                  // One more round, without a head, computes the last step.
#pragma unroll 1
    for (int i = 0; i <= heads; ++i) {
      if (i < heads) {
        if (i > 0) __syncthreads();
        if (threadIdx.x < 32) {
          const HeadWalk own = walk_of(i);
          if (threadIdx.x == 0) walk() = own;
        }
        __syncthreads();
      }
#pragma unroll 1
      for (int j = 0; i == heads ? j < 1 : j < walk().steps.count; ++j) {
        ptx::cp_async_wait_group<0>();
        __syncthreads();
        float lse = 0.f, delta = 0.f;
        if (i < heads) request(slot ^ 1, j, lse, delta);
        if (has_step) {
          mma::DqSums::Part d_q;
          add_step(place, step, slot, tail || step.flags & kStepHasDead, d_q);
          add_d_q(place, step.start, {warp}, d_q);
        }
        if (i == heads) break;
        // NOTE: read again, because registers are scarce while a step is computed.
        step = walk().steps.at(j);
        slot ^= 1;
        fill_table(slot, step, lse, delta);
        if (j == 0) place = Place(f, args, walk().b, walk().h, kv_start, warp_row + Scores::row(0));
        // A listed block may reach past the end by whole steps, or be none.
        has_step = !kBlockSparse || unsigned(step.start) < unsigned(f.q_len);
      }
    }
    __syncthreads();
  }

  /// Issues the copies of a step's tiles, and loads the inputs of this thread's table row.
  ATTNC_DEVICE void request(int slot, int j, float& lse, float& delta) const {
    const ForwardParams& f = p.base.forward;
    const HeadWalk& at = walk();
    const int start = at.steps.start_of(j);
    const Strides &q_stride = f.q_stride, &o_stride = p.base.d_out_stride;
    copy_in<kThreads>(q_tile(slot), (const Element*)f.q + at.b * q_stride.batch + at.h * q_stride.head, q_stride.row,
                      start, f.q_len, f.vectors);
    copy_in<kThreads>(o_tile(slot), (const Element*)p.base.d_out + at.b * o_stride.batch + at.h * o_stride.head,
                      o_stride.row, start, f.q_len, f.vectors);
    ptx::cp_async_commit_group();
    if (threadIdx.x >= kBlockM) return;
    const long long index = row_of_all(f, at.b, at.h, min(start + int(threadIdx.x), f.q_len - 1));
    lse = f.lse[index];
    delta = p.base.delta[index];
  }

  ATTNC_DEVICE void fill_table(int slot, Step step, float lse, float delta) const {
    const int row = threadIdx.x;
    if (row >= kBlockM) return;
    const int b = walk().b, h = walk().h;
    const Mod::Head head = Mod::head(args, b, h); // SEAM(head)
    const int first = row / kStepRows * kStepRows, origin = Mod::kAnyOrigin ? kv_start : 0;
    table(slot, row / kStepRows)
        .fill(p.base.forward, args, head, b, h, {step.start + first, step.flags}, row - first, origin, lse, delta);
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attnc_backward(const __grid_constant__ BackwardParamsSm80 launch, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  const KvTilePlace tile(launch.base.forward, args);
  const BackwardParamsSm80& p = sm80_params_of<Mod>(launch, args, tile.b);
  const ForwardParams& f = p.base.forward;
  if (!has_rows<Mod>(tile.start, f.kv_len)) return;
  Kernel gradients = {{p, args, ptx::shared_address(dynamic_shared)}, tile.start, launch.base.forward};
  const KTile k_tile = gradients.k_tile();
  const VTile v_tile = gradients.v_tile();
  const Element* k = (const Element*)f.k + tile.b * f.k_stride.batch + tile.head * f.k_stride.head;
  const Element* v = (const Element*)f.v + tile.b * f.v_stride.batch + tile.head * f.v_stride.head;
  copy_in<kThreads>(k_tile, k, f.k_stride.row, tile.start, f.kv_len, f.vectors);
  copy_in<kThreads>(v_tile, v, f.v_stride.row, tile.start, f.kv_len, f.vectors);
  ptx::cp_async_commit_group();
  gradients.d_k.fill(0.f);
  gradients.d_v.fill(0.f);
  gradients.run();

  gradients.write_sums(k_tile, v_tile);
  __syncthreads();
  constexpr int kRows = kBlockN / kWarps;
  const ForwardParams& all = with_padding<Mod>(launch.base.forward, f);
  const KvTilePlace to(all, args);
  const int first = gradients.warp * kRows, row = to.start + first;
  const Strides &k_stride = p.base.d_k_stride, &v_stride = p.base.d_v_stride;
  Element* d_k = (Element*)p.base.d_k + to.b * k_stride.batch + to.head * k_stride.head;
  Element* d_v = (Element*)p.base.d_v + to.b * v_stride.batch + to.head * v_stride.head;
  copy_out(k_tile.rows<kRows>(first), d_k, k_stride.row, row, all.kv_len, f.vectors);
  copy_out(v_tile.rows<kRows>(first), d_v, v_stride.row, row, all.kv_len, f.vectors);
}

} // namespace attnc::sm80
