// Python's own functions; and functions of functools and flex_attention that take functions.
#include "dsl/builtins/builtins.h"
#include "dsl/objects/arithmetic.h"
#include "dsl/objects/arrays.h"
#include "dsl/objects/known_numbers.h"
#include "dsl/tracing/tracer.h"

#include <llvm/ADT/StringExtras.h>

#include <cmath>

namespace attnc::dsl {

namespace {

/// Returns the items of min(a, b, ...) or of min(iterable).
std::vector<Object> operandsOf(Tracer& tracer, const Bound& bound) {
  std::vector<Object> items = bound.rest.size() == 1 ? tracer.items(bound.rest[0]) : bound.rest;
  if (items.empty()) tracer.fail(diag::emptyReduction);
  return items;
}

template <bool isMin> Object pickExtreme(Tracer& tracer, const Bound& bound) {
  std::vector<Object> items = operandsOf(tracer, bound);
  Object result = scalar(tracer, items[0], bound.builtin->name);
  for (size_t i = 1; i < items.size(); ++i)
    result = minMax(tracer, isMin, result, scalar(tracer, items[i], bound.builtin->name));
  return result;
}

Object sum(Tracer& tracer, const Bound& bound) {
  Object result = bound.has(1) ? bound[1] : Object(int64_t(0));
  if (bound[0].isArrayLike() && !shapeOf(tracer, bound[0]).empty())
    return binary(tracer, BinaryOp::Add, result, total(tracer, bound[0], 0));
  for (Object item : tracer.items(bound[0])) result = binary(tracer, BinaryOp::Add, result, item);
  return result;
}

/// any, all: known items decide at once; traced ones are combined.
template <bool isAll> Object anyAllItems(Tracer& tracer, const Bound& bound) {
  std::optional<Object> traced;
  for (Object item : tracer.items(bound[0])) {
    item = decay(tracer, item);
    if (item.isTraced()) {
      item = asBool(tracer, item);
      traced = traced ? binary(tracer, isAll ? BinaryOp::And : BinaryOp::Or, *traced, item) : item;
    } else if (truth(tracer, item) != isAll) {
      return !isAll;
    }
  }
  return traced.value_or(isAll);
}

Object len(Tracer& tracer, const Bound& bound) {
  Object value = bound[0];
  if (value.is<Sequence*>()) return int64_t(value.as<Sequence*>()->items.size());
  if (value.is<const Str*>()) // counts characters, not UTF-8 bytes
    return int64_t(llvm::count_if(value.as<const Str*>()->text, [](char c) { return (c & 0xc0) != 0x80; }));
  if (value.is<Dict*>()) return int64_t(value.as<Dict*>()->items.size());
  if (value.is<const RangeObject*>() && value.as<const RangeObject*>()->size() <= INT64_MAX)
    return int64_t(value.as<const RangeObject*>()->size());
  if (value.is<Instance*>())
    if (std::optional<Object> said = length(tracer, *value.as<Instance*>())) return *said;
  std::vector<Object> shape;
  if (value.isArrayLike()) shape = shapeOf(tracer, value);
  if (shape.empty()) tracer.fail(diag::badArgument, "len", "a sequence", tracer.describe(value));
  return shape[0];
}

int64_t knownInt(Tracer& tracer, const Bound& bound, Object value) {
  value = decay(tracer, value);
  if (value.is<bool>()) return value.as<bool>();
  if (!value.is<int64_t>())
    tracer.fail(diag::badArgument, bound.builtin->name, "an int known before launch", tracer.describe(value));
  return value.as<int64_t>();
}

Object range(Tracer& tracer, const Bound& bound) {
  auto* result = tracer.heap.make<RangeObject>();
  result->stop = knownInt(tracer, bound, bound[0]);
  if (bound.has(1)) {
    result->start = result->stop;
    result->stop = knownInt(tracer, bound, bound[1]);
  }
  if (bound.has(2)) result->step = knownInt(tracer, bound, bound[2]);
  if (result->step == 0) tracer.fail(diag::badSliceStep);
  return static_cast<const RangeObject*>(result);
}

Object enumerate(Tracer& tracer, const Bound& bound) {
  Object index = bound.has(1) ? knownInt(tracer, bound, bound[1]) : int64_t(0);
  std::vector<Object> result;
  for (Object item : tracer.items(bound[0])) {
    if (!result.empty()) index = binary(tracer, BinaryOp::Add, index, int64_t(1));
    result.push_back(tracer.makeSequence(false, {index, item}));
  }
  return tracer.makeSequence(true, std::move(result));
}

Object zip(Tracer& tracer, const Bound& bound) {
  std::vector<std::vector<Object>> columns;
  size_t count = bound.rest.empty() ? 0 : kMaxItems;
  for (Object iterable : bound.rest) {
    columns.push_back(tracer.items(iterable));
    count = std::min(count, columns.back().size());
  }
  std::vector<Object> result;
  for (size_t i = 0; i < count; ++i) {
    std::vector<Object> row;
    for (auto& column : columns) row.push_back(column[i]);
    result.push_back(tracer.makeSequence(false, std::move(row)));
  }
  return tracer.makeSequence(true, std::move(result));
}

template <bool isList> Object toSequence(Tracer& tracer, const Bound& bound) {
  return tracer.makeSequence(isList, bound.has(0) ? tracer.items(bound[0]) : std::vector<Object>{});
}

Object reversedItems(Tracer& tracer, const Bound& bound) {
  std::vector<Object> items = tracer.items(bound[0]);
  return tracer.makeSequence(true, {items.rbegin(), items.rend()});
}

Object map(Tracer& tracer, const Bound& bound) {
  std::vector<Object> result;
  for (Object item : tracer.items(bound[1])) result.push_back(tracer.call(bound[0], {{item}, {}}));
  return tracer.makeSequence(true, std::move(result));
}

Object reduceItems(Tracer& tracer, const Bound& bound) {
  std::vector<Object> items = tracer.items(bound[1]);
  if (bound.has(2)) items.insert(items.begin(), bound[2]);
  if (items.empty()) tracer.fail(diag::emptyReduction);
  Object result = items[0];
  for (size_t i = 1; i < items.size(); ++i) result = tracer.call(bound[0], {{result, items[i]}, {}});
  return result;
}

/// float("inf"), float("-inf"), float("nan"), float("1e-3").
Object floatOf(Tracer& tracer, const Bound& bound) {
  if (!bound.has(0)) return 0.0;
  if (!bound[0].is<const Str*>()) return cast(tracer, scalar(tracer, bound[0], "float"), ir::Type::F32);
  llvm::StringRef text = llvm::StringRef(bound[0].as<const Str*>()->text).trim();
  std::string word = text.lower();
  double sign = word[0] == '-' ? -1 : 1;
  if (word[0] == '-' || word[0] == '+') word.erase(0, 1);
  if (word == "inf" || word == "infinity") return sign * HUGE_VAL;
  if (word == "nan") return std::nan("");
  double value = 0;
  bool isNumber = !word.empty() && (llvm::isDigit(word[0]) || word[0] == '.') &&
                  word.find_first_not_of("0123456789.e+-") == std::string::npos;
  if (!isNumber || text.size() > kMaxNumberChars || llvm::StringRef(word).getAsDouble(value))
    tracer.fail(diag::badFloatText, std::string_view(text));
  return sign * value;
}

Object intOf(Tracer& tracer, const Bound& bound) {
  if (!bound.has(0)) return int64_t(0);
  Object value = scalar(tracer, bound[0], "int");
  if (value.isKnownNumber()) return toInt(tracer, value);
  bool isWide = tracer.type(value.as<ir::Value>()) == ir::Type::I64;
  return lift(tracer, value, isWide ? ir::Type::I64 : ir::Type::I32);
}

Object boolOf(Tracer& tracer, const Bound& bound) {
  if (!bound.has(0)) return false;
  Object value = decay(tracer, bound[0]);
  return value.isTraced() ? asBool(tracer, value) : Object(truth(tracer, value));
}

/// round(x): half to even. A traced float stays a float.
Object round(Tracer& tracer, const Bound& bound) {
  Object value = scalar(tracer, bound[0], "round");
  if (value.is<double>()) return toInt(tracer, std::nearbyint(value.as<double>()));
  if (value.isKnownNumber() || tracer.type(value.as<ir::Value>()) != ir::Type::F32) return value;
  return tracer.make(ir::Op::Round, ir::Type::F32, {value.as<ir::Value>()});
}

Object divmod(Tracer& tracer, const Bound& bound) {
  return tracer.makeSequence(false, {binary(tracer, BinaryOp::FloorDiv, bound[0], bound[1]),
                                     binary(tracer, BinaryOp::Mod, bound[0], bound[1])});
}

Object partial(Tracer& tracer, const Bound& bound) {
  if (!bound[0].isCallable()) tracer.fail(diag::notCallable, tracer.describe(bound[0]));
  tracer.charge(1 + bound.rest.size());
  return static_cast<const Partial*>(tracer.heap.make<Partial>(bound[0], bound.rest, bound.keywords));
}

template <bool isAnd> Object combineMasks(Tracer& tracer, const Bound& bound) {
  for (Object mask : bound.rest)
    if (!mask.isCallable()) tracer.fail(diag::notCallable, tracer.describe(mask));
  tracer.charge(1 + bound.rest.size());
  return static_cast<const MaskList*>(tracer.heap.make<MaskList>(isAnd, bound.rest));
}

Object isCallable(Tracer&, const Bound& bound) { return bound[0].isCallable(); }

Object noopMask(Tracer&, const Bound&) { return true; }

Object identityScore(Tracer&, const Bound& bound) { return bound[0]; }

Object append(Tracer& tracer, const Bound& bound) {
  auto& items = bound[0].as<Sequence*>()->items;
  if (items.size() >= kMaxItems) tracer.fail(diag::tooManyItems, Count(items.size() + 1), Count(kMaxItems));
  items.push_back(bound[1]);
  return NoneObject{};
}

Object extend(Tracer& tracer, const Bound& bound) {
  std::vector<Object> more = tracer.items(bound[1]);
  auto& items = bound[0].as<Sequence*>()->items;
  if (items.size() + more.size() > kMaxItems)
    tracer.fail(diag::tooManyItems, Count(items.size() + more.size()), Count(kMaxItems));
  items.insert(items.end(), more.begin(), more.end());
  return NoneObject{};
}

} // namespace

llvm::ArrayRef<Builtin> pythonBuiltins() {
  static const Builtin rows[] = {
      {"min", kPython, "*values", pickExtreme<true>},
      {"max", kPython, "*values", pickExtreme<false>},
      {"sum", kPython, "iterable, start=", sum},
      {"any", kPython, "iterable", anyAllItems<false>},
      {"all", kPython, "iterable", anyAllItems<true>},
      {"callable", kPython, "value", isCallable},
      {"len", kPython, "value", len},
      {"range", kPython, "start, stop=, step=", range},
      {"enumerate", kPython, "iterable, start=", enumerate},
      {"zip", kPython, "*iterables", zip},
      {"list", kPython, "iterable=", toSequence<true>},
      {"tuple", kPython, "iterable=", toSequence<false>},
      {"reversed", kPython, "iterable", reversedItems},
      {"map", kPython, "function, iterable", map},
      {"float", kPython, "value=", floatOf},
      {"int", kPython, "value=", intOf},
      {"bool", kPython, "value=", boolOf},
      {"round", kPython | kElementwise, "value", round},
      {"divmod", kPython, "left, right", divmod},
      {"partial", kPython | kFunctools, "function, *arguments, **keywords", partial},
      {"reduce", kFunctools, "function, iterable, initial=", reduceItems},
      {"and_masks", kPython | kFlex, "*masks", combineMasks<true>},
      {"or_masks", kPython | kFlex, "*masks", combineMasks<false>},
      {"noop_mask", kPython | kFlex, "b=, h=, q_idx=, kv_idx=", noopMask},
      {"_identity", kFlex, "score, b, h, q_idx, kv_idx", identityScore},
      {"append", kListMethod, "list, value", append},
      {"extend", kListMethod, "list, iterable", extend},
  };
  return rows;
}

} // namespace attnc::dsl
