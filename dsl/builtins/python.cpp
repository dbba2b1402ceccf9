// Python's own functions; and functions of functools and flex_attention that take functions.
#include "dsl/builtins/builtins.h"
#include "dsl/objects/arithmetic.h"
#include "dsl/objects/arrays.h"
#include "dsl/objects/known_numbers.h"
#include "dsl/objects/repairs.h"
#include "dsl/objects/scalar_operators.h"
#include "dsl/objects/scalars.h"
#include "dsl/objects/tensors.h"

#include <llvm/ADT/StringExtras.h>

#include <cmath>

namespace attnc::dsl {

namespace {

/// Returns the items of min(a, b, ...) or of min(iterable).
std::vector<Object> operandsOf(Context& context, const Bound& bound) {
  std::vector<Object> items = bound.rest.size() == 1 ? context.items(bound.rest[0]) : bound.rest;
  if (items.empty()) context.fail(diag::emptyReduction);
  return items;
}

template <bool isMin> Object pickExtreme(Context& context, const Bound& bound) {
  std::vector<Object> items = operandsOf(context, bound);
  Object result = scalar(context, items[0], bound.builtin->name);
  for (size_t i = 1; i < items.size(); ++i)
    result = minMax(context, isMin, result, scalar(context, items[i], bound.builtin->name));
  return result;
}

Object sum(Context& context, const Bound& bound) {
  Object result = bound.has(1) ? bound[1] : Object(int64_t(0));
  if (bound[0].isArrayLike() && !shapeOf(context, bound[0]).empty())
    return binary(context, BinaryOp::Add, result, totalAsItems(context, bound[0], 0));
  for (Object item : context.items(bound[0])) result = binary(context, BinaryOp::Add, result, item);
  return result;
}

/// any, all: known items decide at once; traced ones are combined.
template <bool isAll> Object anyAllItems(Context& context, const Bound& bound) {
  std::optional<Object> traced;
  for (Object item : context.items(bound[0])) {
    item = decay(context, item);
    if (item.isTraced()) {
      item = asBool(context, item);
      traced = traced ? binary(context, isAll ? BinaryOp::And : BinaryOp::Or, *traced, item) : item;
    } else if (truth(context, item) != isAll) {
      return !isAll;
    }
  }
  return traced.value_or(isAll);
}

Object len(Context& context, const Bound& bound) {
  Object value = bound[0];
  if (value.is<Sequence*>()) return int64_t(value.as<Sequence*>()->items.size());
  if (value.is<const Str*>()) // counts characters, not UTF-8 bytes
    return int64_t(llvm::count_if(value.as<const Str*>()->text, [](char c) { return (c & 0xc0) != 0x80; }));
  if (value.is<Dict*>()) return int64_t(value.as<Dict*>()->items.size());
  if (value.is<const RangeObject*>() && value.as<const RangeObject*>()->size() <= INT64_MAX)
    return int64_t(value.as<const RangeObject*>()->size());
  if (value.is<Instance*>())
    if (std::optional<Object> said = length(context, *value.as<Instance*>())) return *said;
  std::vector<Object> shape;
  if (value.isArrayLike()) shape = shapeOf(context, value);
  if (shape.empty()) context.fail(diag::badArgument, "len", "a sequence", context.describe(value));
  return shape[0];
}

int64_t knownInt(Context& context, const Bound& bound, Object value) {
  value = decay(context, value);
  if (value.is<bool>()) return value.as<bool>();
  if (!value.is<int64_t>())
    context.fail(diag::badArgument, bound.builtin->name, "an int that is known when the mod is compiled",
                 describeOrigin(context, value));
  return value.as<int64_t>();
}

Object range(Context& context, const Bound& bound) {
  for (const std::optional<Object>& part : bound.values) {
    const Object end = part ? decay(context, *part) : Object(NoneObject{});
    if (!end.isTraced()) continue;
    const std::string text = context.diagnostics.textOf(context.at);
    llvm::StringRef written = text;
    const bool isPlain =
        written.size() < 60 && written.consume_front("range(") && written.consume_back(")") && !written.contains(',');
    context.fail(diag::tracedLoop, describeOrigin(context, end), isPlain ? std::string_view(written) : "n");
  }
  auto* result = context.heap.make<RangeObject>();
  result->stop = knownInt(context, bound, bound[0]);
  if (bound.has(1)) {
    result->start = result->stop;
    result->stop = knownInt(context, bound, bound[1]);
  }
  if (bound.has(2)) result->step = knownInt(context, bound, bound[2]);
  if (result->step == 0) context.fail(diag::badSliceStep);
  return static_cast<const RangeObject*>(result);
}

Object enumerate(Context& context, const Bound& bound) {
  Object index = bound.has(1) ? knownInt(context, bound, bound[1]) : int64_t(0);
  std::vector<Object> result;
  for (Object item : context.items(bound[0])) {
    if (!result.empty()) index = binary(context, BinaryOp::Add, index, int64_t(1));
    result.push_back(context.makeSequence(false, {index, item}));
  }
  return context.makeSequence(true, std::move(result));
}

Object zip(Context& context, const Bound& bound) {
  std::vector<std::vector<Object>> columns;
  size_t count = bound.rest.empty() ? 0 : kMaxItems;
  for (Object iterable : bound.rest) {
    columns.push_back(context.items(iterable));
    count = std::min(count, columns.back().size());
  }
  std::vector<Object> result;
  for (size_t i = 0; i < count; ++i) {
    std::vector<Object> row;
    for (auto& column : columns) row.push_back(column[i]);
    result.push_back(context.makeSequence(false, std::move(row)));
  }
  return context.makeSequence(true, std::move(result));
}

template <bool isList> Object toSequence(Context& context, const Bound& bound) {
  return context.makeSequence(isList, bound.has(0) ? context.items(bound[0]) : std::vector<Object>{});
}

Object reversedItems(Context& context, const Bound& bound) {
  std::vector<Object> items = context.items(bound[0]);
  return context.makeSequence(true, {items.rbegin(), items.rend()});
}

Object map(Context& context, const Bound& bound) {
  std::vector<Object> result;
  for (Object item : context.items(bound[1])) result.push_back(context.call(bound[0], {{item}, {}}));
  return context.makeSequence(true, std::move(result));
}

Object reduceItems(Context& context, const Bound& bound) {
  std::vector<Object> items = context.items(bound[1]);
  if (bound.has(2)) items.insert(items.begin(), bound[2]);
  if (items.empty()) context.fail(diag::emptyReduction);
  Object result = items[0];
  for (size_t i = 1; i < items.size(); ++i) result = context.call(bound[0], {{result, items[i]}, {}});
  return result;
}

/// float("inf"), float("-inf"), float("nan"), float("1e-3").
Object floatOf(Context& context, const Bound& bound) {
  if (!bound.has(0)) return 0.0;
  if (!bound[0].is<const Str*>()) return cast(context, scalar(context, bound[0], "float"), ir::Type::F32);
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
    context.fail(diag::badFloatText, std::string_view(text));
  return sign * value;
}

Object intOf(Context& context, const Bound& bound) {
  if (!bound.has(0)) return int64_t(0);
  Object value = scalar(context, bound[0], "int");
  if (value.isKnownNumber()) return toInt(context, value);
  const bool isWide = context.type(value.as<ir::Value>()) == ir::Type::I64;
  return Object(lift(context, value, isWide ? ir::Type::I64 : ir::Type::I32), Ints::Python);
}

Object boolOf(Context& context, const Bound& bound) {
  if (!bound.has(0)) return false;
  Object value = decay(context, bound[0]);
  return value.isTraced() ? asBool(context, value) : Object(truth(context, value));
}

/// round(x): half to even. A traced float stays a float.
Object round(Context& context, const Bound& bound) {
  Object value = scalar(context, bound[0], "round");
  if (value.is<double>()) return toInt(context, std::nearbyint(value.as<double>()));
  if (value.isKnownNumber() || context.type(value.as<ir::Value>()) != ir::Type::F32) return value;
  return context.make(ir::Op::Round, ir::Type::F32, {value.as<ir::Value>()});
}

Object divmod(Context& context, const Bound& bound) {
  return context.makeSequence(false, {binary(context, BinaryOp::FloorDiv, bound[0], bound[1]),
                                      binary(context, BinaryOp::Mod, bound[0], bound[1])});
}

Object partial(Context& context, const Bound& bound) {
  if (!bound[0].isCallable())
    context.fail(diag::notCallable, context.describe(bound[0]), callRepair(context, bound[0]));
  context.charge(1 + bound.rest.size());
  return static_cast<const Partial*>(context.heap.make<Partial>(bound[0], bound.rest, bound.keywords));
}

template <bool isAnd> Object combineMasks(Context& context, const Bound& bound) {
  for (Object mask : bound.rest)
    if (!mask.isCallable()) context.fail(diag::notCallable, context.describe(mask), callRepair(context, mask));
  context.charge(1 + bound.rest.size());
  return static_cast<const ModList*>(context.heap.make<ModList>(isAnd ? "and_masks" : "or_masks", bound.rest));
}

/// Returns the mod that sequence b has: mods[which[b]].
Object choice(Context& context, const Bound& bound) {
  if (bound.rest.empty()) context.fail(diag::badArgument, "choice", "at least one mod behind `which`", "none");
  for (Object mod : bound.rest)
    if (!mod.isCallable()) context.fail(diag::notCallable, context.describe(mod), callRepair(context, mod));
  const auto* which = bound[0].is<const Tensor*>() ? bound[0].as<const Tensor*>() : nullptr;
  const auto isOfSequences = [&] {
    const ir::TensorCapture& tensor = context.module.tensors[which->number];
    const ir::Type type = ir::loadedType(tensor.dtype);
    return tensor.shape.size() == 1 && tensor.shape[0].isNamed && tensor.shape[0].value == 0 && isInt(type) &&
           !which->axes[0].index && which->axes[0].start == 0 && which->axes[0].step == 1;
  };
  if (!which || !isOfSequences())
    context.fail(diag::badArgument, "choice", "a captured tensor of one int for each sequence, `which: i32[B]`",
                 which ? "a tensor of another shape or dtype" : context.describe(bound[0]));
  context.charge(1 + bound.rest.size());
  return static_cast<const ModList*>(context.heap.make<ModList>("choice", bound.rest, which));
}

Object isCallable(Context&, const Bound& bound) { return bound[0].isCallable(); }

Object noopMask(Context&, const Bound&) { return true; }

Object identityScore(Context&, const Bound& bound) { return bound[0]; }

Object append(Context& context, const Bound& bound) {
  auto& items = bound[0].as<Sequence*>()->items;
  if (items.size() >= kMaxItems) context.fail(diag::tooManyItems, Count(items.size() + 1), Count(kMaxItems));
  items.push_back(bound[1]);
  return NoneObject{};
}

Object extend(Context& context, const Bound& bound) {
  std::vector<Object> more = context.items(bound[1]);
  auto& items = bound[0].as<Sequence*>()->items;
  if (items.size() + more.size() > kMaxItems)
    context.fail(diag::tooManyItems, Count(items.size() + more.size()), Count(kMaxItems));
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
      {"and_masks", kPython | kFlex | kAttnc, "*masks", combineMasks<true>},
      {"or_masks", kPython | kFlex | kAttnc, "*masks", combineMasks<false>},
      {"choice", kPython | kAttnc, "which, *mods", choice},
      {"noop_mask", kPython | kFlex | kAttnc, "b=, h=, q_idx=, kv_idx=", noopMask},
      {"_identity", kFlex, "score, b, h, q_idx, kv_idx", identityScore},
      {"append", kListMethod, "list, value", append},
      {"extend", kListMethod, "list, iterable", extend},
  };
  return rows;
}

} // namespace attnc::dsl
