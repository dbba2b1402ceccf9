// Tiles of the mma.sync backward kernels that compute P and dS for themselves: kBlockM rows of Q and dO, kBlockN rows
// of K and V.
#pragma once

#include "attnc_mod.cuh"

#include "params.cuh"
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

struct Tiles {
  QTile q;
  OTile o;
  KTile k;
  VTile v;

  ATTNC_DEVICE explicit Tiles(unsigned shared)
      : q{shared + Memory::offset_of<QPart>()}, o{shared + Memory::offset_of<OPart>()},
        k{shared + Memory::offset_of<KPart>()}, v{shared + Memory::offset_of<VPart>()} {}

  /// Loads rows of K and V from `start` on, and computes S = Q K^T and dP = dO V^T of a warp's 16 rows.
  template <class Scores>
  ATTNC_DEVICE void multiply(Scores& s, Scores& d_p, const ForwardParams& f, const Element* keys, const Element* values,
                             int start, int warp_row) const {
    __syncthreads();
    copy_in<kThreads>(k, keys, f.k_stride.row, start, f.kv_len, f.vectors);
    copy_in<kThreads>(v, values, f.v_stride.row, start, f.kv_len, f.vectors);
    ptx::cp_async_commit_group();
    ptx::cp_async_wait_group<0>();
    __syncthreads();
    s.fill(0.f);
    d_p.fill(0.f);
    mma::gemm<kTf32>(s, q.rows<16>(warp_row), transposed(k));
    mma::gemm<kTf32>(d_p, o.rows<16>(warp_row), transposed(v));
  }
};

} // namespace attnc::sm80
