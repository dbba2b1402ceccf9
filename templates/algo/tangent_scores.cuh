// Scores of the tensor core kernels of tangents, and their gradients. algo/tangents.cuh has the formulas. Mods are
// generated in plain form, with tangents.
#pragma once

#include "attnc_mod.cuh"

#include "algo/apply_mod.cuh"
#include "algo/gradients.cuh"
#include "algo/prob_mod.cuh"
#include "algo/sink.cuh"
#include "params.cuh"

namespace attnc {

/// A column of a lane's rows.
struct Column {
  int kv_idx;
  bool lives;
  Mod::Col col;

  ATTNC_DEVICE Column(const ForwardParams& f, const ModArgs& args, const Place<1>& place, int position)
      : kv_idx(min(position, f.kv_len - 1)), lives(position < f.kv_len),
        col(Mod::col(args, place.head, place.b, place.h, kv_idx, float(kv_idx), 0.f)) {} // SEAM(col)
};

/// Returns the bias of y = log2(e) mod(s) + bias, which makes 2^y the weight. -inf for rows without live scores.
ATTNC_DEVICE float bias_of(float lse) { return lse == negative_infinity() ? lse : -lse * kLog2e; }

/// A score, and how it moves. Dead: zeros.
// NOTE: without branches, which would cost more than what they leave out.
struct MovingScore {
  float weight;  ///< exp(mod(s) - lse)
  float factor;  ///< of prob_mod
  float t_score; ///< tangent of mod(s)

  ATTNC_DEVICE MovingScore(const ModArgs& args, const Mod::Head& head, const Mod::Row& row, const Mod::Col& col,
                           Coord at, float s, float t_s, float bias, bool lives, bool masked) {
    if (masked) lives = lives && Mod::mask(args, head, row, col, at);           // SEAM(mask)
    weight = ptx::ex2(Mod::score(args, head, row, col, at, s) * kLog2e + bias); // SEAM(score)
    weight = lives ? weight : 0.f;
    factor = prob_factor<Mod>(weight, args, head, row, col, at);
    t_score = weight == 0.f ? 0.f : Mod::t_score(args, head, row, col, at, s, t_s); // SEAM(t_score)
  }
};

/// The sink of a lane's row, and how it moves. Without one: zeros.
struct MovingSink {
  float weight = 0.f, t_sink = 0.f; ///< weight: exp(sink - lse)

  ATTNC_DEVICE MovingSink(const ModArgs& args, const Place<1>& place, int r, int position, float bias) {
    if constexpr (kHasSink<Mod>) {
      weight = ptx::ex2(sink_of<Mod>(args, place.b, place.h, position) * kLog2e + bias);
      if (weight == 0.f) return;
      t_sink = t_sink_of<Mod>(args, place.head, place.row[r], {place.b, place.h, position, 0});
    }
  }
};

/// What a row of q has, apart from its scores.
struct RowState {
  float bias, share, delta, t_lse, t_delta; ///< share: 1 / sum of weights
};
ATTNC_DEVICE RowState row_state(const TangentParams& t, long long index, bool exists) {
  const BackwardParams& p = t.backward;
  const float lse = exists ? p.forward.lse[index] : negative_infinity();
  if (lse == negative_infinity()) return {lse, 0.f, 0.f, 0.f, 0.f};
  return {bias_of(lse), ptx::rcp(p.row_sums[index]), p.delta[index], t.t_lse[index], t.t_delta[index]};
}

/// Tangents of what a score contributes to gradients. Dead: zeros.
struct MovingGradient {
  float t_p, d_s, t_d_s; ///< (p f)., d_s and d_s. without the scale

  ATTNC_DEVICE MovingGradient(const ModArgs& args, const Mod::Head& head, const Mod::Row& row, const Mod::Col& col,
                              Coord at, float s, float t_s, float d_p, float t_d_p, const RowState& of, bool lives,
                              bool masked) {
    const MovingScore score(args, head, row, col, at, s, t_s, of.bias, lives, masked);
    const float p = score.weight * of.share, t_weight = p * (score.t_score - of.t_lse);
    const float up = score.factor * d_p - of.delta, g = p * up;
    const float t_g = t_weight * up + p * (score.factor * t_d_p - of.t_delta);
    t_p = t_weight * score.factor;
    d_s = Mod::d_score(args, head, row, col, at, s, g);               // SEAM(d_score)
    t_d_s = Mod::t_d_score(args, head, row, col, at, s, g, t_s, t_g); // SEAM(t_d_score)
    if (score.weight == 0.f) d_s = t_d_s = 0.f;                       // whatever V is there
  }
};

} // namespace attnc
