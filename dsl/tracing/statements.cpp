// In: statements. Out: names bound, control flow followed. Only conditions known before launch steer it.
// An error in an assignment poisons the names it would have bound, so that what follows is still checked.
#include "dsl/objects/arithmetic.h"
#include "dsl/objects/indexing.h"
#include "dsl/tracing/depth.h"
#include "dsl/tracing/tracer.h"

namespace attnc::dsl {

using llvm::cast;

void Tracer::runModule(const Block& body) { run(body); }

Tracer::Flow Tracer::run(const Block& body) {
  for (const Stmt* stmt : body) {
    try {
      Flow flow = run(*stmt);
      if (flow != Flow::Next) return flow;
    } catch (const Abort& abort) {
      bool goesOn = scope == &globals || stmt->kind == StmtKind::Assign || stmt->kind == StmtKind::AugAssign ||
                    stmt->kind == StmtKind::AnnAssign || stmt->kind == StmtKind::Expression;
      if (abort.fatal || !goesOn) throw;
      poison(*stmt);
    }
  }
  return Flow::Next;
}

Tracer::Flow Tracer::run(const Stmt& stmt) {
  at = stmt.loc;
  Deeper deeper(*this);
  charge(1);
  switch (stmt.kind) {
  case StmtKind::Expression: eval(*cast<ExpressionStmt>(stmt).value); return Flow::Next;
  case StmtKind::Assign: runAssign(cast<AssignStmt>(stmt)); return Flow::Next;
  case StmtKind::AugAssign: runAugAssign(cast<AugAssignStmt>(stmt)); return Flow::Next;
  case StmtKind::AnnAssign: runAnnAssign(cast<AnnAssignStmt>(stmt)); return Flow::Next;
  case StmtKind::Return: {
    const Expr* value = cast<ReturnStmt>(stmt).value;
    returned = value ? eval(*value) : Object(NoneObject{});
    resultLoc = value ? value->loc : stmt.loc;
    return Flow::Return;
  }
  case StmtKind::If: return runIf(cast<IfStmt>(stmt));
  case StmtKind::For: return runFor(cast<ForStmt>(stmt));
  case StmtKind::While: return runWhile(cast<WhileStmt>(stmt));
  case StmtKind::Break: return Flow::Break;
  case StmtKind::Continue: return Flow::Continue;
  case StmtKind::Pass: return Flow::Next;
  case StmtKind::Def: {
    const FunctionNode& function = *cast<DefStmt>(stmt).function;
    bind(function.name, function.loc, makeFunction(function));
    return Flow::Next;
  }
  case StmtKind::Import: runImport(cast<ImportStmt>(stmt)); return Flow::Next;
  case StmtKind::Assert: {
    Object condition = eval(*cast<AssertStmt>(stmt).condition);
    at = stmt.loc;
    if (!truth(*this, condition)) fail(diag::assertionFails);
    return Flow::Next;
  }
  case StmtKind::Raise: fail(diag::raised);
  }
  return Flow::Next;
}

Tracer::Flow Tracer::runIf(const IfStmt& stmt) {
  for (auto& [condition, body] : stmt.clauses) {
    Object value = eval(*condition);
    at = condition->loc;
    if (truth(*this, value)) return run(body);
  }
  return run(stmt.otherwise);
}

Tracer::Flow Tracer::runFor(const ForStmt& stmt) {
  Object iterable = eval(*stmt.iterable);
  at = stmt.iterable->loc;
  Flow flow = Flow::Next;
  forEach(iterable, [&](Object item) {
    at = stmt.target->loc;
    assign(*stmt.target, item);
    flow = run(stmt.body);
    return flow == Flow::Next || flow == Flow::Continue;
  });
  if (flow == Flow::Return) return flow;
  return flow == Flow::Break ? Flow::Next : run(stmt.otherwise);
}

Tracer::Flow Tracer::runWhile(const WhileStmt& stmt) {
  while (true) {
    Object condition = eval(*stmt.condition);
    at = stmt.condition->loc;
    if (!truth(*this, condition)) return run(stmt.otherwise);
    Flow flow = run(stmt.body);
    if (flow == Flow::Return) return flow;
    if (flow == Flow::Break) return Flow::Next;
  }
}

Object Tracer::override(llvm::StringRef name, Object value) {
  auto define = defines.find(std::string_view(name));
  if (define == defines.end()) return value;
  define->second.used = true;
  Object given = define->second.value;
  if (value.is<double>() && given.is<int64_t>()) return double(given.as<int64_t>());
  if (value.storage.index() != given.storage.index() && !value.is<NoneObject>())
    diagnostics.fail(define->second.loc, diag::defineKind, std::string_view(name), describe(value), describe(given));
  return given;
}

void Tracer::runAssign(const AssignStmt& stmt) {
  Object value = eval(*stmt.value);
  bool isConstant = value.isKnownNumber() || value.is<const Str*>() || value.is<Sequence*>() || value.is<NoneObject>();
  for (const Expr* target : stmt.targets) {
    at = target->loc;
    if (scope == &globals && target->kind == ExprKind::Name && isConstant)
      value = override(cast<NameExpr>(target)->name, value);
    assign(*target, value);
  }
}

void Tracer::runAugAssign(const AugAssignStmt& stmt) {
  auto combine = [&](Object old) -> Object {
    Object value = eval(*stmt.value);
    at = stmt.loc;
    bool isList = old.is<Sequence*>() && old.as<Sequence*>()->isList;
    if (!isList || stmt.op != BinaryOp::Add) return binary(*this, stmt.op, old, value);
    // Python extends the list itself, which other names may hold as well.
    Object longer = binary(*this, stmt.op, old, makeSequence(true, items(value)));
    old.as<Sequence*>()->items = longer.as<Sequence*>()->items;
    return old;
  };
  if (const auto* target = llvm::dyn_cast<SubscriptExpr>(stmt.target)) {
    Object base = eval(*target->base), index = eval(*target->index);
    at = target->loc;
    Object value = combine(subscript(*this, base, index));
    assignSubscript(*this, base, index, value);
    return;
  }
  if (stmt.target->kind != ExprKind::Name) diagnostics.fail(stmt.target->loc, diag::badTarget);
  assign(*stmt.target, combine(eval(*stmt.target)));
}

/// In a function the annotation is ignored. At module level it declares a capture, or a typed constant.
void Tracer::runAnnAssign(const AnnAssignStmt& stmt) {
  const auto& target = *cast<NameExpr>(stmt.target);
  if (scope != &globals) {
    if (stmt.value) assign(target, eval(*stmt.value));
    return;
  }
  if (!stmt.value) return declare(target.name, *stmt.annotation);
  Object value = eval(*stmt.value);
  at = stmt.loc;
  if (!value.isKnownNumber() && !value.is<const Str*>() && !value.is<Sequence*>() && !value.is<NoneObject>())
    fail(diag::typedNonConstant, describe(value));
  const auto* type = llvm::dyn_cast<NameExpr>(stmt.annotation);
  if (type && type->name == "float" && value.is<int64_t>()) value = double(value.as<int64_t>());
  bool fits = !type || (type->name == "int"     ? value.is<int64_t>()
                        : type->name == "float" ? value.is<double>()
                                                : type->name != "bool" || value.is<bool>());
  if (!fits) fail(diag::constantType, std::string_view(target.name), std::string_view(type->name), describe(value));
  assign(target, override(target.name, value));
}

void Tracer::assign(const Expr& target, Object value) {
  charge(1);
  switch (target.kind) {
  case ExprKind::Name: return bind(cast<NameExpr>(target).name, target.loc, value);
  case ExprKind::Subscript: {
    Object base = eval(*cast<SubscriptExpr>(target).base), index = eval(*cast<SubscriptExpr>(target).index);
    at = target.loc;
    return assignSubscript(*this, base, index, value);
  }
  case ExprKind::Sequence: {
    const auto& names = cast<SequenceExpr>(target).items;
    at = target.loc;
    std::vector<Object> values = items(value);
    if (values.size() != names.size())
      diagnostics.fail(target.loc, diag::unpackCount, Count(names.size()), Count(values.size()));
    for (size_t i = 0; i < names.size(); ++i) assign(*names[i], values[i]);
    return;
  }
  case ExprKind::Attribute: {
    const auto& attribute = cast<AttributeExpr>(target);
    Object base = eval(*attribute.base);
    // Factories of FlexAttention name the functions they make; the name has no meaning here.
    bool isName = attribute.name == "__name__" || attribute.name == "__qualname__" || attribute.name == "__doc__";
    if (!base.isCallable() || !isName)
      diagnostics.fail(target.loc, diag::attributeAssigned, std::string_view(attribute.name));
    return;
  }
  default: diagnostics.fail(target.loc, diag::badTarget);
  }
}

void Tracer::bind(llvm::StringRef name, Loc loc, Object value) {
  if (scope == &globals && declared.contains(name)) diagnostics.fail(loc, diag::redeclared, std::string_view(name));
  scope->names[name] = value;
}

namespace {

void poisonTarget(const Expr& target, Scope& scope) {
  if (target.kind == ExprKind::Name) scope.names[cast<NameExpr>(target).name] = PoisonObject{};
  if (target.kind == ExprKind::Sequence)
    for (const Expr* item : cast<SequenceExpr>(target).items) poisonTarget(*item, scope);
}

} // namespace

void Tracer::poison(const Stmt& stmt) {
  if (const auto* node = llvm::dyn_cast<AssignStmt>(&stmt))
    for (const Expr* target : node->targets) poisonTarget(*target, *scope);
  if (const auto* node = llvm::dyn_cast<AugAssignStmt>(&stmt)) poisonTarget(*node->target, *scope);
  if (const auto* node = llvm::dyn_cast<AnnAssignStmt>(&stmt)) poisonTarget(*node->target, *scope);
  if (const auto* node = llvm::dyn_cast<DefStmt>(&stmt)) scope->names[node->function->name] = PoisonObject{};
  if (const auto* node = llvm::dyn_cast<ImportStmt>(&stmt))
    for (const ImportedName& imported : node->names)
      scope->names[imported.as.empty() ? imported.name : imported.as] = PoisonObject{};
}

} // namespace attnc::dsl
