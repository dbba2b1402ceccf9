// In: expressions. Out: their values, evaluated in Python's order.
#include "dsl/objects/arithmetic.h"
#include "dsl/objects/arrays.h"
#include "dsl/objects/comparison.h"
#include "dsl/objects/indexing.h"
#include "dsl/objects/repairs.h"
#include "dsl/objects/tensors.h"
#include "dsl/tracing/depth.h"
#include "dsl/tracing/given_mods.h"
#include "dsl/tracing/tracer.h"

#include <fmt/format.h>
#include <llvm/ADT/ScopeExit.h>

namespace attnc::dsl {

using llvm::cast;

Object Tracer::eval(const Expr& expr) {
  at = expr.loc;
  Deeper deeper(*this);
  charge(1);
  Object value = evalKind(expr);
  if (const Deferred* why = whyNot(value)) {
    failComputed(expr, *why);
    force(*why);
  }
  return value;
}

/// Returns why a value cannot be used, or null.
const Deferred* Tracer::whyNot(Object value) const {
  if (value.is<const Deferred*>()) return value.as<const Deferred*>();
  if (value.is<const Tensor*>()) return written.lookup(value.as<const Tensor*>()->number);
  if (spoiled.empty()) return nullptr;
  if (value.is<Sequence*>()) return spoiled.lookup(value.as<Sequence*>());
  if (value.is<Dict*>()) return spoiled.lookup(value.as<Dict*>());
  if (value.is<Instance*>()) return spoiled.lookup(value.as<Instance*>());
  if (value.is<const Array*>()) return spoiled.lookup(value.as<const Array*>());
  return nullptr;
}

/// Returns the capture declared under the name of a table that is too large for a traced index to choose from.
std::optional<Object> Tracer::captureForTable(const Expr& expr, Object value) {
  const bool isLarge = value.is<const Array*>() && value.as<const Array*>()->items.size() > kMaxTableLookup;
  if (!isLarge || expr.kind != ExprKind::Name) return std::nullopt;
  return captureOf(cast<NameExpr>(expr).name);
}

Object Tracer::evalKind(const Expr& expr) {
  switch (expr.kind) {
  case ExprKind::None: return NoneObject{};
  case ExprKind::Ellipsis: return EllipsisObject{};
  case ExprKind::Bool: return cast<BoolExpr>(expr).value;
  case ExprKind::Int: return cast<IntExpr>(expr).value;
  case ExprKind::Float: return cast<FloatExpr>(expr).value;
  case ExprKind::String: return makeStr(cast<StringExpr>(expr).value);
  case ExprKind::Name: return lookup(cast<NameExpr>(expr).name);
  case ExprKind::Unary: {
    Object operand = eval(*cast<UnaryExpr>(expr).operand);
    at = expr.loc;
    return unary(*this, cast<UnaryExpr>(expr).op, operand);
  }
  case ExprKind::Binary: return evalBinary(cast<BinaryExpr>(expr));
  case ExprKind::BoolOp: return evalBoolOp(cast<BoolOpExpr>(expr));
  case ExprKind::Compare: return evalCompare(cast<CompareExpr>(expr));
  case ExprKind::Conditional: return evalConditional(cast<ConditionalExpr>(expr));
  case ExprKind::Call: return evalCall(cast<CallExpr>(expr));
  case ExprKind::Attribute: {
    Object base = eval(*cast<AttributeExpr>(expr).base);
    at = expr.loc;
    return attribute(base, cast<AttributeExpr>(expr).name);
  }
  case ExprKind::Subscript: {
    const Expr& baseExpr = *cast<SubscriptExpr>(expr).base;
    Object base = eval(baseExpr), index = eval(*cast<SubscriptExpr>(expr).index);
    at = expr.loc;
    if (auto capture = captureForTable(baseExpr, base)) {
      Object value;
      if (!attempt([&] { value = subscript(*this, base, index); })) return value;
      at = expr.loc;
      base = *capture;
    }
    return subscript(*this, base, index);
  }
  case ExprKind::Slice: return evalSlice(cast<SliceExpr>(expr));
  case ExprKind::Sequence: return evalSequence(cast<SequenceExpr>(expr));
  case ExprKind::Lambda: return makeFunction(*cast<LambdaExpr>(expr).function);
  case ExprKind::Comprehension: return evalComprehension(cast<ComprehensionExpr>(expr));
  case ExprKind::Starred: failSyntax("a starred expression here");
  case ExprKind::Dict: return evalDict(cast<DictExpr>(expr));
  case ExprKind::Named: {
    const auto& node = cast<NamedExpr>(expr);
    Object value = eval(*node.value);
    // It is bound in the function, not in a comprehension.
    Scope* inner = scope;
    auto restore = llvm::make_scope_exit([&] { scope = inner; });
    while (!scope->function && scope->parent) scope = scope->parent;
    bind(node.target->name, node.target->loc, value);
    return value;
  }
  case ExprKind::Unsupported:
    if (const char* what = cast<UnsupportedExpr>(expr).what) failSyntax(what);
    fail(diag::intTooLarge);
  }
  return NoneObject{};
}

namespace {

bool isOfBools(Context& context, Object value) {
  return (value.isNumber() || value.isArrayLike()) && dtypeOf(context, value) == NumberType::Bool;
}

} // namespace

/// Evaluates the function of a call or the first operand. If a mod is looked for, the other operands are evaluated even
/// if this one is unknown: they may give one.
Object Tracer::evalFirst(const Expr& expr) { return isTryingOut ? evalLazy(expr) : eval(expr); }

Object Tracer::evalBinary(const BinaryExpr& expr) {
  llvm::SmallVector<const BinaryExpr*, 8> chain;
  const Expr* innermost = &expr;
  for (; innermost->kind == ExprKind::Binary; innermost = chain.back()->left)
    chain.push_back(&cast<BinaryExpr>(*innermost));
  Object value = evalFirst(*innermost);
  for (const BinaryExpr* node : llvm::reverse(chain)) {
    charge(1);
    const bool isUnknown = value.is<const Deferred*>();
    Object right = isUnknown ? evalLazy(*node->right) : eval(*node->right);
    if (isUnknown) continue;
    at = node->loc;
    const bool isBits = node->op == BinaryOp::And || node->op == BinaryOp::Or || node->op == BinaryOp::Xor;
    if (isBits && isOfBools(*this, value) != isOfBools(*this, right)) mixedBits.insert(node);
    value = binary(*this, node->op, value, right);
  }
  if (value.is<const Deferred*>()) force(*value.as<const Deferred*>());
  return value;
}

Object Tracer::evalConditional(const ConditionalExpr& node) {
  bool isTrue = false;
  const Deferred* unknown = attempt([&] {
    Object condition = eval(*node.condition);
    at = node.condition->loc;
    if (decay(*this, condition).isTraced())
      fail(diag::tracedCondition, describeOrigin(*this, decay(*this, condition)), shortTextOf(*this, at, "condition"),
           shortTextOf(*this, node.yes->loc, "a") + ", " + shortTextOf(*this, node.no->loc, "b"));
    isTrue = truth(*this, condition);
  });
  if (!unknown) return eval(isTrue ? *node.yes : *node.no);
  // `torch.compile(f) if torch.cuda.is_available() else f` is `f` for attnc, whatever the machine has.
  Object yes, no;
  if (!attempt([&] { yes = eval(*node.yes), no = eval(*node.no); }) && yes.isCallable() && isSameFunction(yes, no))
    return yes;
  force(*unknown);
}

/// Known operands decide as in Python. From the first traced one on, the rest is evaluated and combined.
Object Tracer::evalBoolOp(const BoolOpExpr& expr) {
  std::optional<Object> traced;
  for (Expr* operand : expr.operands) {
    Object value = decay(*this, eval(*operand));
    at = operand->loc;
    if (value.isArrayLike()) failCondition(*this, value);
    if (value.isTraced()) {
      if (type(value.as<ir::Value>()) != ir::Type::Bool)
        fail(diag::logicOnNumber, expr.isAnd ? "and" : "or", describe(value));
      traced = traced ? binary(*this, expr.isAnd ? BinaryOp::And : BinaryOp::Or, *traced, value) : value;
      continue;
    }
    // Python would return the operand itself, which is not a bool.
    if (traced && !value.is<bool>()) fail(diag::logicOnNumber, expr.isAnd ? "and" : "or", describe(value));
    bool isTrue = truth(*this, value);
    if (isTrue != expr.isAnd) return traced ? Object(isTrue) : value;
    if (operand == expr.operands.back() && !traced) return value;
  }
  return *traced;
}

namespace {

/// Returns the `x & y` (or `|`, `^`) that an operand of a comparison is without parentheses, or null.
const BinaryExpr* bareBits(const Expr& operand) {
  const auto* bits = llvm::dyn_cast<BinaryExpr>(&operand);
  if (!bits || (bits->op != BinaryOp::And && bits->op != BinaryOp::Or && bits->op != BinaryOp::Xor)) return nullptr;
  return bits->loc.begin == bits->left->loc.begin ? bits : nullptr; // a place includes its parentheses
}

bool isNumeral(const Expr& expr) { return expr.kind == ExprKind::Int || expr.kind == ExprKind::Float; }

} // namespace

/// Warns of `a >= b & c <= d`, which Python reads as `a >= (b & c) <= d`. If one of the comparisons that may be meant
/// has two numerals, as in `0 <= x & 7 < 4`, the author knows the precedence.
void Tracer::warnOfPrecedence(const CompareExpr& expr) {
  for (size_t i = 0; i + 1 < expr.rest.size(); ++i) {
    const Expr &before = i ? *expr.rest[i - 1].second : *expr.first, &after = *expr.rest[i + 1].second;
    const BinaryExpr* bits = bareBits(*expr.rest[i].second);
    if (!bits || (isNumeral(before) && isNumeral(*bits->left)) || (isNumeral(*bits->right) && isNumeral(after)))
      continue;
    const auto text = [&](const Expr& one) { return diagnostics.textOf(one.loc); };
    const std::string left = fmt::format("{} {} ", text(before), spelling(expr.rest[i].first)),
                      right = fmt::format(" {} {}", spelling(expr.rest[i + 1].first), text(after));
    diagnostics.warn(
        expr.loc, diag::comparisonPrecedence, spelling(bits->op), left + "(" + text(*bits) + ")" + right,
        fmt::format("({}{}) {} ({}{})", left, text(*bits->left), spelling(bits->op), text(*bits->right), right));
    return;
  }
}

/// Warns of `flag & a >= b`, which Python reads as `(flag & a) >= b`. The types tell: one side of `&` is a bool.
void Tracer::warnOfMixedBits(const CompareExpr& expr, const Expr& operand) {
  const BinaryExpr* bits = bareBits(operand);
  if (!bits || expr.rest.size() != 1 || !mixedBits.contains(bits)) return;
  const auto text = [&](const Expr& one) { return diagnostics.textOf(one.loc); };
  const char *op = spelling(expr.rest[0].first), *bit = spelling(bits->op);
  const std::string first = text(*expr.first), last = text(*expr.rest[0].second), left = text(*bits->left),
                    right = text(*bits->right);
  const bool isFirst = &operand == expr.first;
  const std::string read =
      isFirst ? fmt::format("({}) {} {}", first, op, last) : fmt::format("{} {} ({})", first, op, last);
  const std::string meant = isFirst ? fmt::format("{} {} ({} {} {})", left, bit, right, op, last)
                                    : fmt::format("({} {} {}) {} {}", first, op, left, bit, right);
  diagnostics.warn(expr.loc, diag::comparisonPrecedence, spelling(bits->op), read, meant);
}

Object Tracer::evalCompare(const CompareExpr& expr) {
  warnOfPrecedence(expr);
  Object left = eval(*expr.first);
  warnOfMixedBits(expr, *expr.first);
  Object result = true;
  for (auto [op, operand] : expr.rest) {
    Object right = eval(*operand);
    warnOfMixedBits(expr, *operand);
    at = expr.loc;
    Object holds = compare(*this, op, left, right);
    if (holds.is<bool>() && !holds.as<bool>()) return false;
    if (result.isTraced() || result.isArrayLike())
      result = binary(*this, BinaryOp::And, result, holds);
    else
      result = holds;
    left = right;
  }
  return result;
}

Object Tracer::evalCall(const CallExpr& expr) {
  const auto* name = llvm::dyn_cast<NameExpr>(expr.callee);
  if (name && name->name == "super" && expr.arguments.empty()) return superOf();
  Object callee = evalFirst(*expr.callee);
  Arguments arguments;
  for (Expr* argument : expr.arguments) {
    if (argument->kind == ExprKind::Starred) {
      Object sequence = eval(*cast<StarredExpr>(argument)->value);
      at = argument->loc;
      for (Object item : items(sequence)) arguments.positional.push_back(item);
    } else {
      arguments.positional.push_back(evalLazy(*argument));
    }
  }
  if (arguments.positional.size() > kMaxItems)
    fail(diag::tooManyItems, Count(arguments.positional.size()), Count(kMaxItems));
  for (const Keyword& keyword : expr.keywords) {
    if (keyword.name.empty()) {
      addKeywords(eval(*keyword.value), arguments);
      continue;
    }
    for (auto& [name, value] : arguments.keywords)
      if (name == keyword.name) diagnostics.fail(keyword.loc, diag::repeatedArgument, std::string_view(name));
    arguments.keywords.emplace_back(keyword.name, evalLazy(*keyword.value));
  }
  at = expr.loc;
  return call(callee, arguments);
}

Object Tracer::evalSequence(const SequenceExpr& expr) {
  std::vector<Object> result;
  for (Expr* item : expr.items) {
    if (item->kind != ExprKind::Starred) {
      result.push_back(evalLazy(*item));
      continue;
    }
    Object sequence = eval(*cast<StarredExpr>(item)->value);
    at = item->loc;
    for (Object inner : items(sequence)) result.push_back(inner);
  }
  at = expr.loc;
  return makeSequence(expr.isList, std::move(result));
}

Object Tracer::evalSlice(const SliceExpr& expr) {
  SliceObject slice;
  if (expr.start) slice.start = eval(*expr.start);
  if (expr.stop) slice.stop = eval(*expr.stop);
  if (expr.step) slice.step = eval(*expr.step);
  return static_cast<const SliceObject*>(heap.make<SliceObject>(slice));
}

Object Tracer::evalComprehension(const ComprehensionExpr& expr) {
  Scope* outer = std::exchange(scope, heap.make<Scope>(scope));
  auto leave = llvm::make_scope_exit([&] { scope = outer; });
  std::vector<Object> result;
  runClauses(expr, 0, result);
  at = expr.loc;
  if (!expr.key) return makeSequence(/*isList=*/true, std::move(result));
  auto* dict = heap.make<Dict>();
  for (Object pair : result) setItem(*this, *dict, pair.as<Sequence*>()->items[0], pair.as<Sequence*>()->items[1]);
  return dict;
}

Object Tracer::evalDict(const DictExpr& expr) {
  auto* dict = heap.make<Dict>();
  for (auto [key, value] : expr.items) {
    if (key) {
      Object name = eval(*key);
      setItem(*this, *dict, name, evalLazy(*value));
      continue;
    }
    Object other = eval(*value);
    at = value->loc;
    if (!other.is<Dict*>()) fail(diag::notIterable, describe(other));
    for (auto [name, item] : other.as<Dict*>()->items) setItem(*this, *dict, name, item);
  }
  return dict;
}

/// **value of a call.
void Tracer::addKeywords(Object value, Arguments& arguments) {
  if (!value.is<Dict*>()) fail(diag::badArgument, "**", "a dict", describe(value));
  for (auto [key, item] : value.as<Dict*>()->items) {
    if (!key.is<const Str*>()) fail(diag::badArgument, "**", "a dict with names", describe(key));
    arguments.keywords.emplace_back(key.as<const Str*>()->text, item);
  }
}

void Tracer::runClauses(const ComprehensionExpr& expr, size_t clause, std::vector<Object>& result) {
  if (clause == expr.clauses.size()) {
    if (expr.key) {
      Object key = eval(*expr.key);
      result.push_back(makeSequence(false, {key, evalLazy(*expr.element)}));
    } else {
      result.push_back(evalLazy(*expr.element));
    }
    if (result.size() > kMaxItems) fail(diag::tooManyItems, Count(result.size()), Count(kMaxItems));
    return;
  }
  const ComprehensionClause& node = expr.clauses[clause];
  Object iterable = eval(*node.iterable);
  at = node.iterable->loc;
  forEach(iterable, [&](Object item) {
    assign(*node.target, item);
    for (Expr* condition : node.conditions) {
      Object holds = eval(*condition);
      at = condition->loc;
      if (!truth(*this, holds)) return true;
    }
    runClauses(expr, clause + 1, result);
    return true;
  });
}

Object Tracer::makeFunction(const FunctionNode& node) {
  std::vector<Object> defaults(node.parameters.size());
  for (size_t i = 0; i < defaults.size(); ++i)
    if (node.parameters[i].defaultValue) defaults[i] = evalLazy(*node.parameters[i].defaultValue);
  // Methods of a class do not see the names of its body.
  Scope* around = scope->isClass ? scope->parent : scope;
  return static_cast<const Function*>(heap.make<Function>(&node, around, scope->owner, std::move(defaults)));
}

Object Tracer::evalWith(const Expr& expr, llvm::ArrayRef<std::pair<llvm::StringRef, Object>> names) {
  Scope* outer = std::exchange(scope, heap.make<Scope>(&globals));
  auto leave = llvm::make_scope_exit([&] { scope = outer; });
  for (auto& [name, value] : names) scope->names[name] = value;
  watched = scope;
  return eval(expr);
}

std::vector<Object> Tracer::items(Object iterable) {
  std::vector<Object> result;
  forEach(iterable, [&](Object item) {
    result.push_back(item);
    if (result.size() > kMaxItems) fail(diag::tooManyItems, Count(result.size()), Count(kMaxItems));
    return true;
  });
  return result;
}

void Tracer::forEach(Object iterable, llvm::function_ref<bool(Object)> visit) {
  if (iterable.is<Sequence*>()) {
    // By index, because the body may append to the list.
    const auto& items = iterable.as<Sequence*>()->items;
    for (size_t i = 0; i < items.size(); ++i) {
      charge(1);
      if (!visit(items[i])) return;
    }
    return;
  }
  if (iterable.is<const RangeObject*>()) {
    const RangeObject range = *iterable.as<const RangeObject*>();
    uint64_t count = range.size();
    for (uint64_t i = 0; i < count; ++i) {
      charge(1);
      if (!visit(range.at(i))) return;
    }
    return;
  }
  if (iterable.is<Dict*>()) {
    const auto& items = iterable.as<Dict*>()->items;
    for (size_t i = 0; i < items.size(); ++i) {
      charge(1);
      if (!visit(items[i].first)) return;
    }
    return;
  }
  std::vector<Object> shape;
  if (iterable.isArrayLike()) shape = shapeOf(*this, iterable);
  if (shape.empty() || !shape[0].is<int64_t>()) fail(diag::notIterable, describe(iterable));
  for (int64_t i = 0; i < shape[0].as<int64_t>(); ++i) {
    charge(1);
    if (!visit(subscript(*this, iterable, i))) return;
  }
}

} // namespace attnc::dsl
