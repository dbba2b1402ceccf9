// What every part of the tracer needs: where it stands in the text, the IR it writes, and the budgets.
#pragma once

#include "dsl/arena.h"
#include "dsl/diagnostics.h"
#include "dsl/limits.h"
#include "dsl/objects/object.h"
#include "ir/loops.h"

#include <llvm/ADT/STLFunctionalExtras.h>

namespace attnc::dsl {

/// What a text asserts of extents and run-time scalars: the launch checks it.
struct Condition {
  ir::Value value;
  std::string words; ///< what is said where it does not hold
  uint32_t line = 0;
};

class Context {
public:
  Context(ir::Module& module, Diagnostics& diagnostics) : module(module), diagnostics(diagnostics) {}

  ir::Module& module;
  Diagnostics& diagnostics;
  Arena heap;
  Loc at; ///< the expression or statement that is being evaluated
  /// Those met so far, without those of statements that were put off.
  std::vector<Condition> conditions;

  /// Reports at the current place and gives up what is being evaluated.
  template <class... Holes> [[noreturn]] void fail(const Row<Holes...>& row, std::type_identity_t<Holes>... holes) {
    diagnostics.fail(at, row, holes...);
  }

  /// What has been put off is needed now: ends what is being evaluated, for the reasons that ended it before.
  [[noreturn]] void force(const Deferred& deferred);
  /// Runs `work`. null, or why it could not be done. Not for what ends everything; nor, unless `takesRaised`, for
  /// what the text itself raises.
  const Deferred* attempt(llvm::function_ref<void()> work, bool takesRaised = false);
  /// Ends the evaluation because of a name that is not defined.
  [[noreturn]] void failUndefined(llvm::StringRef name, Scope* scope);

  /// Pays for work; a mod that asks for too much ends here.
  void charge(uint64_t count);
  /// Whether a statement that is too long is put off, and what follows starts anew; so many times.
  unsigned refills = 0;
  void refill() {
    --refills;
    steps = 0;
  }

  /// A new node of the IR, with the current line. Its operands must have the types that the operation asks for.
  ir::Value make(ir::Op op, ir::Type type, llvm::ArrayRef<ir::Value> operands = {}, int64_t attr = 0);
  ir::Type type(ir::Value value) const { return module[value].type; }
  /// The node with other operands.
  ir::Value remake(ir::Value value, llvm::ArrayRef<ir::Value> operands);
  /// The loops, of sums and of axes of arrays, that a value depends on.
  ir::LoopSet openLoops(ir::Value value);
  /// Whether an integer is known to be at least 0, taking integer arithmetic as free of overflow.
  bool isNonNegative(ir::Value value);

  /// What the method `name` of the object's class returns; nothing if the class has none.
  virtual std::optional<Object> callMethod(Instance& object, llvm::StringRef name,
                                           llvm::ArrayRef<Object> arguments = {}) = 0;

  Object makeSequence(bool isList, std::vector<Object> items);
  Object makeStr(std::string text);
  std::string describe(Object value) const { return dsl::describe(module, value); }

protected:
  ~Context() = default;

  /// Of the exception under way: an undefined name, about which nothing is reported yet.
  Deferred pending;
  uint64_t steps = 0; ///< charged so far

private:
  ir::Value makeAt(uint32_t line, ir::Op op, ir::Type type, llvm::ArrayRef<ir::Value> operands, int64_t attr);
  bool computeNonNegative(const ir::Node& node) const;

  std::vector<bool> nonNegative; // by node; filled as far as it was asked for
  std::vector<ir::LoopSet> open; // by node; filled as far as it was asked for
};

} // namespace attnc::dsl
