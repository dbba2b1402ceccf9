// What a launch takes, in host memory.
#pragma once

#include "problem/safetensors.h"

#include "attnc/captures.h"
#include "attnc/operands.h"
#include "attnc/problem.h"

#include <optional>

namespace attnc::cli {

/// Which tensors need their elements.
enum class Elements {
  All,
  OfMask, ///< captures that mask_mod reads; other tensors have a shape and no bytes
};

/// The tensors of Operands in host memory, with its names of members. For a cache, k and v are the rows that are
/// attended to, [B, HKV, KV_LEN, D]. For a ragged batch, q, k and v are [1, heads, total, D].
struct HostTensors {
#define ATTNC_TENSOR(member, name) HostTensor member;
#define ATTNC_OPTIONAL(member, name, feature) std::optional<HostTensor> member;
#include "attnc/operands.def"
};

/// K and V as stored, without the appended rows: in pages, or with room for new rows.
struct HostCache {
  HostTensor k, v;
  std::optional<HostTensor> kScales, vScales; ///< if scales are of rows or pages
};

/// Operands in host memory, checked against each other and against the mod.
struct HostOperands : HostTensors {
  std::optional<HostCache> cache; ///< set if they have pages or new rows
  HostTensor dOut;                ///< with --backward: gradient of out, [B, H, Q_LEN, DV], dtype of q
  std::optional<HostTensor> dLse; ///< with --backward, if given: gradient of lse, f32 [B, H, Q_LEN]
  NamedTensors tensors;           ///< captured tensors, by name
  Captures captures;              ///< all captures, with --backward also gradients of outputs; borrowed from `tensors`
  /// With --backward: a tensor for the gradient of each capture that wants one, with the capture's shape and dtype; f32
  /// for a scalar. Has no memory.
  Captures gradients;
  Captures reductions; ///< without --backward: a tensor for each output that the mod declares. Has no memory
  ProblemShape problem;
  bool vInK = false; ///< whether v, and newV, are views of k's and newK's first columns for launches; copies here
};

} // namespace attnc::cli
