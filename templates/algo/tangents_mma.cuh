// What the mma.sync kernels of tangents share: their tiles, and a score and its gradient with their tangents.
// algo/tangents.cuh has the formulas. Mods are generated in plain form, with tangents.
#pragma once

#include "attnc_mod.cuh"

#include "algo/gradients.cuh"
#include "algo/prob_mod.cuh"
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

/// A live score, and how it moves. Dead: zeros.
struct MovingScore {
  float weight = 0.f;  ///< exp(mod(s) - lse)
  float factor = 1.f;  ///< of prob_mod
  float t_score = 0.f; ///< tangent of mod(s)

  ATTNC_DEVICE MovingScore(const ModArgs& args, const Mod::Head& head, const Mod::Row& row, const Mod::Col& col,
                           Coord at, float s, float t_s, float lse, bool lives, bool masked) {
    if (!lives || lse == negative_infinity()) return;
    if (masked && !Mod::mask(args, head, row, col, at)) return;                  // SEAM(mask)
    weight = ptx::ex2((Mod::score(args, head, row, col, at, s) - lse) * kLog2e); // SEAM(score)
    if (weight == 0.f) return;
    factor = prob_factor<Mod>(weight, args, head, row, col, at);
    t_score = Mod::t_score(args, head, row, col, at, s, t_s); // SEAM(t_score)
  }
};

/// What a row of q has, apart from its scores.
struct RowState {
  float lse, share, delta, t_lse, t_delta; ///< share: 1 / sum of weights

  ATTNC_DEVICE RowState(const TangentParams& t, long long index, bool exists) {
    const BackwardParams& p = t.backward;
    lse = exists ? p.forward.lse[index] : negative_infinity();
    const bool lives = lse != negative_infinity();
    share = lives ? ptx::rcp(p.row_sums[index]) : 0.f;
    delta = lives ? p.delta[index] : 0.f;
    t_lse = lives ? t.t_lse[index] : 0.f;
    t_delta = lives ? t.t_delta[index] : 0.f;
  }
};

/// Tangents of what a score contributes to gradients.
struct MovingGradient {
  float t_p = 0.f, d_s = 0.f, t_d_s = 0.f; ///< (p f)., d_s and d_s. without the scale

  ATTNC_DEVICE MovingGradient(const ModArgs& args, const Mod::Head& head, const Mod::Row& row, const Mod::Col& col,
                              Coord at, float s, float t_s, float d_p, float t_d_p, const RowState& of, bool lives,
                              bool masked) {
    const MovingScore score(args, head, row, col, at, s, t_s, of.lse, lives, masked);
    if (score.weight == 0.f) return;
    const float p = score.weight * of.share, t_weight = p * (score.t_score - of.t_lse);
    const float up = score.factor * d_p - of.delta, g = p * up;
    const float t_g = t_weight * up + p * (score.factor * t_d_p - of.t_delta);
    t_p = t_weight * score.factor;
    d_s = Mod::d_score(args, head, row, col, at, s, g);               // SEAM(d_score)
    t_d_s = Mod::t_d_score(args, head, row, col, at, s, g, t_s, t_g); // SEAM(t_d_score)
  }
};

} // namespace attnc::sm80
