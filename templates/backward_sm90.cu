// Backward attention with wgmma and TMA, for sm_90a: dK and dV, and sums of dQ.
//
//   P = exp(mod(scale Q K^T) - lse),  G = P (dO V^T - delta),  dS = scale mod'(scale Q K^T) G
//   dV = P^T dO,  dK = dS^T Q,  dQ = dS K
//
// After FlashAttention-3's backward pass (Shah et al., arXiv:2407.08608). A CTA owns kBlockN = 128 rows of K and V, which
// stay in shared memory, and walks Q in steps of kBlockM rows, of all query heads of its KV head (and of all batches where
// K and V are broadcast), so dK and dV are summed in registers. Two warpgroups, the consumers, own 64 of the rows each.
// S^T = K Q^T and dP^T = V dO^T have their rows along KV: P^T and dS^T are in registers what dV and dK take. dS also goes
// to shared memory, since dQ takes that of both consumers; dQ is added to fp32 sums in global memory.
//
//   consumer, step j    tensor cores                        other units
//                       S(j), dQ(j-1)                       -
//                       dQ(j-1)                             first weights of P(j)
//                       dP(j)                               dQ(j-1) to memory, other weights
//                       dV += P(j) dO(j)                    dS(j), to shared memory
//                       dK += dS(j) Q(j), S(j+1), ..
//
// The products of one consumer run beside the exponentials of the other; each waits for the other's dS once a step.
//
//   role          threads                        registers   what
//   producer      warp 0                         24          walks steps, requests Q, dO; fills the table of rows
//   consumer i    a warpgroup, 64 rows of K, V   240         products, mod, gradients
//
//   shared memory   bytes                                      lifetime
//   KPart, VPart    kBlockN rows of K, of V                    whole kernel
//   QRing           kStages tiles of kBlockM x kHeadDimQk      a slot: until dK of its step is there
//   ORing           kStages tiles of kBlockM x kHeadDimV       a slot: likewise (dO)
//   SRing           2 tiles of kBlockN x kBlockM, dS^T         a slot: until dQ of its step is there
//   Rows            kStages RowTables                          as the slot of Q
//   control words   messages and barriers of the rings, KvFull
//
//   barrier           completed by                                          arrivals     waited for by
//   kv_full           producer: K and V requested; their bytes              1            consumers
//   q.full            producer: Q requested, message told, rows written;    1            consumers
//                     its bytes
//   q.empty, o.empty  consumers: dK and dV of the step are there            kWarps       producer
//   o.full            producer: dO requested; its bytes                     1            consumers
//   s.full            consumers: dS is written                              kWarps       consumers
//   s.empty           consumers: dQ is there                                kWarps       consumers
//
// Messages, with Q: the step's start, StepFlags, b, h; b < 0: no more steps.
//
// The host provides: tensor maps, d_q_sums zeroed; grid kv tiles * kv_heads * kv_batch, 384 threads, kSharedBytes of
// dynamic shared memory. d_k and d_v have 16-byte aligned rows. backward_delta.cu has run before, backward_finish_sm90.cu
// runs after.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/d_q_sums.cuh"
#include "algo/q_walk.cuh"
#include "algo/transposed_scores.cuh"
#include "params_sm90.cuh"
#include "ptx/red.cuh"
#include "ptx/setmaxnreg.cuh"
#include "ptx/stmatrix.cuh"
#include "ptx/tma.cuh"
#include "tile/gemm_wgmma.cuh"
#include "tile/ring.cuh"
#include "tile/store_wgmma.cuh"

