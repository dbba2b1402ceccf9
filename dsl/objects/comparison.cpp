// In: a comparison of two values of any kind. Out: a bool, known or traced; for arrays an array of them.
#include "dsl/objects/arithmetic.h"
#include "dsl/objects/arrays.h"
#include "dsl/objects/indexing.h"
#include "dsl/objects/known_numbers.h"

namespace attnc::dsl {

using ir::Op;
using ir::Type;

namespace {

bool isOrdering(CompareOp op) {
  return op == CompareOp::Lt || op == CompareOp::Le || op == CompareOp::Gt || op == CompareOp::Ge;
}

[[noreturn]] void badOperands(Context& context, CompareOp op, Object left, Object right) {
  context.fail(diag::badOperands, spelling(op), context.describe(left), context.describe(right));
}

Object compareScalars(Context& context, CompareOp op, Object left, Object right) {
  if (left.isKnownNumber() && right.isKnownNumber()) return knownCompare(op, left, right);
  Type type = promote(context, {left, right}, /*arithmetic=*/isOrdering(op));
  if (op == CompareOp::Gt || op == CompareOp::Ge) std::swap(left, right);
  Op operation = op == CompareOp::Eq                          ? Op::Eq
                 : op == CompareOp::Ne                        ? Op::Ne
                 : op == CompareOp::Lt || op == CompareOp::Gt ? Op::Lt
                                                              : Op::Le;
  return context.make(operation, Type::Bool, {lift(context, left, type), lift(context, right, type)});
}

/// Equality of objects that are not numbers. Sequences are compared item by item; `depth` bounds the recursion.
bool equalObjects(Context& context, Object left, Object right, unsigned depth) {
  context.charge(1);
  if (depth > kMaxNesting) context.fail(diag::nestedTooDeeply, Count(kMaxNesting));
  if (left.isKnownNumber() && right.isKnownNumber()) return knownCompare(CompareOp::Eq, left, right);
  if (left.storage.index() != right.storage.index()) return false;
  if (left.is<NoneObject>() || left.is<EllipsisObject>()) return true;
  if (left.is<const Str*>()) return left.as<const Str*>()->text == right.as<const Str*>()->text;
  if (left.is<DTypeObject>()) return left.as<DTypeObject>().type == right.as<DTypeObject>().type;
  if (left.is<const Builtin*>()) return left.as<const Builtin*>() == right.as<const Builtin*>();
  if (left.is<const Function*>()) return left.as<const Function*>() == right.as<const Function*>();
  if (left.is<Class*>()) return left.as<Class*>() == right.as<Class*>();
  if (left.is<Instance*>()) return left.as<Instance*>() == right.as<Instance*>();
  if (left.is<Opaque>()) return left.as<Opaque>().name == right.as<Opaque>().name;
  if (!left.is<Sequence*>()) badOperands(context, CompareOp::Eq, left, right);
  const auto &a = left.as<Sequence*>()->items, &b = right.as<Sequence*>()->items;
  if (a.size() != b.size() || left.as<Sequence*>()->isList != right.as<Sequence*>()->isList) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!equalObjects(context, a[i], b[i], depth + 1)) return false;
  return true;
}

/// Equality of two sequences of one kind and length that hold traced numbers; nothing for others.
std::optional<Object> equalItems(Context& context, Object left, Object right, unsigned depth) {
  if (!left.is<Sequence*>() || !right.is<Sequence*>()) return std::nullopt;
  if (depth > kMaxNesting) context.fail(diag::nestedTooDeeply, Count(kMaxNesting));
  const auto &a = left.as<Sequence*>()->items, &b = right.as<Sequence*>()->items;
  if (a.size() != b.size() || left.as<Sequence*>()->isList != right.as<Sequence*>()->isList) return std::nullopt;
  context.charge(1 + a.size());
  const auto isTraced = [](const Object& item) { return item.isTraced(); };
  if (llvm::none_of(a, isTraced) && llvm::none_of(b, isTraced)) return std::nullopt;
  Object result = true;
  for (size_t i = 0; i < a.size(); ++i) {
    Object equal;
    if (!a[i].is<Sequence*>() || !b[i].is<Sequence*>())
      equal = compare(context, CompareOp::Eq, a[i], b[i]);
    else if (auto nested = equalItems(context, a[i], b[i], depth + 1))
      equal = *nested;
    else
      equal = equalObjects(context, a[i], b[i], depth + 1);
    if (equal.isArrayLike()) badOperands(context, CompareOp::Eq, left, right);
    if (equal.is<bool>() && !equal.as<bool>()) return false;
    if (equal.isTraced()) result = result.isTraced() ? binary(context, BinaryOp::And, result, equal) : equal;
  }
  return result;
}

/// `is`: of None, bools, dtypes and functions. For numbers Python does not define it either.
bool identical(Context& context, Object left, Object right) {
  if (left.is<NoneObject>() || right.is<NoneObject>()) return left.is<NoneObject>() && right.is<NoneObject>();
  if (left.isTraced() || left.is<int64_t>() || left.is<double>()) badOperands(context, CompareOp::Is, left, right);
  if (left.storage.index() != right.storage.index()) return false;
  if (left.is<bool>()) return left.as<bool>() == right.as<bool>();
  return equalObjects(context, left, right, 0);
}

/// Disjunction of equalities; known as soon as one is known to hold.
Object contains(Context& context, Object item, Object container) {
  if (container.is<const RangeObject*>()) {
    const RangeObject& range = *container.as<const RangeObject*>();
    if (range.step != 1 || !item.isNumber()) badOperands(context, CompareOp::In, item, container);
    return binary(context, BinaryOp::And, compareScalars(context, CompareOp::Ge, item, range.start),
                  compareScalars(context, CompareOp::Lt, item, range.stop));
  }
  if (container.is<Dict*>()) return findItem(context, *container.as<Dict*>(), item) != nullptr;
  if (container.is<const Str*>() && item.is<const Str*>())
    return container.as<const Str*>()->text.find(item.as<const Str*>()->text) != std::string::npos;
  if (!container.is<Sequence*>()) badOperands(context, CompareOp::In, item, container);
  Object found = false;
  for (Object candidate : container.as<Sequence*>()->items) {
    context.charge(1);
    Object equal = compare(context, CompareOp::Eq, item, candidate);
    if (equal.isArrayLike()) badOperands(context, CompareOp::In, item, container);
    if (equal.is<bool>() && equal.as<bool>()) return true;
    if (equal.isTraced()) found = found.isTraced() ? binary(context, BinaryOp::Or, found, equal) : equal;
  }
  return found;
}

} // namespace

