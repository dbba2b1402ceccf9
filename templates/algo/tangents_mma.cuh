// Tiles of the mma.sync kernels of tangents.
#pragma once

#include "attnc_mod.cuh"

#include "algo/tangent_scores.cuh"
#include "params.cuh"
#include "ptx/shared_memory.cuh"
#include "tile/copy_tile.cuh"
#include "tile/gemm_mma.cuh"
#include "tile/shared_memory.cuh"
#include "tile/store_mma.cuh"

namespace attnc::sm80 {

constexpr int kThreads = 32 * kWarps;

using QTile = PaddedTile<Element, kBlockM, kHeadDimQk>;
using OTile = PaddedTile<Element, kBlockM, kHeadDimV>;
using KTile = PaddedTile<Element, kBlockN, kHeadDimQk>;
using VTile = PaddedTile<Element, kBlockN, kHeadDimV>;
struct QPart : SharedPart<QPart, QTile::kBytes> {};
struct TqPart : SharedPart<TqPart, QTile::kBytes> {};
struct OPart : SharedPart<OPart, OTile::kBytes> {};
struct KPart : SharedPart<KPart, KTile::kBytes> {};
struct TkPart : SharedPart<TkPart, KTile::kBytes> {};
struct VPart : SharedPart<VPart, VTile::kBytes> {};
struct TvPart : SharedPart<TvPart, VTile::kBytes> {};
using Memory = SharedMemory<QPart, TqPart, OPart, KPart, TkPart, VPart, TvPart>;
static_assert(Memory::kBytes == kSharedBytes, "the host asks for another size: src/families/tangents.cpp");

/// Where a head's rows begin.
ATTNC_DEVICE const Element* head_of(const void* base, const Strides& stride, int b, int h) {
  return (const Element*)base + b * stride.batch + h * stride.head;
}

struct Tiles {
  const TangentParams& t;
  unsigned shared;

  ATTNC_DEVICE QTile q() const { return {shared + Memory::offset_of<QPart>()}; }
  ATTNC_DEVICE QTile t_q() const { return {shared + Memory::offset_of<TqPart>()}; }
  ATTNC_DEVICE OTile d_out() const { return {shared + Memory::offset_of<OPart>()}; }
  ATTNC_DEVICE KTile k() const { return {shared + Memory::offset_of<KPart>()}; }
  ATTNC_DEVICE KTile t_k() const { return {shared + Memory::offset_of<TkPart>()}; }
  ATTNC_DEVICE VTile v() const { return {shared + Memory::offset_of<VPart>()}; }
  ATTNC_DEVICE VTile t_v() const { return {shared + Memory::offset_of<TvPart>()}; }

  /// Copies rows of Q, Q. and dO from `start` on.
  ATTNC_DEVICE void load_q(int b, int h, int start) const {
    const BackwardParams& p = t.backward;
    const ForwardParams& f = p.forward;
    copy_in<kThreads>(q(), head_of(f.q, f.q_stride, b, h), f.q_stride.row, start, f.q_len, f.vectors);
    copy_in<kThreads>(t_q(), head_of(t.t_q, t.t_q_stride, b, h), t.t_q_stride.row, start, f.q_len, f.vectors);
    copy_in<kThreads>(d_out(), head_of(p.d_out, p.d_out_stride, b, h), p.d_out_stride.row, start, f.q_len, f.vectors);
    ptx::cp_async_commit_group();
  }
  /// Copies rows of K, K., V and V. from `start` on. `h`: of K and V.
  ATTNC_DEVICE void load_kv(int b, int h, int start) const {
    const ForwardParams& f = t.backward.forward;
    copy_in<kThreads>(k(), head_of(f.k, f.k_stride, b, h), f.k_stride.row, start, f.kv_len, f.vectors);
    copy_in<kThreads>(t_k(), head_of(t.t_k, t.t_k_stride, b, h), t.t_k_stride.row, start, f.kv_len, f.vectors);
    copy_in<kThreads>(v(), head_of(f.v, f.v_stride, b, h), f.v_stride.row, start, f.kv_len, f.vectors);
    copy_in<kThreads>(t_v(), head_of(t.t_v, t.t_v_stride, b, h), t.t_v_stride.row, start, f.kv_len, f.vectors);
    ptx::cp_async_commit_group();
  }
};

ATTNC_DEVICE void wait_for_tiles() {
  ptx::cp_async_wait_group<0>();
  __syncthreads();
}

} // namespace attnc::sm80