namespace attnc::sm90 {

static_assert(kWarps == 8 && kBlockN == 128, "two warpgroups own 64 rows of K and V each");
constexpr int kThreads = 32 * (4 + kWarps);
constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;

using QTile = SwizzledTile<Element, kBlockM, kHeadDimQk>;
using OTile = SwizzledTile<Element, kBlockM, kHeadDimV>;
using KTile = SwizzledTile<Element, kBlockN, kHeadDimQk>;
using VTile = SwizzledTile<Element, kBlockN, kHeadDimV>;
using STile = SwizzledTile<Element, kBlockN, kBlockM>; // dS^T
using Table = RowTable<Mod, kBlockM>;

struct KPart : SharedPart<KPart, KTile::kBytes, 1024> {};
struct VPart : SharedPart<VPart, VTile::kBytes, 1024> {};
struct QRing : RingParts<QRing, QTile, kStages, 4> {};
struct ORing : RingParts<ORing, OTile, kStages, 0> {};
struct SRing : RingParts<SRing, STile, 2, 0> {};
struct Rows : SharedPart<Rows, kStages * Table::kBytes> {};
struct KvFull : BarrierParts<KvFull, 1> {};
using Memory = SharedMemory<KPart, VPart, QRing::Slots, ORing::Slots, SRing::Slots, QRing::Control, ORing::Control,
                            SRing::Control, KvFull, Rows>;
static_assert(Memory::kBytes == kSharedBytes, "the host asks for another size: src/plan");

ATTNC_DEVICE Table table_of(unsigned shared, int slot) {
  return {shared + Memory::offset_of<Rows>() + slot * Table::kBytes};
}

/// Requests a box of whole rows: rows [row, row + Rows) of head h, batch b. One thread.
template <class Tile>
ATTNC_DEVICE void request_tile(Tile tile, const TensorMap& map, unsigned barrier, int row, int h, int b) {
#pragma unroll
  for (int slab = 0; slab < Tile::kSlabs; ++slab)
    ptx::tma_load_4d(tile.slab(slab), map, barrier, slab * 64, row, h, b);
}

/// Which rows of K and V a CTA owns. Heads are taken in sections whose Q and dO fit into L2; in a section the first rows of
/// all heads come first, since most rows of Q tend to see these.
struct KvTilePlace {
  int b, head, start;

  ATTNC_DEVICE explicit KvTilePlace(const BackwardParamsSm90& p) {
    const ForwardParams& f = p.base.forward;
    const int tiles = (f.kv_len + kBlockN - 1) / kBlockN, heads = f.kv_heads * p.base.kv_batch;
    const int per_section = tiles * p.section, first = int(blockIdx.x) / per_section * p.section;
    const int within = int(blockIdx.x) % per_section, section = min(p.section, heads - first);
    const int at = first + within % section;
    b = at / f.kv_heads;
    head = at % f.kv_heads;
    start = within / section * kBlockN;
  }
};

// ---------------------------------------------------------------------------------------------------------- producer

struct Producer {
  const BackwardParamsSm90& p;
  const ModArgs& args;
  unsigned shared;
  const bool leads = threadIdx.x == 0;
  Ring<Memory, QRing> q = {shared};
  Ring<Memory, ORing> o = {shared};

  ATTNC_DEVICE void request_kv(const KvTilePlace& tile) {
    if (!leads) return;
    const unsigned full = Barriers<Memory, KvFull>{shared}[0];
    ptx::mbarrier_arrive_expect_tx(full, KTile::kBytes + VTile::kBytes);
    request_tile(KTile{shared + Memory::offset_of<KPart>()}, p.k, full, tile.start, tile.head, tile.b * p.k_batch_step);
    request_tile(VTile{shared + Memory::offset_of<VPart>()}, p.v, full, tile.start, tile.head, tile.b * p.v_batch_step);
  }

  ATTNC_DEVICE void request_step(Step step, const Mod::Head& head, int b, int h, int origin) {
    const ForwardParams& f = p.base.forward;
    constexpr int kEach = kBlockM / 32; // rows of a lane
    float lse[kEach], delta[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const long long index = row_of_all(f, b, h, min(step.start + 32 * i + int(threadIdx.x), f.q_len - 1));
      lse[i] = f.lse[index];
      delta[i] = p.base.delta[index];
    }
    q.wait_empty();
    if (leads) {
      q.tell({step.start, step.flags, b, h});
      ptx::mbarrier_expect_tx(q.full(), QTile::kBytes);
      request_tile(q.tile(), p.q, q.full(), step.start, h, b * p.q_batch_step);
    }
    o.wait_empty();
    if (leads) {
      ptx::mbarrier_arrive_expect_tx(o.full(), OTile::kBytes);
      request_tile(o.tile(), p.d_out, o.full(), step.start, h, b * p.d_out_batch_step);
    }
    const Table table = table_of(shared, q.slot);
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      table.fill(f, args, head, b, h, step.start, 32 * i + int(threadIdx.x), origin, lse[i], delta[i]);
    __syncwarp();
    if (leads) ptx::mbarrier_arrive(q.full());
    q.advance();
    o.advance();
  }