Object compare(Context& context, CompareOp op, Object left, Object right) {
  left = decay(context, left);
  right = decay(context, right);
  switch (op) {
  case CompareOp::Is: return identical(context, left, right);
  case CompareOp::IsNot: return !identical(context, left, right);
  case CompareOp::In: return contains(context, left, right);
  case CompareOp::NotIn: return logicalNot(context, contains(context, left, right));
  case CompareOp::Eq:
  case CompareOp::Ne:
  case CompareOp::Lt:
  case CompareOp::Le:
  case CompareOp::Gt:
  case CompareOp::Ge: break;
  }
  if (left.isNumber() && right.isNumber()) return compareScalars(context, op, left, right);
  bool arrays =
      (left.isArrayLike() && (right.isArrayLike() || right.isNumber())) || (right.isArrayLike() && left.isNumber());
  if (arrays)
    return broadcast(context, {left, right},
                     [&](llvm::ArrayRef<Object> items) { return compare(context, op, items[0], items[1]); });
  if (isOrdering(op)) badOperands(context, op, left, right);
  if (std::optional<Object> equal = equalItems(context, left, right, 0))
    return op == CompareOp::Eq ? *equal : logicalNot(context, *equal);
  return equalObjects(context, left, right, 0) == (op == CompareOp::Eq);
}

} // namespace attnc::dsl
