// Ranges of a mod's values: what these may be in a kernel, whose scores and operations are rounded.
//
// In: a module, its bindings, and a range of scores. Out: a range that holds a value for each of these scores, if each
// operation errs by what dsl/SPEC.md (6, 7) allows. An operation whose result is exact in f32 does not err.
//
// An operation takes its operands' ranges as independent. So the range of a value that uses the score repeatedly may
// be a few times too wide. Both sides of a step that lies inside a range count, as do both branches of a choice.
#pragma once

#include "ir/bindings.h"
#include "ir/ir.h"
#include "ir/loops.h"
#include "support/element.h"

#include <array>
#include <cstdint>
#include <vector>

namespace attnc::reference {

/// Numbers from low to high: integers and bools in `integer`, f32 in `real`. Both are NaN if some number may be NaN.
struct Range {
  NumberOf<double> low, high;
  bool isPoint() const { return low.integer == high.integer; } // the bits of f32
};

/// Evaluates one value of a module, like ir::Evaluator, and like it is fastest if kv is innermost. Not thread-safe.
class RangeEvaluator {
public:
  /// `module` and the tensors must outlive it.
  RangeEvaluator(const ir::Module& module, const ir::Bindings& bindings, ir::Value root);

  /// `low`, `high`: the scores. `round`, `prob`: for outputs that take them. The gradient of the result is 1.
  Range evaluate(double low, double high, int64_t b, int64_t h, int64_t q, int64_t kv, int64_t round = 0,
                 const Range& prob = {{.real = 0}, {.real = 1}}) const;

private:
  void compute(const std::vector<ir::Value>& nodes) const;
  Range valueOf(const ir::Node& node) const;
  Range leaf(const ir::Node& node) const;
  Range gathered(const ir::Node& node) const;
  Range placed(const ir::Node& node) const;
  Range drawn(const ir::Node& node) const;
  Range summed(const ir::Node& node, uint32_t id) const;

  const ir::Module& module;
  ir::Bindings bindings;
  ir::Value root;
  std::array<std::vector<ir::Value>, 3> byLevel; ///< of a head, a row and an element, outside of sums
  std::vector<std::vector<ir::Value>> inside;    ///< by Value::id of a sum: what its rounds compute
  mutable std::vector<Range> values;             ///< by Value::id
  mutable std::array<int64_t, ir::kMaxLoops> rounds = {};
  mutable Range score = {}, weight = {};
  mutable std::array<int64_t, 5> at; ///< b, h, q, kv, round
};

} // namespace attnc::reference
