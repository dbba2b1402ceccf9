// What every part of the tracer needs: the current place in the text, the IR under construction, the budgets, and the
// evaluation of calls and attributes, which the tracer implements.
#pragma once

#include "analysis/intervals.h"
#include "dsl/arena.h"
#include "dsl/diagnostics.h"
#include "dsl/limits.h"
#include "dsl/objects/object.h"
#include "ir/loops.h"

#include <llvm/ADT/STLFunctionalExtras.h>

#include <array>

namespace attnc::dsl {

/// An assertion of the text about extents and run-time scalars. The launch checks it.
struct Condition {
  ir::Value value;
  std::string words; ///< message if it does not hold
  uint32_t line = 0;
};

struct Arguments {
  llvm::SmallVector<Object, 6> positional;
  llvm::SmallVector<std::pair<llvm::StringRef, Object>, 2> keywords;
};

/// A call of create_block_mask or flex_attention, and the functions it is given. A function that cannot be evaluated is
/// Deferred.
struct FlexCall {
  Loc at;
  const char* callee;
  Object score, mask, prob, sink, weight; ///< None if not given
};

class Context {
public:
  Context(ir::Module& module, Diagnostics& diagnostics) : module(module), diagnostics(diagnostics) {}

  ir::Module& module;
  Diagnostics& diagnostics;
  Arena heap;
  Loc at; ///< the expression or statement that is being evaluated
  /// Conditions met so far, except those of statements that were put off.
  std::vector<Condition> conditions;

  /// Reports at the current place and gives up what is being evaluated.
  template <class... Holes> [[noreturn]] void fail(const Row<Holes...>& row, std::type_identity_t<Holes>... holes) {
    diagnostics.fail(at, row, holes...);
  }

  /// Reports that an operator does not take these operands.
  [[noreturn]] void badOperands(const char* op, Object left, Object right);

  /// Ends the evaluation, because something that was put off is needed now. Reports the original reasons.
  [[noreturn]] void force(const Deferred& deferred);
  /// Runs `work`. Returns null, or why it could not be done. Fatal errors pass through. Unless `takesRaised`, so does
  /// what the text itself raises.
  const Deferred* attempt(llvm::function_ref<void()> work, bool takesRaised = false);
  /// Ends the evaluation because a name is not defined.
  [[noreturn]] void failUndefined(llvm::StringRef name, Scope* scope);

  /// Pays for work. Ends a mod that exceeds its budget.
  void charge(uint64_t count);
  /// How often a statement that takes too long may be put off, each time with a new budget for what follows.
  unsigned refills = 0;
  void refill() {
    --refills;
    steps = 0;
  }

  /// Makes a node of the IR, with the current line. Its operands must have the types that the operation needs.
  ir::Value make(ir::Op op, ir::Type type, llvm::ArrayRef<ir::Value> operands = {}, int64_t attr = 0);
  ir::Type type(ir::Value value) const { return module[value].type; }
  /// Returns the node with other operands.
  ir::Value remake(ir::Value value, llvm::ArrayRef<ir::Value> operands);
  /// Returns the loops (of sums and of array axes) that a value depends on.
  ir::LoopSet openLoops(ir::Value value);
  /// Returns the possible numbers of a value, in any launch and for any position.
  const analysis::Range& range(ir::Value value);
  /// Whether an integer is known to be at least 0, if integer arithmetic does not overflow.
  bool isNonNegative(ir::Value value);

  /// Evaluated calls of create_block_mask and flex_attention, in order.
  std::vector<FlexCall> flexCalls;

  // What the tracer evaluates.
  virtual Object call(Object callee, const Arguments& arguments) = 0;
  virtual std::vector<Object> items(Object iterable) = 0;
  /// base.name, and base.name = value.
  virtual Object attribute(Object base, llvm::StringRef name) = 0;
  virtual void setAttribute(Object base, llvm::StringRef name, Object value) = 0;
  /// Does what the `__init__` of a dataclass does.
  virtual void setFields(Instance& instance, const Class& type, const Arguments& arguments) = 0;
  /// Returns what the method `name` of the object's class returns; nullopt if the class lacks it.
  virtual std::optional<Object> callMethod(Instance& object, llvm::StringRef name,
                                           llvm::ArrayRef<Object> arguments = {}) = 0;

  Object makeSequence(bool isList, std::vector<Object> items);
  Object makeStr(std::string text);
  std::string describe(Object value) const { return dsl::describe(module, value); }

protected:
  ~Context() = default;

  /// The exception under way. If it is an undefined name, nothing has been reported about it yet.
  Deferred pending;
  uint64_t steps = 0; ///< steps charged so far

private:
  ir::Value makeAt(uint32_t line, ir::Op op, ir::Type type, llvm::ArrayRef<ir::Value> operands, int64_t attr);
  bool computeNonNegative(const ir::Node& node) const;

  std::optional<analysis::Intervals> intervals;
  std::array<size_t, 3> declared = {}; // dims, scalars and grids that `intervals` knows
  std::vector<bool> nonNegative;       // by node; filled as far as requested
  std::vector<ir::LoopSet> open;       // by node; filled as far as requested
};

} // namespace attnc::dsl
