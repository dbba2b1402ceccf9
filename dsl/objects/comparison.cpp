// In: a comparison of two values of any kind. Out: a bool, known or traced; for arrays, an array of bools.
#include "dsl/objects/comparison.h"

#include "dsl/ir_names.h"
#include "dsl/objects/arithmetic.h"
#include "dsl/objects/arrays.h"
#include "dsl/objects/repairs.h"
#include "dsl/objects/scalar_operators.h"
#include "dsl/objects/scalars.h"
#include "dsl/objects/tensors.h"

namespace attnc::dsl {

namespace {

bool isOrdering(CompareOp op) {
  return op == CompareOp::Lt || op == CompareOp::Le || op == CompareOp::Gt || op == CompareOp::Ge;
}

/// Whether a method returned NotImplemented, which leaves the comparison to the other operand.
bool isNotImplemented(Object value) { return value.is<Opaque>() && value.as<Opaque>().name == "NotImplemented"; }

/// Returns the conjunction of two bools, known or traced.
Object conjunction(Context& context, Object a, Object b) {
  if (a.is<bool>()) return a.as<bool>() ? b : a;
  if (b.is<bool>()) return b.as<bool>() ? a : b;
  return binaryScalars(context, BinaryOp::And, a, b);
}

Object equalObjects(Context& context, Object left, Object right, unsigned depth);

/// Returns what the class of `self` says about self == other; nullopt if it leaves that to the other operand.
std::optional<Object> ownEquality(Context& context, Instance& self, Object other, unsigned depth) {
  for (const Class* part : self.type->order) {
    if (part->members.count("__eq__")) {
      const Object said = *context.callMethod(self, "__eq__", {other});
      return isNotImplemented(said) ? std::nullopt : std::optional(said);
    }
    if (!part->hasFieldEquality) continue;
    if (!other.is<Instance*>() || other.as<Instance*>()->type != self.type) return std::nullopt;
    Object equal = true;
    for (llvm::StringRef field : fieldsOf(*part)) {
      const auto valueOf = [&](const Instance& instance) {
        auto own = instance.names.find(field);
        return own != instance.names.end() ? own->second : *findMember(*instance.type, field);
      };
      equal = conjunction(context, equal, equalObjects(context, valueOf(self), valueOf(*other.as<Instance*>()), depth));
      if (equal.is<bool>() && !equal.as<bool>()) break;
    }
    return equal;
  }
  return std::nullopt;
}

/// == and != if one operand is an object of a class. Asks its method, then that of the other operand, then compares
/// identity. If one class derives from the other, the derived one is asked first.
Object compareInstances(Context& context, bool isEqual, Object left, Object right, unsigned depth) {
  Instance* a = left.is<Instance*>() ? left.as<Instance*>() : nullptr;
  Instance* b = right.is<Instance*>() ? right.as<Instance*>() : nullptr;
  if (a && b && a->type != b->type && llvm::is_contained(b->type->order, a->type)) {
    std::swap(a, b);
    std::swap(left, right);
  }
  const auto ask = [&](Instance* self, Object other) -> std::optional<Object> {
    if (!self) return std::nullopt;
    if (!isEqual && findMember(*self->type, "__ne__")) {
      const Object said = *context.callMethod(*self, "__ne__", {other});
      return isNotImplemented(said) ? std::nullopt : std::optional(said);
    }
    std::optional<Object> said = ownEquality(context, *self, other, depth);
    return said && !isEqual ? unary(context, UnaryOp::Not, *said) : said;
  };
  if (std::optional<Object> said = ask(a, right)) return *said;
  if (std::optional<Object> said = ask(b, left)) return *said;
  // A class of another module may define its own comparison.
  if (a && b && a != b && (isForeign(*a->type) || isForeign(*b->type)))
    context.badOperands(spelling(isEqual ? CompareOp::Eq : CompareOp::Ne), left, right);
  return (a == b) == isEqual;
}

/// Returns equality as a bool that may be traced. Sequences are compared item by item; `depth` bounds the recursion.
Object equalObjects(Context& context, Object left, Object right, unsigned depth) {
  context.charge(1);
  if (depth > kMaxNesting) context.fail(diag::nestedTooDeeply, Count(kMaxNesting));
  left = decay(context, left);
  right = decay(context, right);
  if (left.isNumber() && right.isNumber()) return compareScalars(context, CompareOp::Eq, left, right);
  if (left.is<Instance*>() || right.is<Instance*>()) {
    const Object equal = compareInstances(context, true, left, right, depth + 1);
    return equal.isTraced() ? asBool(context, equal) : Object(truth(context, equal));
  }
  if (left.isArrayLike() || right.isArrayLike()) context.badOperands(spelling(CompareOp::Eq), left, right);
  if (left.storage.index() != right.storage.index()) return false;
  if (left.is<NoneObject>() || left.is<EllipsisObject>()) return true;
  if (left.is<const Str*>()) return left.as<const Str*>()->text == right.as<const Str*>()->text;
  if (left.is<DTypeObject>()) return left.as<DTypeObject>().type == right.as<DTypeObject>().type;
  if (left.is<const Builtin*>()) return left.as<const Builtin*>() == right.as<const Builtin*>();
  if (left.is<const Function*>()) return left.as<const Function*>() == right.as<const Function*>();
  if (left.is<Class*>()) return left.as<Class*>() == right.as<Class*>();
  if (left.is<Opaque>()) return left.as<Opaque>().name == right.as<Opaque>().name;
  if (!left.is<Sequence*>()) context.badOperands(spelling(CompareOp::Eq), left, right);
  const auto &a = left.as<Sequence*>()->items, &b = right.as<Sequence*>()->items;
  if (a.size() != b.size() || left.as<Sequence*>()->isList != right.as<Sequence*>()->isList) return false;
  Object equal = true;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    equal = conjunction(context, equal, equalObjects(context, a[i], b[i], depth + 1));
    if (equal.is<bool>() && !equal.as<bool>()) return false;
  }
  return equal;
}

/// `is` for None, bools, dtypes, functions, and mutable objects. For numbers, Python does not define it either.
bool identical(Context& context, Object left, Object right) {
  if (left.is<NoneObject>() || right.is<NoneObject>()) return left.is<NoneObject>() && right.is<NoneObject>();
  if (left.isTraced() || left.is<int64_t>() || left.is<double>())
    context.badOperands(spelling(CompareOp::Is), left, right);
  if (left.storage.index() != right.storage.index()) return false;
  if (left.is<bool>()) return left.as<bool>() == right.as<bool>();
  if (left.is<Sequence*>()) return left.as<Sequence*>() == right.as<Sequence*>();
  if (left.is<Dict*>()) return left.as<Dict*>() == right.as<Dict*>();
  if (left.is<Instance*>()) return left.as<Instance*>() == right.as<Instance*>();
  return truth(context, equalObjects(context, left, right, 0));
}

/// Returns the disjunction of the equalities. It is known as soon as one is known to hold.
Object contains(Context& context, Object item, Object container) {
  if (container.is<const RangeObject*>()) {
    const RangeObject& range = *container.as<const RangeObject*>();
    if (range.step != 1 || !item.isNumber()) context.badOperands(spelling(CompareOp::In), item, container);
    return binaryScalars(context, BinaryOp::And, compareScalars(context, CompareOp::Ge, item, range.start),
                         compareScalars(context, CompareOp::Lt, item, range.stop));
  }
  if (container.is<Dict*>()) return findItem(context, *container.as<Dict*>(), item) != nullptr;
  if (container.is<const Str*>() && item.is<const Str*>())
    return container.as<const Str*>()->text.find(item.as<const Str*>()->text) != std::string::npos;
  if (!container.is<Sequence*>()) context.badOperands(spelling(CompareOp::In), item, container);
  Object found = false;
  for (Object candidate : container.as<Sequence*>()->items) {
    context.charge(1);
    Object equal = equalObjects(context, item, candidate, 0);
    if (equal.is<bool>() && equal.as<bool>()) return true;
    if (equal.isTraced()) found = found.isTraced() ? binaryScalars(context, BinaryOp::Or, found, equal) : equal;
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
  if (isOrdering(op)) context.badOperands(spelling(op), left, right);
  if (left.is<Instance*>() || right.is<Instance*>())
    return compareInstances(context, op == CompareOp::Eq, left, right, 0);
  const Object equal = equalObjects(context, left, right, 0);
  return op == CompareOp::Eq ? equal : logicalNot(context, equal);
}

Object* findItem(Context& context, Dict& dict, Object key) {
  const bool isKey = key.isKnownNumber() || key.is<const Str*>() || key.is<NoneObject>() || key.is<DTypeObject>() ||
                     (key.is<Sequence*>() && !key.as<Sequence*>()->isList);
  if (!isKey) context.fail(diag::badKey, describeOrigin(context, key));
  for (auto& [other, value] : dict.items) {
    Object isEqual = other.storage.index() == key.storage.index() || (other.isNumber() && key.isNumber())
                         ? compare(context, CompareOp::Eq, other, key)
                         : Object(false);
    context.charge(1);
    if (isEqual.is<bool>() && isEqual.as<bool>()) return &value;
  }
  return nullptr;
}

} // namespace attnc::dsl
