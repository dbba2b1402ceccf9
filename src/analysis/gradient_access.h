// How elements of attention share the elements of a capture's gradient: what a kernel may sum before it writes to
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
  Head,     ///< all of them
  Row,      ///< those of one q row
  Column,   ///< those of one kv column
  Diagonal, ///< those of equal q_idx - kv_idx
  Element,  ///< unknown
};

struct GradientAccess {
  Reach reach = Reach::Element;
  bool roundMoves = false; ///< whether the index also depends on the round
  /// `once`: no two elements of attention read the same element, in any round. This requires that the capture has no
  /// other place; if `oneBatch`, that there is only one batch entry; if `oneHead`, only one query head. For a factor,
  /// no two rounds of rows, or of columns, read the same element.
  bool once = false, oneBatch = false, oneHead = false;
  /// Whether the gradient can be computed from sums along diagonals of the gradient of score_mod's result. This holds
  /// if d_score passes that gradient on unchanged, so that kernels have it; if the capture's gradient is that times a
  /// factor independent of the score; and if this factor and the index are constant along q_idx - kv_idx.
  bool ofDiagonals = false;
};

/// Whether the value is b, h, q_idx or kv_idx itself and `extent` is its own extent, so that the index is always
/// inside.
bool isPositionAlong(const ir::Module& module, ir::Value value, const ir::Extent& extent);

/// Returns the access of each place.
std::vector<GradientAccess> gradientAccesses(const ir::Module& module, llvm::ArrayRef<ir::CaptureGradient> places);

} // namespace attnc::analysis
