// In: statements. Out: names bound, control flow followed. Only conditions known before launch steer control flow.
// An error in an assignment poisons the names it would have bound, so that what follows is still checked.
#include "dsl/objects/arithmetic.h"
#include "dsl/objects/indexing.h"
#include "dsl/objects/repairs.h"
#include "dsl/objects/tensors.h"
#include "dsl/tracing/depth.h"
#include "dsl/tracing/tracer.h"

namespace attnc::dsl {

using llvm::cast;

void Tracer::runModule(const Block& body) {
  refills = kMaxRefills;
  for (const Stmt* stmt : body) {
    const size_t before = diagnostics.size();
    const Deferred* why = nullptr;
    try {
      why = defer([&] { run(*stmt); }, /*takesRaised=*/true);
    } catch (const Abort& abort) { // the statement takes too many steps
      if (abort.fatal || !refills) throw;
      refill();
      why = heap.make<Deferred>(diagnostics.take(before));
    }
    if (!why) continue;
    const bool isOwn = stmt->kind != StmtKind::Assign && stmt->kind != StmtKind::AnnAssign &&
                       stmt->kind != StmtKind::AugAssign && stmt->kind != StmtKind::Expression;
    if (why->raised && isOwn) return report(*why);
    putOff(*stmt, *why);
  }
  refills = 0;
}

void Tracer::runDeclarations(const Block& body) {
  for (const Stmt* stmt : body) {
    const auto* declaration = llvm::dyn_cast<AnnAssignStmt>(stmt);
    if (!declaration || declaration->value || declaration->target->kind != ExprKind::Name)
      diagnostics.fail(stmt->loc, diag::notDeclaration);
    at = stmt->loc;
    declare(cast<NameExpr>(declaration->target)->name, *declaration->annotation);
  }
}

Tracer::Flow Tracer::run(const Block& body) {
  for (const Stmt* stmt : body) {
    Flow flow = Flow::Next;
    if (const Deferred* why = defer([&] { flow = run(*stmt); })) putOff(*stmt, *why);
    if (flow != Flow::Next) return flow;
  }
  return Flow::Next;
}

Tracer::Flow Tracer::run(const Stmt& stmt) {
  at = stmt.loc;
  Deeper deeper(*this);
  charge(1);
  switch (stmt.kind) {
  case StmtKind::Expression: {
    const Expr& value = *cast<ExpressionStmt>(stmt).value;
    if (value.kind != ExprKind::String) eval(value);
    return Flow::Next;
  }
  case StmtKind::Assign: runAssign(cast<AssignStmt>(stmt)); return Flow::Next;
  case StmtKind::AugAssign: runAugAssign(cast<AugAssignStmt>(stmt)); return Flow::Next;
  case StmtKind::AnnAssign: runAnnAssign(cast<AnnAssignStmt>(stmt)); return Flow::Next;
  case StmtKind::Return: {
    const Expr* value = cast<ReturnStmt>(stmt).value;
    returned = value ? evalLazy(*value) : Object(NoneObject{});
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
    Object made = makeFunction(function);
    bind(function.name, function.loc, decorated(made, cast<DefStmt>(stmt).decorators));
    return Flow::Next;
  }
  case StmtKind::Class: runClass(cast<ClassStmt>(stmt)); return Flow::Next;
  case StmtKind::Try: return runTry(cast<TryStmt>(stmt));
  case StmtKind::With: return runWith(cast<WithStmt>(stmt));
  case StmtKind::Del: runDel(cast<DelStmt>(stmt)); return Flow::Next;
  case StmtKind::Unsupported: failSyntax(cast<UnsupportedStmt>(stmt).what);
  case StmtKind::Import: runImport(cast<ImportStmt>(stmt)); return Flow::Next;
  case StmtKind::Assert: runAssert(cast<AssertStmt>(stmt)); return Flow::Next;
  case StmtKind::Raise: diagnostics.report(at, diag::raised); throw Abort{false, true};
  }
  return Flow::Next;
}

/// Evaluates all blocks and what follows, if in tryOut() and `work`, which decides whether a block runs, fails.
bool Tracer::lookInto(llvm::ArrayRef<const Block*> blocks, const Expr* target, llvm::function_ref<void()> work) {
  if (!isTryingOut) return false;
  const Deferred* why = attempt(work);
  if (!why) return false;
  if (target) spoilTarget(*target, *why);
  for (const Block* block : blocks) attempt([&] { run(*block); }, /*takesRaised=*/true);
  return true;
}

Tracer::Flow Tracer::runIf(const IfStmt& stmt) {
  for (auto& [condition, body] : stmt.clauses) {
    if (lookInto({&body}, nullptr, [&, &asked = *condition] { truth(*this, eval(asked)); })) continue;
    Object value = eval(*condition);
    at = condition->loc;
    if (std::optional<ir::Value> ofLaunch = conditionOfLaunch(value)) {
      const bool isLast = &condition == &stmt.clauses.back().first;
      if (const RaiseStmt* raise = raiseOf(body)) {
        requireNoRaise(make(ir::Op::Not, ir::Type::Bool, {*ofLaunch}), *raise, condition->loc);
        continue;
      }
      if (const RaiseStmt* raise = isLast ? raiseOf(stmt.otherwise) : nullptr) {
        requireNoRaise(*ofLaunch, *raise, condition->loc);
        return run(body);
      }
    }
    if (truth(*this, value)) return run(body);
  }
  return run(stmt.otherwise);
}

Tracer::Flow Tracer::runFor(const ForStmt& stmt) {
  const auto first = [&] { forEach(eval(*stmt.iterable), [](Object) { return false; }); };
  if (lookInto({&stmt.body, &stmt.otherwise}, stmt.target, first)) return Flow::Next;
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
  if (lookInto({&stmt.body, &stmt.otherwise}, nullptr, [&] { truth(*this, eval(*stmt.condition)); })) return Flow::Next;
  while (true) {
    Object condition = eval(*stmt.condition);
    at = stmt.condition->loc;
    if (decay(*this, condition).isTraced()) fail(diag::tracedLoop, "a condition that the GPU computes", "n");
    if (!truth(*this, condition)) return run(stmt.otherwise);
    Flow flow = run(stmt.body);
    if (flow == Flow::Return) return flow;
    if (flow == Flow::Break) return Flow::Next;
  }
}

Object Tracer::override(llvm::StringRef name, Object value) {
  constants.insert(name.str());
  auto define = defines.find(std::string_view(name));
  if (define == defines.end()) return value;
  define->second.used = true;
  Object given = define->second.value;
  if (value.is<double>() && given.is<int64_t>()) return double(given.as<int64_t>());
  if (value.storage.index() != given.storage.index() && !value.is<NoneObject>())
    diagnostics.fail(define->second.loc, diag::defineKind, std::string_view(name), describe(value), describe(given));
  return given;
}

namespace {

/// Returns the class of an exception as the text names it; empty for another form.
llvm::StringRef exceptionName(const Expr* expr) {
  if (const auto* call = llvm::dyn_cast_or_null<CallExpr>(expr)) expr = call->callee;
  const auto* name = llvm::dyn_cast_or_null<NameExpr>(expr);
  return name ? name->name : llvm::StringRef();
}

} // namespace

/// What the body raises goes to the first handler that may catch it. What attnc cannot evaluate raises nothing.
Tracer::Flow Tracer::runTry(const TryStmt& stmt) {
  Flow flow = Flow::Next;
  const bool isCaught = !stmt.handlers.empty();
  tries += isCaught;
  const Deferred* raised = defer([&] { flow = run(stmt.body); }, /*takesRaised=*/true);
  tries -= isCaught;
  if (raised && !raised->raised) force(*raised);
  if (raised && stmt.handlers.empty()) force(*raised);
  if (raised) {
    const Handler& handler = stmt.handlers.front();
    llvm::StringRef type = exceptionName(handler.type);
    if (handler.type && type != "Exception" && type != "BaseException" && stmt.handlers.size() > 1) force(*raised);
    if (!handler.name.empty()) bind(handler.name, stmt.loc, Opaque{"exception"});
    flow = run(handler.body);
  } else if (flow == Flow::Next) {
    flow = run(stmt.otherwise);
  }
  Flow last = run(stmt.finally);
  return last == Flow::Next ? flow : last;
}

/// Enters objects of classes of the text and, unless the body raises, leaves them. Other contexts do nothing.
Tracer::Flow Tracer::runWith(const WithStmt& stmt) {
  std::vector<Instance*> entered;
  for (auto [context, target] : stmt.items) {
    Object value = evalLazy(*context);
    at = context->loc;
    if (value.is<Instance*>() && !isForeign(*value.as<Instance*>()->type)) {
      entered.push_back(value.as<Instance*>());
      auto inside = callMethod(*entered.back(), "__enter__");
      if (!inside) fail(diag::unknownAttribute, describe(value), "__enter__", "");
      value = *inside;
    }
    if (target && value.is<const Deferred*>())
      spoilTarget(*target, *value.as<const Deferred*>());
    else if (target)
      assign(*target, value);
  }
  const Flow flow = run(stmt.body);
  const Object result = returned;
  for (Instance* context : llvm::reverse(entered)) callMethod(*context, "__exit__", std::vector<Object>(3));
  returned = result;
  return flow;
}

void Tracer::runDel(const DelStmt& stmt) {
  for (const Expr* target : stmt.targets) {
    if (target->kind == ExprKind::Name) {
      llvm::StringRef name = cast<NameExpr>(target)->name;
      if (scope == &globals && declared.count(name))
        diagnostics.fail(target->loc, diag::redeclared, std::string_view(name));
      scopeOf(name).names.erase(name);
      continue;
    }
    const auto* subscript = llvm::dyn_cast<SubscriptExpr>(target);
    if (!subscript) diagnostics.fail(target->loc, diag::badTarget);
    Object base = eval(*subscript->base), index = eval(*subscript->index);
    at = target->loc;
    deleteSubscript(*this, base, index);
  }
}

void Tracer::runAssign(const AssignStmt& stmt) {
  Object value = evalLazy(*stmt.value);
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
    // Python extends the list itself, which other names may also hold.
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
  if (stmt.target->kind != ExprKind::Name && stmt.target->kind != ExprKind::Attribute)
    diagnostics.fail(stmt.target->loc, diag::badTarget);
  assign(*stmt.target, combine(eval(*stmt.target)));
}

/// In a function the annotation is ignored. At module level it declares a capture, or a typed constant.
void Tracer::runAnnAssign(const AnnAssignStmt& stmt) {
  if (stmt.target->kind != ExprKind::Name) {
    if (stmt.value) assign(*stmt.target, evalLazy(*stmt.value));
    return;
  }
  const auto& target = *cast<NameExpr>(stmt.target);
  if (scope != &globals) {
    if (stmt.value) assign(target, evalLazy(*stmt.value));
    if (scope->isClass) declareField(stmt);
    return;
  }
  if (!stmt.value) return declare(target.name, *stmt.annotation);
  Object value = evalLazy(*stmt.value);
  at = stmt.loc;
  if (value.is<const ReducedObject*>()) {
    outputs.push_back({target.name, target.loc, stmt.annotation, value.as<const ReducedObject*>()});
    return assign(target, value);
  }
  if (value.is<const Deferred*>() && declares(*stmt.annotation)) {
    const auto* call = llvm::dyn_cast<CallExpr>(stmt.value);
    const bool isMeantAsOutput = call && shortTextOf(*this, call->callee->loc, "").find("reduce_") != std::string::npos;
    if (isMeantAsOutput) return report(*value.as<const Deferred*>()); // it would become a capture
    return declare(target.name, *stmt.annotation);
  }
  if (!value.isKnownNumber() && !value.is<const Str*>() && !value.is<Sequence*>() && !value.is<NoneObject>()) {
    if (declares(*stmt.annotation)) fail(diag::typedNonConstant, describe(value));
    return assign(target, value);
  }
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
    if (isInMod && base.is<const Tensor*>()) { // it would be visible outside, whether or not the mod reads it
      diagnostics.report(at, diag::readOnly, describe(wholeTensor(*this, base.as<const Tensor*>()->number)));
      throw Abort{false, true};
    }
    if (!isInMod && base.is<const Array*>()) failWritten(*cast<SubscriptExpr>(target).base, target.loc);
    return assignSubscript(*this, base, index, value);
  }
  case ExprKind::Sequence: {
    const auto& names = cast<SequenceExpr>(target).items;
    at = target.loc;
    if (value.is<const Deferred*>()) return spoilTarget(target, *value.as<const Deferred*>());
    std::vector<Object> values = items(value);
    size_t star = 0;
    while (star < names.size() && names[star]->kind != ExprKind::Starred) ++star;
    if (star < names.size() && values.size() + 1 >= names.size()) { // it takes what is left
      const size_t count = values.size() + 1 - names.size();
      Object rest = makeSequence(true, {values.begin() + int64_t(star), values.begin() + int64_t(star + count)});
      values.erase(values.begin() + int64_t(star), values.begin() + int64_t(star + count));
      values.insert(values.begin() + int64_t(star), rest);
    }
    if (values.size() != names.size())
      diagnostics.fail(target.loc, diag::unpackCount, Count(names.size()), Count(values.size()));
    for (size_t i = 0; i < names.size(); ++i)
      assign(i == star ? *cast<StarredExpr>(names[i])->value : *names[i], values[i]);
    return;
  }
  case ExprKind::Attribute: {
    Object base = eval(*cast<AttributeExpr>(target).base);
    at = target.loc;
    return setAttribute(base, cast<AttributeExpr>(target).name, value);
  }
  default: diagnostics.fail(target.loc, diag::badTarget);
  }
}

