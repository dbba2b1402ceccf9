// Functions about objects: dicts, attributes and type tests; and functions that have no effect in a mod.
#include "dsl/builtins/builtins.h"
#include "dsl/objects/arithmetic.h"
#include "dsl/objects/comparison.h"
#include "dsl/objects/indexing.h"

namespace attnc::dsl {

namespace {

Object nothing(Context&, const Bound&) { return NoneObject{}; }
Object device(Context&, const Bound&) { return Opaque{"device"}; }
Object theFirst(Context&, const Bound& bound) { return bound.has(0) ? bound[0] : Object(NoneObject{}); }

/// dict(items, **items)
Object dict(Context& context, const Bound& bound) {
  auto* result = context.heap.make<Dict>();
  if (bound.has(0) && bound[0].is<Dict*>()) {
    for (auto [key, value] : bound[0].as<Dict*>()->items) setItem(context, *result, key, value);
  } else if (bound.has(0)) {
    for (Object pair : context.items(bound[0])) {
      std::vector<Object> parts = context.items(pair);
      if (parts.size() != 2) context.fail(diag::unpackCount, 2, Count(parts.size()));
      setItem(context, *result, parts[0], parts[1]);
    }
  }
  for (auto& [name, value] : bound.keywords) setItem(context, *result, context.makeStr(name.str()), value);
  return result;
}

Object get(Context& context, const Bound& bound) {
  if (const Object* item = findItem(context, *bound[0].as<Dict*>(), bound[1])) return *item;
  return bound.has(2) ? bound[2] : Object(NoneObject{});
}

enum class Part { Key, Value, Both };
template <Part part> Object partsOf(Context& context, const Bound& bound) {
  std::vector<Object> result;
  for (auto [key, value] : bound[0].as<Dict*>()->items)
    result.push_back(part == Part::Key ? key : part == Part::Value ? value : context.makeSequence(false, {key, value}));
  return context.makeSequence(true, std::move(result));
}

Object update(Context& context, const Bound& bound) {
  if (bound.has(1) && !bound[1].is<Dict*>())
    context.fail(diag::badArgument, "update", "a dict", context.describe(bound[1]));
  Dict& dict = *bound[0].as<Dict*>();
  if (bound.has(1)) {
    const auto items = bound[1].as<Dict*>()->items; // a copy: it may be the dict itself
    for (auto [key, value] : items) setItem(context, dict, key, value);
  }
  for (auto& [name, value] : bound.keywords) setItem(context, dict, context.makeStr(name.str()), value);
  return NoneObject{};
}

Object copyDict(Context& context, const Bound& bound) {
  context.charge(1 + bound[0].as<Dict*>()->items.size());
  return context.heap.make<Dict>(bound[0].as<Dict*>()->items);
}

// Attributes --------------------------------------------------------------------------------------------------------

llvm::StringRef nameArgument(Context& context, const Bound& bound, size_t i) {
  if (!bound[i].is<const Str*>())
    context.fail(diag::badArgument, bound.builtin->name, "a name", context.describe(bound[i]));
  return bound[i].as<const Str*>()->text;
}

/// getattr and hasattr. If the attributes of an object are unknown, so is whether it has this one.
Object getAttribute(Context& context, const Bound& bound) {
  llvm::StringRef name = nameArgument(context, bound, 1);
  Object value;
  if (!context.attempt([&] { value = context.attribute(bound[0], name); }, /*takesRaised=*/true)) return value;
  if (bound.values[2]) return bound[2];
  return context.attribute(bound[0], name);
}

Object hasAttribute(Context& context, const Bound& bound) {
  llvm::StringRef name = nameArgument(context, bound, 1);
  return !context.attempt([&] { context.attribute(bound[0], name); }, /*takesRaised=*/true);
}

Object setAttributeOf(Context& context, const Bound& bound) {
  context.setAttribute(bound[0], nameArgument(context, bound, 1), bound[2]);
  return NoneObject{};
}

/// self.register_buffer(name, tensor)
Object registerBuffer(Context& context, const Bound& bound) {
  context.setAttribute(bound[0], nameArgument(context, bound, 1), bound[2]);
  return NoneObject{};
}

/// The `__init__` of a dataclass, bound to an object and the class.
Object setFields(Context& context, const Bound& bound) {
  Arguments given{{bound.rest.begin() + 2, bound.rest.end()}, {bound.keywords.begin(), bound.keywords.end()}};
  context.setFields(*bound.rest[0].as<Instance*>(), *bound.rest[1].as<Class*>(), given);
  return NoneObject{};
}

// Kinds -------------------------------------------------------------------------------------------------------------

bool isA(Context& context, Object value, Object type) {
  if (type.is<Sequence*>()) {
    for (Object one : context.items(type))
      if (isA(context, value, one)) return true;
    return false;
  }
  if (type.is<Class*>())
    return value.is<Instance*>() && llvm::is_contained(value.as<Instance*>()->type->order, type.as<Class*>());
  llvm::StringRef name;
  if (type.is<const Builtin*>()) name = type.as<const Builtin*>()->name;
  if (type.is<Opaque>()) name = type.as<Opaque>().name;
  // A run-time scalar is a Python number. An index, a score or an element of a tensor is a 0-d tensor.
  bool isScalar = false;
  ir::Type scalar = ir::Type::Bool;
  if (value.isTraced()) {
    const ir::Node& node = context.module[value.as<ir::Value>()];
    isScalar = node.op == ir::Op::Scalar || node.op == ir::Op::Dim;
    scalar = node.type;
  }
  if (name == "Tensor") return value.isArrayLike() || (value.isTraced() && !isScalar);
  if (name == "bool") return value.is<bool>() || (isScalar && scalar == ir::Type::Bool);
  if (name == "int") return value.is<int64_t>() || value.is<bool>() || (isScalar && scalar != ir::Type::F32);
  if (name == "float") return value.is<double>() || (isScalar && scalar == ir::Type::F32);
  if (name == "str") return value.is<const Str*>();
  if (name == "list") return value.is<Sequence*>() && value.as<Sequence*>()->isList;
  if (name == "tuple") return value.is<Sequence*>() && !value.as<Sequence*>()->isList;
  if (name == "dict") return value.is<Dict*>();
  if (name == "Callable") return value.isCallable();
  if (name == "BlockMask") return false;
  context.fail(diag::badArgument, "isinstance", "a class of Python, of torch or of the text", context.describe(type));
}

Object isInstance(Context& context, const Bound& bound) { return isA(context, bound[0], bound[1]); }

/// create_block_mask(mask_mod, ...): returns the mod itself. attnc decides when to build block masks.
Object blockMask(Context& context, const Bound& bound) {
  context.flexCalls.push_back(
      {context.at, bound.builtin->name, NoneObject{}, bound[0], NoneObject{}, NoneObject{}, NoneObject{}});
  if (bound[0].is<const Deferred*>()) context.force(*bound[0].as<const Deferred*>());
  return bound[0];
}

/// flex_attention(query, key, value, ...): records its mods; it computes nothing here.
Object flexAttention(Context& context, const Bound& bound) {
  const auto given = [&](size_t i) { return bound.has(i) ? bound[i] : Object(NoneObject{}); };
  context.flexCalls.push_back({context.at, bound.builtin->name, given(3), given(4), given(9), given(10), given(11)});
  return Opaque{"what flex_attention computes"};
}

/// reduce_sum(function) and reduce_max(function): what an output of the mod is declared as.
template <bool isMax> Object reduced(Context& context, const Bound& bound) {
  return static_cast<const ReducedObject*>(context.heap.make<ReducedObject>(isMax, bound[0]));
}

/// causal_mask of attention-gym.
Object causalMask(Context& context, const Bound& bound) { return compare(context, CompareOp::Ge, bound[2], bound[3]); }

/// cdiv of attention-gym: the quotient, rounded up.
Object cdiv(Context& context, const Bound& bound) {
  Object up = binary(context, BinaryOp::Sub, binary(context, BinaryOp::Add, bound[0], bound[1]), int64_t(1));
  return binary(context, BinaryOp::FloorDiv, up, bound[1]);
}

} // namespace

llvm::ArrayRef<Builtin> objectBuiltins() {
  static const Builtin rows[] = {
      {"print", kPython | kAnything, "*values, **options", nothing},
      {"compile", kTorch | kAnything, "model=, **options", theFirst},
      {"device", kTorch | kAnything, "type=, index=", device},
      {"set_default_device", kTorch | kAnything, "device=", nothing},
      {"manual_seed", kTorch | kAnything, "seed", nothing},
      {"set_float32_matmul_precision", kTorch | kAnything, "precision", nothing},
      {"__init__", kIgnored | kAnything, "*values, **options", nothing},
      {"set_fields", kIgnored | kAnything, "*values, **options", setFields},
      {"register_buffer", kIgnored | kAnything, "self, name, tensor, persistent=", registerBuffer},
      {"dict", kPython | kAnything, "items=, **more", dict},
      {"get", kDictMethod | kAnything, "dict, key, default=", get},
      {"keys", kDictMethod, "dict", partsOf<Part::Key>},
      {"values", kDictMethod, "dict", partsOf<Part::Value>},
      {"items", kDictMethod, "dict", partsOf<Part::Both>},
      {"update", kDictMethod | kAnything, "dict, other=, **more", update},
      {"copy", kDictMethod, "dict", copyDict},
      {"getattr", kPython | kAnything, "object, name, default=", getAttribute},
      {"hasattr", kPython, "object, name", hasAttribute},
      {"setattr", kPython | kAnything, "object, name, value", setAttributeOf},
      {"isinstance", kPython, "object, type", isInstance},
      {"create_block_mask", kFlex | kAnything, "mask_mod, B=, H=, Q_LEN=, KV_LEN=, **options", blockMask},
      {"flex_attention", kFlex | kAnything,
       "query, key, value, score_mod=, block_mask=, scale=, enable_gqa=, return_lse=, kernel_options=, prob_mod=, "
       "sink_mod=, weight_mod=, **options",
       flexAttention},
      {"reduce_sum", kAttnc | kAnything, "function", reduced<false>},
      {"reduce_max", kAttnc | kAnything, "function", reduced<true>},
      {"causal_mask", kGym, "b, h, q_idx, kv_idx", causalMask},
      {"cdiv", kGym, "a, b", cdiv},
  };
  return rows;
}

} // namespace attnc::dsl
