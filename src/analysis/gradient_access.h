// How the elements of attention share the elements of a capture's gradient: what a kernel may add up before it touches
// memory.
//
// In: a module with gradients of captures, and a place where one is read. Out: plain values.
#pragma once

#include "ir/capture_gradient.h"
#include "ir/ir.h"

#include <llvm/ADT/ArrayRef.h>

#include <vector>

namespace attnc::analysis {

/// Which elements of attention of one query head and batch entry read the same element of the capture.
enum class Reach {
  Head,     ///< all
  Row,      ///< those of a row of q
  Column,   ///< those of a column of kv
  Diagonal, ///< those of equal q_idx - kv_idx
  Element,  ///< not known
};

struct GradientAccess {
  Reach reach = Reach::Element;
  bool roundMoves = false; ///< the index depends on the round as well
  /// No two elements of attention read the same element, in no round, if all of these hold: the place is the only one
  /// of its capture; there is one batch entry, or `oneBatch` is false; there is one query head, or `oneHead` is false.
  bool once = false, oneBatch = false, oneHead = false;
  /// The gradient comes of sums along diagonals of what score_mod's result got: d_score passes that on unchanged, so that
  /// kernels have it; the gradient is that times something, of no score, and this and the index are the same wherever
  /// q_idx - kv_idx is.
  bool ofDiagonals = false;
};

/// Whether the value is b, h, q_idx or kv_idx itself, and the extent is the one along which it counts: it is never
/// outside.
bool isPositionAlong(const ir::Module& module, ir::Value value, const ir::Extent& extent);

/// Of each place.
std::vector<GradientAccess> gradientAccesses(const ir::Module& module, llvm::ArrayRef<ir::CaptureGradient> places);

} // namespace attnc::analysis
