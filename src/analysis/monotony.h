// How values move along the rows of a head: up, down or not at all as q_idx grows, with b and h fixed.
//
// In: a module. Out: a direction per value, sound for every launch. Values that may wrap around have no direction. Not:
// f32 values that are not constant; values that need kv_idx or score.
#pragma once

#include "analysis/intervals.h"

#include <vector>

namespace attnc::analysis {

enum class Direction : uint8_t {
  Constant, ///< the same in every row
  Up,       ///< never falls; for a bool: false, then true
  Down,     ///< never rises
  Unknown,
};

/// Directions of all values of a module, computed on demand. The module may grow meanwhile but must not shrink.
class Monotony {
public:
  /// `intervals` are of the same module. Both must outlive this object.
  Monotony(const ir::Module& module, Intervals& intervals) : module(module), intervals(intervals) {}

  Direction of(ir::Value value);

private:
  Direction compute(ir::Value value) const;
  Direction operation(ir::Value value, const ir::Node& node) const;
  Direction product(const ir::Node& node) const;
  Direction select(const ir::Node& node) const;

  const ir::Module& module;
  Intervals& intervals;
  std::vector<Direction> directions; // by Value::id
};

} // namespace attnc::analysis
