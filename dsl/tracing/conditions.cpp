// Conditions of the launch: assertions of a text about values that are unknown until a kernel is launched.
//
// In: `assert`, and an `if` that raises. Out: conditions, with the text's own words as the error message. Not: the
// contents of a captured tensor, which the host cannot see, and values that differ between scores.
#include "dsl/objects/arithmetic.h"
#include "dsl/objects/scalars.h"
#include "dsl/objects/tensors.h"
#include "dsl/tracing/tracer.h"
#include "ir/levels.h"
#include "ir/walk.h"
#include "support/readable.h"

namespace attnc::dsl {

using llvm::cast;
using llvm::dyn_cast_or_null;

namespace {

/// Whether a value differs between the scores of a launch. Then an assertion about it is not a condition of the launch.
bool changesWithinLaunch(Context& context, const Object& value) {
  if (!value.isTraced()) return false;
  context.charge(context.module.size());
  return ir::levels(context.module)[value.as<ir::Value>().id] != ir::Level::Launch;
}

} // namespace

/// Returns the value as a bool of extents and run-time scalars; nullopt if it is known before, or never known to the
/// host.
std::optional<ir::Value> Tracer::conditionOfLaunch(Object value) {
  value = decay(*this, value);
  if (!value.isTraced() || tries != 0) return std::nullopt;
  const ir::Value root = value.as<ir::Value>();
  charge(root.id + 1);
  if (openLoops(root)) return std::nullopt;
  const std::vector<bool> needed = ir::neededBy(module, root);
  for (uint32_t id = 0; id <= root.id; ++id)
    if (needed[id] && (module[{id}].op == ir::Op::Param || module[{id}].op == ir::Op::Load)) return std::nullopt;
  return lift(*this, asBool(*this, value), ir::Type::Bool);
}

/// `words` is the text's own message, if it has one that is known.
void Tracer::require(ir::Value condition, const Expr* words, std::string otherwise) {
  if (llvm::any_of(conditions, [&](const Condition& met) { return met.value == condition; })) return;
  if (conditions.size() >= kMaxConditions) { // a deferrable error would be put off; this one must not be
    diagnostics.report(at, diag::tooManyConditions, Count(kMaxConditions));
    throw Abort{false, true};
  }
  std::string said;
  if (words) {
    const Object value = evalLazy(*words);
    if (value.is<const Str*>()) said = value.as<const Str*>()->text;
  }
  if (said.empty()) said = std::move(otherwise);
  const uint32_t line = at.text == 0 ? uint32_t(diagnostics.lineAndColumn(at).first) : 0;
  conditions.push_back({condition, readable(said), line});
}

void Tracer::runAssert(const AssertStmt& stmt) {
  Object condition = eval(*stmt.condition);
  at = stmt.loc;
  if (std::optional<ir::Value> ofLaunch = conditionOfLaunch(condition))
    return require(*ofLaunch, stmt.message, "`assert " + diagnostics.textOf(stmt.condition->loc) + "` fails");
  if (changesWithinLaunch(*this, condition)) {
    diagnostics.report(at, diag::tracedAssertion, describe(condition));
    throw Abort{false, true};
  }
  if (truth(*this, condition)) return;
  diagnostics.report(at, diag::assertionFails);
  throw Abort{false, true};
}

/// Returns the `raise` that a block comes down to, if nothing before it has an effect; else null.
const RaiseStmt* Tracer::raiseOf(const Block& body) const {
  for (const Stmt* stmt : body) {
    if (stmt->kind == StmtKind::Raise) return cast<RaiseStmt>(stmt);
    if (stmt->kind != StmtKind::Assign && stmt->kind != StmtKind::Expression) return nullptr;
  }
  return nullptr;
}

void Tracer::requireNoRaise(ir::Value condition, const RaiseStmt& raise, Loc asked) {
  const auto* exception = dyn_cast_or_null<CallExpr>(raise.exception);
  const Expr* words = exception && !exception->arguments.empty() ? exception->arguments.front() : nullptr;
  at = raise.loc;
  require(condition, words, "the mod raises an exception, for `" + diagnostics.textOf(asked) + "`");
}

} // namespace attnc::dsl
