// Functions about objects: dicts, attributes and type tests; and functions that have no effect in a mod.
#include "dsl/builtins/builtins.h"
#include "dsl/objects/arithmetic.h"
#include "dsl/objects/indexing.h"
#include "dsl/tracing/tracer.h"

namespace attnc::dsl {

namespace {

Object nothing(Tracer&, const Bound&) { return NoneObject{}; }
Object device(Tracer&, const Bound&) { return Opaque{"device"}; }
Object theFirst(Tracer&, const Bound& bound) { return bound.has(0) ? bound[0] : Object(NoneObject{}); }

/// dict(items, **items)
Object dict(Tracer& tracer, const Bound& bound) {
  auto* result = tracer.heap.make<Dict>();
  if (bound.has(0) && bound[0].is<Dict*>()) {
    for (auto [key, value] : bound[0].as<Dict*>()->items) setItem(tracer, *result, key, value);
  } else if (bound.has(0)) {
    for (Object pair : tracer.items(bound[0])) {
      std::vector<Object> parts = tracer.items(pair);
      if (parts.size() != 2) tracer.fail(diag::unpackCount, 2, Count(parts.size()));
      setItem(tracer, *result, parts[0], parts[1]);
    }
  }
  for (auto& [name, value] : bound.keywords) setItem(tracer, *result, tracer.makeStr(name.str()), value);
  return result;
}

Object get(Tracer& tracer, const Bound& bound) {
  if (const Object* item = findItem(tracer, *bound[0].as<Dict*>(), bound[1])) return *item;
  return bound.has(2) ? bound[2] : Object(NoneObject{});
}

enum class Part { Key, Value, Both };
template <Part part> Object partsOf(Tracer& tracer, const Bound& bound) {
  std::vector<Object> result;
  for (auto [key, value] : bound[0].as<Dict*>()->items)
    result.push_back(part == Part::Key ? key : part == Part::Value ? value : tracer.makeSequence(false, {key, value}));
  return tracer.makeSequence(true, std::move(result));
}

Object update(Tracer& tracer, const Bound& bound) {
  if (bound.has(1) && !bound[1].is<Dict*>())
    tracer.fail(diag::badArgument, "update", "a dict", tracer.describe(bound[1]));
  Dict& dict = *bound[0].as<Dict*>();
  if (bound.has(1)) {
    const auto items = bound[1].as<Dict*>()->items; // a copy: it may be the dict itself
    for (auto [key, value] : items) setItem(tracer, dict, key, value);
  }
  for (auto& [name, value] : bound.keywords) setItem(tracer, dict, tracer.makeStr(name.str()), value);
  return NoneObject{};
}

Object copyDict(Tracer& tracer, const Bound& bound) {
  tracer.charge(1 + bound[0].as<Dict*>()->items.size());
  return tracer.heap.make<Dict>(bound[0].as<Dict*>()->items);
}

// Attributes --------------------------------------------------------------------------------------------------------

llvm::StringRef nameArgument(Tracer& tracer, const Bound& bound, size_t i) {
  if (!bound[i].is<const Str*>())
    tracer.fail(diag::badArgument, bound.builtin->name, "a name", tracer.describe(bound[i]));
  return bound[i].as<const Str*>()->text;
}

/// getattr and hasattr. If the attributes of an object are unknown, so is whether it has this one.
Object getAttribute(Tracer& tracer, const Bound& bound) {
  llvm::StringRef name = nameArgument(tracer, bound, 1);
  Object value;
  if (!tracer.attempt([&] { value = tracer.attribute(bound[0], name); }, /*takesRaised=*/true)) return value;
  if (bound.values[2]) return bound[2];
  return tracer.attribute(bound[0], name);
}

Object hasAttribute(Tracer& tracer, const Bound& bound) {
  llvm::StringRef name = nameArgument(tracer, bound, 1);
  return !tracer.attempt([&] { tracer.attribute(bound[0], name); }, /*takesRaised=*/true);
}

Object setAttributeOf(Tracer& tracer, const Bound& bound) {
  tracer.setAttribute(bound[0], nameArgument(tracer, bound, 1), bound[2]);
  return NoneObject{};
}

/// self.register_buffer(name, tensor)
Object registerBuffer(Tracer& tracer, const Bound& bound) {
  tracer.setAttribute(bound[0], nameArgument(tracer, bound, 1), bound[2]);
  return NoneObject{};
}

/// The `__init__` of a dataclass, bound to an object and the class.
Object setFields(Tracer& tracer, const Bound& bound) {
  Arguments given{{bound.rest.begin() + 2, bound.rest.end()}, {bound.keywords.begin(), bound.keywords.end()}};
  tracer.setFields(*bound.rest[0].as<Instance*>(), *bound.rest[1].as<Class*>(), given);
  return NoneObject{};
}

// Kinds -------------------------------------------------------------------------------------------------------------

bool isA(Tracer& tracer, Object value, Object type) {
  if (type.is<Sequence*>()) {
    for (Object one : tracer.items(type))
      if (isA(tracer, value, one)) return true;
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
    const ir::Node& node = tracer.module[value.as<ir::Value>()];
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
  tracer.fail(diag::badArgument, "isinstance", "a class of Python, of torch or of the text", tracer.describe(type));
}

Object isInstance(Tracer& tracer, const Bound& bound) { return isA(tracer, bound[0], bound[1]); }

/// create_block_mask(mask_mod, ...): returns the mod itself. attnc decides when to build block masks.
Object blockMask(Tracer& tracer, const Bound& bound) {
  tracer.flexCalls.push_back({tracer.at, bound.builtin->name, NoneObject{}, bound[0]});
  if (bound[0].is<const Deferred*>()) tracer.force(*bound[0].as<const Deferred*>());
  return bound[0];
}

/// flex_attention(query, key, value, score_mod, block_mask): records its mods; it computes nothing here.
Object flexAttention(Tracer& tracer, const Bound& bound) {
  const auto given = [&](size_t i) { return bound.has(i) ? bound[i] : Object(NoneObject{}); };
  tracer.flexCalls.push_back({tracer.at, bound.builtin->name, given(3), given(4)});
  return Opaque{"what flex_attention computes"};
}

/// causal_mask of attention-gym.
Object causalMask(Tracer& tracer, const Bound& bound) { return compare(tracer, CompareOp::Ge, bound[2], bound[3]); }

/// cdiv of attention-gym: the quotient, rounded up.
Object cdiv(Tracer& tracer, const Bound& bound) {
  Object up = binary(tracer, BinaryOp::Sub, binary(tracer, BinaryOp::Add, bound[0], bound[1]), int64_t(1));
  return binary(tracer, BinaryOp::FloorDiv, up, bound[1]);
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
      {"flex_attention", kFlex | kAnything, "query, key, value, score_mod=, block_mask=, **options", flexAttention},
      {"causal_mask", kGym, "b, h, q_idx, kv_idx", causalMask},
      {"cdiv", kGym, "a, b", cdiv},
  };
  return rows;
}

} // namespace attnc::dsl
