// Puts off what cannot be evaluated: the names that would have been bound stand for the reason, which is reported when
// the mod needs one of them.
//
// In: a statement that could not be executed, and why. Out: everything that it may have changed stands for the reason:
// names that it binds, and lists, dicts and objects that it changes in place. Not: names that a statement does not
// change, and what functions of other modules do to their arguments.
#include "dsl/tracing/given_mods.h"
#include "dsl/tracing/tracer.h"

namespace attnc::dsl {

using llvm::cast;
using llvm::dyn_cast;

const Deferred* Tracer::defer(llvm::function_ref<void()> work, bool takesRaised) {
  const Deferred* why = attempt(work, takesRaised);
  if (why && callDepth == 1) deferrals.push_back(why);
  return why;
}

void Tracer::tryOut(llvm::function_ref<void()> work) {
  if (isTriedOut) return;
  const size_t findings = diagnostics.size(), warnings = diagnostics.warningCount(), calls = flexCalls.size(),
               conditionsBefore = conditions.size();
  isTryingOut = true;
  std::swap(steps, stepsTried);
  try {
    attempt(work, /*takesRaised=*/true);
  } catch (const Abort&) {
    isTriedOut = true;
  }
  std::swap(steps, stepsTried);
  isTryingOut = false;
  diagnostics.take(findings);
  diagnostics.dropWarnings(warnings);
  if (flexCalls.size() == calls)
    conditions.resize(conditionsBefore); // an assertion on the way to a mod applies to the mod
}

Object Tracer::evalLazy(const Expr& expr) {
  Object value;
  if (const Deferred* why = defer([&] { value = eval(expr); })) return why;
  return value;
}

void Tracer::report(const Deferred& deferred) {
  for (const Finding& finding : deferred.findings) diagnostics.put(finding);
  if (deferred.undefined.empty()) return;
  at = deferred.at;
  try {
    undefined(deferred.undefined, deferred.scope);
  } catch (const Abort& abort) {
    if (abort.fatal) throw;
  }
}

namespace {

/// Whether a statement may leave its block.
bool leaves(const Stmt& stmt, bool isInLoop);

bool leaves(const Block& body, bool isInLoop) {
  return llvm::any_of(body, [&](const Stmt* stmt) { return leaves(*stmt, isInLoop); });
}

bool leaves(const Stmt& stmt, bool isInLoop) {
  switch (stmt.kind) {
  case StmtKind::Return: return true;
  case StmtKind::Break:
  case StmtKind::Continue: return !isInLoop;
  case StmtKind::If:
    for (auto& [condition, body] : cast<IfStmt>(stmt).clauses)
      if (leaves(body, isInLoop)) return true;
    return leaves(cast<IfStmt>(stmt).otherwise, isInLoop);
  case StmtKind::For: return leaves(cast<ForStmt>(stmt).body, true) || leaves(cast<ForStmt>(stmt).otherwise, isInLoop);
  case StmtKind::While:
    return leaves(cast<WhileStmt>(stmt).body, true) || leaves(cast<WhileStmt>(stmt).otherwise, isInLoop);
  case StmtKind::With: return leaves(cast<WithStmt>(stmt).body, isInLoop);
  case StmtKind::Unsupported: return leaves(cast<UnsupportedStmt>(stmt).body, isInLoop);
  case StmtKind::Try: {
    const auto& attempt = cast<TryStmt>(stmt);
    for (const Handler& handler : attempt.handlers)
      if (leaves(handler.body, isInLoop)) return true;
    return leaves(attempt.body, isInLoop) || leaves(attempt.otherwise, isInLoop) || leaves(attempt.finally, isInLoop);
  }
  default: return false;
  }
}

/// Returns the name that an expression such as `name[i].member` begins with, or null.
const NameExpr* rootOf(const Expr& expr) {
  const Expr* root = &expr;
  while (true) {
    if (const auto* member = dyn_cast<AttributeExpr>(root))
      root = member->base;
    else if (const auto* item = dyn_cast<SubscriptExpr>(root))
      root = item->base;
    else if (const auto* call = dyn_cast<CallExpr>(root))
      root = call->callee;
    else
      return dyn_cast<NameExpr>(root);
  }
}

} // namespace

/// Returns where the value of a name is stored, and the scope that holds it; null if the text does not bind it.
Object* Tracer::place(llvm::StringRef name, const void** holder) {
  for (Scope* around = scope; around; around = around->parent)
    if (auto found = around->names.find(name); found != around->names.end()) {
      if (holder) *holder = around;
      return &found->second;
    }
  return nullptr;
}

/// Marks the object behind the expression as changed in place, for all who hold it. If a capture is declared under the
/// name that holds it, the name means the capture from now on.
void Tracer::spoilMutable(const Expr& expr, const Deferred& why) {
  charge(1);
  const NameExpr* root = rootOf(expr);
  if (!root) return;
  llvm::SmallVector<llvm::StringRef, 4> path; // of attributes; those of an item or a result are not followed
  for (const Expr* part = &expr; part != root;) {
    if (const auto* member = dyn_cast<AttributeExpr>(part)) {
      path.push_back(member->name);
      part = member->base;
    } else {
      path.clear();
      part = part->kind == ExprKind::Subscript ? cast<SubscriptExpr>(part)->base : cast<CallExpr>(part)->callee;
    }
  }
  llvm::StringRef name = path.empty() ? root->name : path.front();
  const std::optional<Object> capture = captureOf(name);
  const void* holder = nullptr;
  Object* value = place(root->name, &holder);
  if (!value) return;
  for (llvm::StringRef member : llvm::reverse(path)) {
    if (!value->is<Instance*>()) break;
    holder = value->as<Instance*>();
    auto found = value->as<Instance*>()->names.find(member);
    if (found == value->as<Instance*>()->names.end()) return;
    value = &found->second;
  }
  if (standIns.count({holder, name.str()})) return;
  const Object held = *value;
  if (held.is<Sequence*>()) spoiled[held.as<Sequence*>()] = &why;
  if (held.is<Dict*>()) spoiled[held.as<Dict*>()] = &why;
  if (held.is<Instance*>()) spoiled[held.as<Instance*>()] = &why;
  if (held.is<const Array*>()) spoiled[held.as<const Array*>()] = &why;
  if (held.is<const Tensor*>()) written.try_emplace(held.as<const Tensor*>()->number, &why); // and all its views
  const bool isOwn = expr.kind == ExprKind::Name || (expr.kind == ExprKind::Attribute && holder);
  if (!capture || !isOwn || held.is<const Tensor*>() || held.is<Instance*>()) return;
  *value = *capture;
  standIns.insert({holder, name.str()});
}

void Tracer::spoilTarget(const Expr& target, const Deferred& why) {
  charge(1);
  switch (target.kind) {
  case ExprKind::Name: return bind(cast<NameExpr>(target).name, target.loc, &why);
  case ExprKind::Starred: return spoilTarget(*cast<StarredExpr>(target).value, why);
  case ExprKind::Sequence:
    for (const Expr* item : cast<SequenceExpr>(target).items) spoilTarget(*item, why);
    return;
  case ExprKind::Subscript: return spoilMutable(*cast<SubscriptExpr>(target).base, why);
  case ExprKind::Attribute: {
    const auto& member = cast<AttributeExpr>(target);
    Object* base = member.base->kind == ExprKind::Name ? place(cast<NameExpr>(member.base)->name) : nullptr;
    if (base && base->is<Instance*>()) return setAttribute(*base, member.name, &why);
    return spoilMutable(*member.base, why);
  }
  default: return;
  }
}

void Tracer::spoilBlock(const Block& body, const Deferred& why) {
  for (const Stmt* stmt : body) spoil(*stmt, why);
}

/// Binds a name to the function that it means whichever block of an `if` runs, as in `if fast: f = torch.compile(f)`.
/// Returns false if the blocks do something else.
bool Tracer::bindSameFunction(const IfStmt& stmt) {
  const NameExpr* name = nullptr;
  llvm::SmallVector<Object, 2> functions;
  const auto add = [&](const Block& body) {
    const auto* assign = body.size() == 1 ? dyn_cast<AssignStmt>(body[0]) : nullptr;
    const auto* target = assign && assign->targets.size() == 1 ? dyn_cast<NameExpr>(assign->targets[0]) : nullptr;
    if (!target || (name && name->name != target->name)) return false;
    name = target;
    return !attempt([&] { functions.push_back(eval(*assign->value)); });
  };
  for (auto& [condition, body] : stmt.clauses)
    if (!add(body)) return false;
  if (!stmt.otherwise.empty() && !add(stmt.otherwise)) return false;
  if (stmt.otherwise.empty()) {
    const Object* before = name ? place(name->name) : nullptr;
    if (!before) return false;
    functions.push_back(*before);
  }
  for (Object function : functions)
    if (!function.isCallable() || !isSameFunction(function, functions[0])) return false;
  bind(name->name, name->loc, functions[0]);
  return true;
}

void Tracer::putOff(const Stmt& stmt, const Deferred& why) {
  // The rest of the function, or of the loop, is unknown.
  if (leaves(stmt, /*isInLoop=*/false)) force(why);
  spoil(stmt, why);
}

void Tracer::spoil(const Stmt& stmt, const Deferred& why) {
  charge(1);
  switch (stmt.kind) {
  case StmtKind::Assign:
    for (const Expr* target : cast<AssignStmt>(stmt).targets) spoilTarget(*target, why);
    return;
  case StmtKind::AugAssign: return spoilTarget(*cast<AugAssignStmt>(stmt).target, why);
  case StmtKind::AnnAssign: {
    const Expr& target = *cast<AnnAssignStmt>(stmt).target;
    if (target.kind != ExprKind::Name) return spoilTarget(target, why);
    scope->names[cast<NameExpr>(target).name] = &why;
    return;
  }
  case StmtKind::Def: return bind(cast<DefStmt>(stmt).function->name, stmt.loc, &why);
  case StmtKind::Class: return bind(cast<ClassStmt>(stmt).function->name, stmt.loc, &why);
  case StmtKind::Import:
    for (const ImportedName& imported : cast<ImportStmt>(stmt).names)
      bind(imported.as.empty() ? imported.name : imported.as, stmt.loc, &why);
    return;
  case StmtKind::Expression: {
    // A method may change its object. As in torch, a function whose name ends with `_` may change its argument.
    const auto* call = dyn_cast<CallExpr>(cast<ExpressionStmt>(stmt).value);
    if (!call) return;
    const auto* method = dyn_cast<AttributeExpr>(call->callee);
    if (!method) return;
    const bool isInPlace = !method->name.empty() && method->name.back() == '_' && method->name != "__init__";
    Object* base = method->base->kind == ExprKind::Name ? place(cast<NameExpr>(method->base)->name) : nullptr;
    // A member inherited from a class of another module does not change what the text gave the object.
    const bool isForeign = base && base->is<Instance*>() && !findMember(*base->as<Instance*>()->type, method->name);
    const bool isArray = base && base->isArrayLike();
    if (isInPlace || (!isArray && !isForeign)) spoilMutable(*method->base, why);
    if (isInPlace)
      for (const Expr* argument : call->arguments) spoilMutable(*argument, why);
    return;
  }
  case StmtKind::If:
    if (bindSameFunction(cast<IfStmt>(stmt))) return;
    for (auto& [condition, body] : cast<IfStmt>(stmt).clauses) spoilBlock(body, why);
    return spoilBlock(cast<IfStmt>(stmt).otherwise, why);
  case StmtKind::For:
    spoilTarget(*cast<ForStmt>(stmt).target, why);
    spoilBlock(cast<ForStmt>(stmt).body, why);
    return spoilBlock(cast<ForStmt>(stmt).otherwise, why);
  case StmtKind::While:
    spoilBlock(cast<WhileStmt>(stmt).body, why);
    return spoilBlock(cast<WhileStmt>(stmt).otherwise, why);
  case StmtKind::With:
    for (auto [context, target] : cast<WithStmt>(stmt).items)
      if (target) spoilTarget(*target, why);
    return spoilBlock(cast<WithStmt>(stmt).body, why);
  case StmtKind::Try:
    spoilBlock(cast<TryStmt>(stmt).body, why);
    for (const Handler& handler : cast<TryStmt>(stmt).handlers) spoilBlock(handler.body, why);
    spoilBlock(cast<TryStmt>(stmt).otherwise, why);
    return spoilBlock(cast<TryStmt>(stmt).finally, why);
  case StmtKind::Del:
    for (const Expr* target : cast<DelStmt>(stmt).targets) spoilTarget(*target, why);
    return;
  case StmtKind::Unsupported: return spoilBlock(cast<UnsupportedStmt>(stmt).body, why);
  case StmtKind::Return:
  case StmtKind::Break:
  case StmtKind::Continue:
  case StmtKind::Pass:
  case StmtKind::Assert:
  case StmtKind::Raise: return;
  }
}

} // namespace attnc::dsl
