// The rows of Q, and of K and V, that warps own in backward kernels which compute pair by pair (algo/pairs.cuh).
//
// Grid: rows / kRowsOfCta in one dimension, a warp for each row of a CTA.
#pragma once

#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/pairs.cuh"

namespace attnc::pairs {

constexpr int kRowsOfCta = 8; // one per warp

/// Calls function(params, row) for the row of Q that the warp owns, if it exists.
template <class Function>
ATTNC_DEVICE void at_query_row(const BackwardParams& launch, const ModArgs& args, Function function) {
  const long long index = (long long)blockIdx.x * kRowsOfCta + threadIdx.x / 32;
  int b, h, q_idx;
  if constexpr (kIsRagged<Mod>) {
    const RaggedRow row = ragged_q_row<Mod>(launch.forward, args, index);
    b = row.b, h = row.h, q_idx = row.row;
    if (!row.exists) return;
  } else {
    const ForwardParams& f = launch.forward;
    if (index >= (long long)f.batch * f.q_heads * f.q_len) return;
    q_idx = index % f.q_len, h = index / f.q_len % f.q_heads, b = index / f.q_len / f.q_heads;
  }
  const BackwardParams& p = params_of<Mod>(launch, args, b);
  function(p, QueryRow(p.forward, args, b, h, q_idx));
}

/// Writes dK and dV of the row of K and V that the warp owns, if it exists. of(params, row, kv_idx, exists, masked) is
/// the Contribution of an element.
template <class ContributionOf>
ATTNC_DEVICE void write_d_kv(const BackwardParams& launch, const ModArgs& args, ContributionOf of) {
  const long long index = (long long)blockIdx.x * kRowsOfCta + threadIdx.x / 32;
  int kv_b, kv_head, kv_idx;
  if constexpr (kIsRagged<Mod>) {
    const RaggedRow row = ragged_kv_row<Mod>(launch.forward, args, index);
    kv_b = row.b, kv_head = row.h, kv_idx = row.row;
    if (!row.exists) return;
  } else {
    const ForwardParams& f = launch.forward;
    if (index >= (long long)launch.kv_batch * f.kv_heads * f.kv_len) return;
    kv_idx = index % f.kv_len, kv_head = index / f.kv_len % f.kv_heads, kv_b = index / f.kv_len / f.kv_heads;
  }
  const BackwardParams& p = params_of<Mod>(launch, args, kv_b);
  const ForwardParams& f = p.forward;
  KvSums sums;
  const int batches = batches_of_kv<Mod>(p, kv_idx);
  for (int i = 0; i < batches * f.group; ++i) {
    const int b = kv_b + i / f.group, h = kv_head * f.group + i % f.group;
    const auto walk = walk_of(f.q_len, p.columns, b, h, kv_idx, p.columns.kv_block, p.columns.q_block);
    for (int n = 0; n < walk.count; ++n) {
      const Step step = walk.at(n);
      const int q_idx = step.start + int(threadIdx.x) % 32;
      const QueryRow row(f, args, b, h, min(q_idx, f.q_len - 1));
      sums.add(p, b, h, step.start, of(p, row, kv_idx, q_idx < f.q_len, step.flags & kStepMasked));
    }
  }
  sums.store<false>(p, kv_b, kv_head, kv_idx);
}

} // namespace attnc::pairs