/// Returns the scope in which an assignment binds the name.
Scope& Tracer::scopeOf(llvm::StringRef name) {
  if (!scope->function) return *scope;
  if (scope->function->globals.contains(name)) return globals;
  if (scope->function->nonlocals.contains(name))
    for (Scope* around = scope->parent; around; around = around->parent)
      if (around->function && !around->isClass && around->function->locals.contains(name)) return *around;
  return *scope;
}

namespace {

bool isSame(Object a, Object b) {
  if (a.is<const Tensor*>() && b.is<const Tensor*>()) return a.as<const Tensor*>() == b.as<const Tensor*>();
  return a.isTraced() && b.isTraced() && a.as<ir::Value>().id == b.as<ir::Value>().id;
}

} // namespace

/// A declaration wins over a value that cannot be evaluated, wherever it is assigned; one given with the text wins over
/// any value outside of mods.
void Tracer::bind(llvm::StringRef name, Loc loc, Object value) {
  Scope& into = scopeOf(name);
  standIns.erase({&into, name.str()});
  if (value.is<const Deferred*>() || (!isInMod && loc.text == 0 && given.contains(name)))
    if (auto capture = captureOf(name)) {
      value = *capture;
      standIns.insert({&into, name.str()});
    }
  if (value.is<const Deferred*>() && loc.text == 0 && !isInMod)
    for (const Finding& reason : value.as<const Deferred*>()->findings)
      computed.try_emplace({reason.loc.begin, name}, loc, &into == &globals);
  if (&into != &globals) {
    into.names[name] = value;
    return;
  }
  if (const auto* output = value.get<const ReducedObject*>())
    if (llvm::none_of(outputs, [&](const DeclaredOutput& other) { return other.what == *output; }))
      outputs.push_back({name, loc, nullptr, *output});
  auto found = declared.find(name);
  if (found != declared.end() && !isSame(value, found->second) && !given.contains(name))
    value = defer([&] { diagnostics.fail(loc, diag::redeclared, std::string_view(name)); });
  else if (found != declared.end())
    value = found->second;
  into.names[name] = value;
}

} // namespace attnc::dsl