  ATTNC_DEVICE void run() {
    const ForwardParams& f = p.base.forward;
    const KvTilePlace tile(p);
    request_kv(tile);
    const int origin = Mod::kAnyOrigin ? tile.start : 0;
    const int batches = p.base.kv_batch == f.batch ? 1 : f.batch;
#pragma unroll 1
    for (int i = 0; i < batches * f.group; ++i) {
      const int b = tile.b + i / f.group, h = tile.head * f.group + i % f.group;
      const Mod::Head head = Mod::head(args, b, h); // SEAM(head)
      const auto walk = walk_q<Mod, kBlockM>(f, args, b, h, tile.start, min(tile.start + kBlockN, f.kv_len));
#pragma unroll 1
      for (int j = 0; j < walk.count; ++j) request_step(walk.at(j), head, b, h, origin);
    }
    q.wait_empty();
    if (leads) {
      q.tell({0, 0, -1, 0});
      ptx::mbarrier_arrive(q.full());
    }
  }
};

// ---------------------------------------------------------------------------------------------------------- consumer

struct Consumer {
  const BackwardParamsSm90& p;
  const ModArgs& args;
  unsigned shared;
  int group; // which consumer warpgroup, uniform over the warp

  Ring<Memory, QRing> q = {shared};
  Ring<Memory, ORing> o = {shared};
  Ring<Memory, SRing> s_ring = {shared};

  using Scores = Fragment<1, kBlockM>;
  using Weights = PackedFragment<Element, 1, kBlockM>;

  ATTNC_DEVICE KTile k_tile() const { return {shared + Memory::offset_of<KPart>()}; }
  ATTNC_DEVICE VTile v_tile() const { return {shared + Memory::offset_of<VPart>()}; }

  /// One lane of each warp passes a slot on once the warp is done with it.
  ATTNC_DEVICE void pass_slot(unsigned barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier);
  }

  /// dQ = dS K of this warpgroup's part of the tile.
  ATTNC_DEVICE void start_d_q(DqSums::Part& d_q, STile s) {
    if constexpr (DqSums::kByRows) {
      wgmma::start_gemm(d_q, transposed(SwizzledTile<Element, kBlockN, 64>{s.slab(group)}), k_tile(), 0);
    } else {
      using Slab = SwizzledTile<Element, kBlockN, 64>;
      wgmma::start_gemm(d_q, transposed(s), Slab{k_tile().slab(group)}, 0);
    }
  }

  ATTNC_DEVICE void add_up(const DqSums::Part& d_q, int b, int h, int q_start) {
    const ForwardParams& f = p.base.forward;
    const int q_tiles = (f.q_len + kBlockM - 1) / kBlockM;
    float* to = DqSums::part(p.d_q_sums, ((long long)b * f.q_heads + h) * q_tiles + q_start / kBlockM, group);
#pragma unroll
    for (int n = 0; n < DqSums::kColumns / 8; ++n) {
      const float(&x)[4] = d_q.x[0][n];
      ptx::red_add4(to + 512 * n, x[0], x[1], x[2], x[3]);
    }
  }

