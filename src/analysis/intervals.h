// Interval analysis: the possible numbers of each value of a module, for every launch and every coordinate.
//
// Assumed: 0 <= b < B, 0 <= h < H, 0 <= q_idx < Q_LEN, 0 <= kv_idx < KV_LEN; extents up to ir::kMaxExtent; B, H, HKV,
// Q_LEN >= 1, since otherwise there are no coordinates; H is a multiple of HKV. KV_LEN >= 1 is only assumed for values
// that depend on kv_idx or score, since kernels evaluate head and row values even without columns. Run-time scalars and
// captured data may be anything of their types. Exceptions: numbers of grids, which bind() restricts as ir::Grid says,
// and scalars of modules with hasNearScalars. If queries have offsets (ir::kQOffset), q_idx is only known to satisfy
// -kMaxExtent <= q_idx < kMaxExtent.
//
// Conditions of a launch (ir::Output) restrict extents only for proofs of gathers. If they decided comparisons, a
// condition could be simplified away and bind() would stop checking it.
//
// A value has a numeric range, and symbolic bounds that are linear forms over extents: q_idx <= Q_LEN - 1. Both are
// sound for the value as computed, including wrap-around. Operands of select are refined by the condition.
#pragma once

#include "analysis/linear.h"
#include "analysis/range.h"
#include "ir/pins.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallVector.h>

#include <vector>

namespace attnc::analysis {

/// What is known about one value. `upper` and `lower` are symbolic bounds, all of which hold. Plain numbers are only in
/// `range`. Both are empty for bool and f32.
struct Bounds {
  Range range;
  llvm::SmallVector<LinearForm, 1> upper, lower;
};

/// Bounds of all values of a module, computed on demand. The module may grow meanwhile but must not shrink.
class Intervals {
public:
  /// `pins`: extents (and scalars) whose value is fixed.
  explicit Intervals(const ir::Module& module, const ir::Pins& pins = {});

  const Bounds& of(ir::Value value);
  const Range& range(ir::Value value) { return of(value).range; }

  /// Whether an integer add, sub, mul or neg gives the mathematical result.
  bool isExact(ir::Value value);
  /// Whether 0 <= index < extent for one axis of a load.
  bool provesInside(ir::Value load, unsigned axis);

  /// Returns the number of select conditions examined so far: the analysis's cost beyond one walk over the module.
  uint64_t conditionsAsked() const { return asked; }

private:
  struct Fact {
    ir::Value value;
    Bounds bounds;
  };
  struct Facts {
    llvm::SmallVector<ir::Value, 4> about; ///< the values whose facts are collected
    llvm::SmallVector<Fact, 4> known;
    bool asksAbout(ir::Value value) const { return llvm::is_contained(about, value); }
  };

  Bounds boundsOf(ir::Value value, const ir::Node& node, ir::Level level);
  void knowGrids();
  Range numberOf(const ir::Grid::Number& number) const;
  Bounds coordinate(const ir::Node& node, const Bounds& position) const;
  Bounds leaf(const ir::Node& node) const;
  Bounds operation(const ir::Node& node, llvm::ArrayRef<Bounds> operands, ir::Level level) const;
  Range product(const ir::Node& node, Range range) const;
  Bounds select(const ir::Node& node, ir::Level level);
  Bounds underFacts(ir::Value value, const Facts& facts, ir::Level level);
  Facts factsOf(ir::Value condition, bool holds, ir::Value about);
  void collectFacts(ir::Value condition, bool holds, Facts& facts, int& budget);
  void order(ir::Value smaller, ir::Value larger, int64_t gap, Facts& facts);
  void symbolic(const ir::Node& node, llvm::ArrayRef<Bounds> operands, ir::Level level, Bounds& result) const;
  Range decideComparison(const ir::Node& node, llvm::ArrayRef<Bounds> operands, ir::Level level, Range range) const;
  void tighten(Bounds& bounds, ir::Level level) const;
  void commonUpper(const Bounds& a, const Bounds& b, ir::Level level, llvm::SmallVector<LinearForm, 1>& out) const;
  void commonLower(const Bounds& a, const Bounds& b, ir::Level level, llvm::SmallVector<LinearForm, 1>& out) const;
  bool isGroupSize(ir::Value value) const;
  bool neverAbove(const Bounds& a, const Bounds& b, int64_t gap, ir::Level level) const;
  void readConditions();
  void readCondition(ir::Value condition, bool holds, int& budget);
  bool neverAboveInLaunch(const Bounds& a, const Bounds& b, int64_t gap, ir::Level level) const;
  llvm::ArrayRef<ExtentRange> extents(ir::Level level) const;

  const ir::Module& module;
  std::vector<ExtentRange> dims, dimsWithColumn;
  std::vector<Range> scalars;
  std::vector<Bounds> bounds;
  std::vector<ir::Level> levels;
  std::optional<std::vector<LinearForm>> ofLaunch; // forms that conditions keep >= 0 in every launch; made on demand
  uint64_t asked = 0;
};

} // namespace attnc::analysis
