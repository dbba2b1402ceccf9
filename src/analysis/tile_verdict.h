// mask_mod over a tile of scores, by interval arithmetic.
#pragma once

#include "analysis/range.h"
#include "ir/bindings.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace attnc::analysis {

enum class Verdict : uint8_t {
  AlwaysFalse, ///< no element of the tile is live
  AlwaysTrue,  ///< all elements are live
  Mixed,       ///< some elements are live, and some are not
  Undecided,   ///< the analysis cannot tell; some, all or none may be live
};

/// [qBegin, qEnd) x [kvBegin, kvEnd) of one batch entry and head; not empty.
struct ScoreRect {
  int64_t b = 0, h = 0;
  int64_t qBegin = 0, qEnd = 1, kvBegin = 0, kvEnd = 1;
};

/// Judges tiles for given scalars and extents. Captured data counts as unknown: a gather may be anything of its dtype.
/// The judge keeps what does not depend on the tile. Not thread-safe, not even as const: copy one per thread.
class TileJudge {
public:
  /// `module` is verified and outlives the judge. Reads the scalars and dims of `bindings`, not the tensors. `told`:
  /// values whose range the caller has found by reading data, and passes with every tile.
  TileJudge(const ir::Module& module, const ir::Bindings& bindings, llvm::ArrayRef<ir::Value> told = {});

  /// Judges a tile; AlwaysTrue without a mask_mod. `toldRanges`: the ranges in this tile of the constructor's `told`,
  /// in the same order. Both bounds of each are values in the tile.
  Verdict judge(const ScoreRect& tile, llvm::ArrayRef<const Range*> toldRanges = {}) const;

  /// Returns the number of operations of one judgement.
  int64_t cost() const { return int64_t(steps.size() + coordinates.size() + told.size()); }

private:
  /// A node to compute for each tile. Most masks are made of the few operations that have a kind of their own.
  struct Step {
    enum class Kind : uint8_t { Add, Sub, Eq, Ne, Lt, Le, And, Or, Not, Other };
    Kind kind;
    bool isApart; ///< whether any value of one operand meets any value of the other in some element
    uint32_t id, a, b;
  };
  static Step::Kind kindOf(const ir::Module& module, const ir::Node& node);
  Range leaf(uint32_t id, const ir::Bindings& bindings) const;
  void compute(const Step& step) const;
  void computeOther(uint32_t id) const;

  const ir::Module* module;
  std::optional<ir::Value> root; ///< the output `mask`
  std::vector<uint32_t> told;
  std::vector<std::pair<ir::ParamKind, uint32_t>> coordinates; ///< b, h, q_idx and kv_idx, if the root needs them
  std::vector<Step> steps; ///< nodes that the root needs, that depend on the tile, and whose range is not told
  mutable std::vector<Range> ranges;
  mutable std::vector<uint8_t> tight; ///< whether both bounds of a range are values of some element
};

} // namespace attnc::analysis