  /// dS^T of this warpgroup's rows.
  ATTNC_DEVICE void write_gradients(const Weights& d_s) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const unsigned at = s_ring.tile().base + (64 * group + 16 * warp + lane % 16) * STile::kRowBytes;
#pragma unroll
    for (int n = 0; n < kBlockM / 8; n += 2) {
      const int chunk = (n % 8 + lane / 16) ^ lane % 8; // of 16 bytes, in the 128-byte swizzle
      ptx::stmatrix_x4(at + n / 8 * STile::kSlabBytes + chunk * 16, d_s.a[0][n / 2]);
    }
  }

  template <class Out>
  ATTNC_DEVICE void store(const Out& x, float factor, void* to, const Strides& stride, const KvTilePlace& tile,
                          int row_of_tile) {
    Element* base = (Element*)to + tile.b * stride.batch + tile.head * stride.head;
    constexpr int kColumns = Same<Out, Fragment<1, KTile::kColumns>>::value ? kHeadDimQk : kHeadDimV;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = tile.start + row_of_tile + 8 * r;
      wgmma::store_row<kColumns>(base + row * stride.row, x, r, factor, row < p.base.forward.kv_len);
    }
  }

  ATTNC_DEVICE void run() {
    const ForwardParams& f = p.base.forward;
    const KvTilePlace tile(p);
    const int row_of_tile = 64 * group + threadIdx.x / 32 % 4 * 16 + Scores::row(0);
    const bool tail = tile.start + kBlockN > f.kv_len;
    Fragment<1, KTile::kColumns> d_k;
    Fragment<1, VTile::kColumns> d_v;
    Scores s;
    Weights weights, d_s;
    d_k.fill(0.f);
    d_v.fill(0.f);
    KvPlace<Mod> place;
    int b = -1, h = -1, q_start = 0; // of the last step
    ptx::mbarrier_wait(Barriers<Memory, KvFull>{shared}[0], 0);
#pragma unroll 1
    while (true) {
      const bool has_last = b >= 0;
      q.wait_full();
      int message[4];
      q.hear(message);
      const bool ends = message[2] < 0;

      // Where there is no such step, S or dQ comes out as garbage and is not used.
      DqSums::Part d_q;
      wgmma::touch(s);
      ptx::wgmma_fence();
      wgmma::start_gemm(s, k_tile().from_row(64 * group), transposed(q.tile()), 0); // S^T = K Q^T
      ptx::wgmma_commit_group();
      ptx::wgmma_wait_group<1>(); // dV and dK of the last step are there
      wgmma::touch(d_k);
      wgmma::touch(d_v);
      if (has_last) {
        pass_slot(q.empty_before());
        pass_slot(o.empty_before());
        s_ring.wait_full();
      }
      ptx::wgmma_fence();
      start_d_q(d_q, s_ring.tile());
      ptx::wgmma_commit_group();
      ptx::wgmma_wait_group<1>(); // S is there
      wgmma::touch(s);

      const Step step = {message[0], message[1]};
      const Table table = table_of(shared, q.slot);
      const bool masked = tail || step.flags & kStepMasked;
      if (!ends && (message[2] != b || message[3] != h)) [[unlikely]]
        place = KvPlace<Mod>(f, args, message[2], message[3], tile.start, row_of_tile);
      constexpr int kGroups = kBlockM / 8, kEarly = kGroups / 2;
      if (!ends) {
        if (masked)
          to_weights<true, 0, kEarly>(s, weights, f, args, place, table, step);
        else
          to_weights<false, 0, kEarly>(s, weights, f, args, place, table, step);
      }

      ptx::wgmma_wait_group<0>(); // dQ is there
      wgmma::touch(d_q);
      if (has_last) {
        pass_slot(s_ring.empty());
        add_up(d_q, b, h, q_start);
        s_ring.advance();
      }
      if (ends) break;
      q_start = message[0], b = message[2], h = message[3];

      o.wait_full();
      Scores d_p;
      ptx::wgmma_fence();
      wgmma::start_gemm(d_p, v_tile().from_row(64 * group), transposed(o.tile()), 0); // dP^T = V dO^T
      ptx::wgmma_commit_group();
      if (masked)
        to_weights<true, kEarly, kGroups>(s, weights, f, args, place, table, step);
      else
        to_weights<false, kEarly, kGroups>(s, weights, f, args, place, table, step);
      ptx::wgmma_fence();
      wgmma::start_gemm(d_v, weights, o.tile(), 1); // dV += P^T dO
      ptx::wgmma_commit_group();
      ptx::wgmma_wait_group<1>(); // dP is there
      wgmma::touch(d_p);
      if (masked)
        to_gradients<true>(d_p, s, weights, d_s, f, args, place, table, step);
      else
        to_gradients<false>(d_p, s, weights, d_s, f, args, place, table, step);
      s_ring.wait_empty();
      write_gradients(d_s);
      ptx::fence_proxy_async();
      pass_slot(s_ring.full());
      ptx::wgmma_fence();
      wgmma::start_gemm(d_k, d_s, q.tile(), 1); // dK += dS^T Q
      ptx::wgmma_commit_group();
      q.advance();
      o.advance();
    }
    store(d_k, f.scale, p.base.d_k, p.base.d_k_stride, tile, row_of_tile);
    store(d_v, 1.f, p.base.d_v, p.base.d_v_stride, tile, row_of_tile);
  }
};

ATTNC_DEVICE void initialise(const BackwardParamsSm90& p, unsigned shared) {
  if (threadIdx.x == 0) {
    Ring<Memory, QRing>{shared}.initialise(1, kWarps);
    Ring<Memory, ORing>{shared}.initialise(1, kWarps);
    Ring<Memory, SRing>{shared}.initialise(kWarps, kWarps);
    Barriers<Memory, KvFull>{shared}.initialise(1);
    ptx::fence_mbarrier_init();
    ptx::prefetch_tensor_map(p.q);
    ptx::prefetch_tensor_map(p.k);
    ptx::prefetch_tensor_map(p.v);
    ptx::prefetch_tensor_map(p.d_out);
  }
  __syncthreads();
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attnc_backward(const __grid_constant__ BackwardParamsSm90 p, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  // NOTE: through a shuffle, since the compiler would otherwise form the address anew for every use.
  const unsigned shared = __shfl_sync(0xffffffffu, ptx::shared_address(dynamic_shared), 0);
  initialise(p, shared);
  const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  if (group == 0) {
    ptx::setmaxnreg_dec<kProducerRegisters>();
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    if (warp == 0) Producer{p, args, shared}.run();
  } else {
    ptx::setmaxnreg_inc<kConsumerRegisters>();
    Consumer{p, args, shared, group - 1}.run();
  }
}

} // namespace attnc::sm90
