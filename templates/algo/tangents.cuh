// Tangents pair by pair, in fp32 without tensor cores. A dot is the derivative along the tangents of q, k, v and
// captures; pairs.cuh has the quantities that it is over. s. = scale (q. k^T + q k.^T), m = mod(s), m. = t_score(s,
// s.):
//
//   lse. = rowsum(p m.)    p. = p (m. - lse.)    out. = (p. f) v + (p f) v.    delta. = rowsum(d_out out.)
//   g. = p. (f d_out v^T - delta) + p (f d_out v.^T - delta.)    d_s. = scale t_d_score(s, g, s., g.)
//   d_q. = d_s. k + d_s k.    d_k. = d_s.^T q + d_s^T q.    d_v. = (p. f)^T d_out
//
// Mods are generated in plain form, with tangents. prob_mod's factor f does not move.
#pragma once

#include "algo/pairs.cuh"

namespace attnc::pairs {

constexpr int kRowsOfCta = 8; // one per warp

/// One element of the score matrix, and how it moves.
struct Moving {
  bool lives = false;
  float product = 0.f, t_product = 0.f; ///< s, s.
  float weight = 0.f;                   ///< p, normalised
  float factor = 1.f;                   ///< f, of prob_mod
  float t_score = 0.f;                  ///< m.

  ATTNC_DEVICE Moving(const TangentParams& t, const ModArgs& args, const QueryRow& q, int kv_idx, bool exists,
                      bool masked, float row_sum) {
    const ForwardParams& f = t.backward.forward;
    const Pair pair(f, args, q, kv_idx, exists, masked);
    lives = pair.lives && pair.weight != 0.f;
    if (!lives) return;
    const int kv_head = q.h / f.group;
    const Element *own = row_of(f.q, f.q_stride, q.b, q.h, q.q_idx),
                  *key = row_of(f.k, f.k_stride, q.b, kv_head, kv_idx);
    product = pair.product;
    t_product = f.scale * (dot<kHeadDimQk>(row_of(t.t_q, t.t_q_stride, q.b, q.h, q.q_idx), key) +
                           dot<kHeadDimQk>(own, row_of(t.t_k, t.t_k_stride, q.b, kv_head, kv_idx)));
    weight = pair.weight / row_sum;
    factor = pair.factor;
    const Mod::Col col = Mod::col(args, q.head, q.b, q.h, kv_idx, float(kv_idx), 0.f); // SEAM(col)
    const Coord at = {q.b, q.h, q.position, kv_idx};
    t_score = Mod::t_score(args, q.head, q.row, col, at, product, t_product); // SEAM(t_score)
  }
};

/// What an element contributes to gradients, and the tangents of that; zeros if it is dead.
struct MovingGradient {
  float t_p = 0.f;              ///< (p f).
  float d_s = 0.f, t_d_s = 0.f; ///< gradient of q k^T
  float g = 0.f, t_g = 0.f;     ///< gradient of mod(s)

  ATTNC_DEVICE MovingGradient(const TangentParams& t, const ModArgs& args, const QueryRow& q, int kv_idx,
                              const Moving& pair) {
    if (!pair.lives) return;
    const BackwardParams& p = t.backward;
    const ForwardParams& f = p.forward;
    const Element* d_out = row_of(p.d_out, p.d_out_stride, q.b, q.h, q.q_idx);
    const float delta =
        dot<kHeadDimV>(d_out, row_of(f.out, f.out_stride, q.b, q.h, q.q_idx)) - (p.d_lse ? p.d_lse[q.index] : 0.f);
    const float d_weight = pair.factor * dot<kHeadDimV>(d_out, row_of(f.v, f.v_stride, q.b, q.h / f.group, kv_idx));
    const float t_d_weight =
        pair.factor * dot<kHeadDimV>(d_out, row_of(t.t_v, t.t_v_stride, q.b, q.h / f.group, kv_idx));
    const float t_weight = pair.weight * (pair.t_score - t.t_lse[q.index]);
    t_p = t_weight * pair.factor;
    g = pair.weight * (d_weight - delta);
    t_g = t_weight * (d_weight - delta) + pair.weight * (t_d_weight - t.t_delta[q.index]);
    const Mod::Col col = Mod::col(args, q.head, q.b, q.h, kv_idx, float(kv_idx), 0.f); // SEAM(col)
    const Coord at = {q.b, q.h, q.position, kv_idx};
    d_s = f.scale * Mod::d_score(args, q.head, q.row, col, at, pair.product, g); // SEAM(d_score)
    t_d_s = f.scale * Mod::t_d_score(args, q.head, q.row, col, at, pair.product, g, pair.t_product,
                                     t_g); // SEAM(t_d_score)
  }
};

/// Calls function(row) for the row of q that the warp owns, if it exists.
template <class Function>
ATTNC_DEVICE void at_query_row(const ForwardParams& f, const ModArgs& args, Function function) {
  const long long index = (long long)blockIdx.x * kRowsOfCta + threadIdx.x / 32;
  if (index >= (long long)f.batch * f.q_heads * f.q_len) return;
  const int q_idx = index % f.q_len, h = index / f.q_len % f.q_heads, b = index / f.q_len / f.q_heads;
  function(QueryRow(f, args, b, h, q_idx));
}

/// Calls function(first column, the lane's column, its pair) for each chunk of columns.
template <class Function>
ATTNC_DEVICE void at_each_chunk(const TangentParams& t, const ModArgs& args, const QueryRow& row, Function function) {
  const ForwardParams& f = t.backward.forward;
  const auto walk = walk_kv(f, row.b, row.h, row.q_idx);
  for (int i = 0; i < walk.count; ++i) {
    const Step step = walk.at(i);
    const int kv_idx = step.start + int(threadIdx.x) % 32;
    function(step.start, kv_idx,
             Moving(t, args, row, kv_idx, kv_idx < f.kv_len, step.flags & kStepMasked, t.backward.row_sums[row.index]));
  }
}

} // namespace attnc::pairs
