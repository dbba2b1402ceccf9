// In: names, attributes and imports. Out: the values they stand for.
// A name is looked up in the function, the functions around it, the module, and last in the names that attnc knows:
// Python's builtins, torch's functions without their prefix, dtypes, `inf nan pi`, the modules torch, math and
// functools (and `F` for torch.nn.functional), and the extents B H HKV Q_LEN KV_LEN.
#include "dsl/objects/arrays.h"
#include "dsl/tracing/suggestions.h"
#include "dsl/tracing/tracer.h"

#include <cmath>
#include <limits>

namespace attnc::dsl {

namespace {

struct PythonModule {
  const char* path;
  unsigned builtins; // rows of the tables that live there
};
constexpr PythonModule kPythonModules[] = {
    {"torch", kTorch},
    {"torch.nn", 0},
    {"torch.nn.functional", kFunctional},
    {"torch.special", kSpecial},
    {"torch.nn.attention", 0},
    {"torch.nn.attention.flex_attention", kFlex},
    {"math", kMath},
    {"functools", kFunctools},
    {"typing", 0},
    {"__future__", 0},
    {"numpy", 0},
    {"attnc", kAttnc},
    {"attnc.torch", kFlex},
    {"attn_gym", 0},
    {"attn_gym.masks", kGym},
    {"attn_gym.masks.causal", kGym},
    {"attn_gym.utils", kGym},
};

const PythonModule* findPythonModule(llvm::StringRef path) {
  for (const PythonModule& known : kPythonModules)
    if (path == known.path) return &known;
  return nullptr;
}

/// Modules that are known without an import, because people paste functions without the imports above them.
constexpr struct {
  const char* name;
  const char* path;
} kImported[] = {
    {"torch", "torch"}, {"nn", "torch.nn"}, {"F", "torch.nn.functional"}, {"math", "math"}, {"functools", "functools"},
};

std::optional<Object> constant(llvm::StringRef name) {
  if (name == "inf") return std::numeric_limits<double>::infinity();
  if (name == "nan") return std::nan("");
  if (name == "pi") return M_PI;
  return std::nullopt;
}

/// Names that mods import for annotations, or together with the ones they use.
bool isOpaque(llvm::StringRef path, llvm::StringRef name) {
  if (path == "typing") return true;
  if (path == "__future__") return name == "annotations";
  if (path == "torch") return name == "Tensor" || name == "device" || name == "dtype" || name == "compile";
  if (path == "torch.nn.attention.flex_attention" || path == "attnc.torch")
    return name == "create_mask" || name == "BlockMask" || name == "AuxRequest" || name.front() == '_';
  return false;
}

Object typeInfoMember(Context& context, NumberType type, llvm::StringRef name) {
  struct FloatLimits {
    NumberType type;
    double min, max, eps, tiny;
  };
  static constexpr FloatLimits kFloats[] = {
      {NumberType::F32, -0x1.fffffep127, 0x1.fffffep127, 0x1p-23, 0x1p-126},
      {NumberType::F16, -65504, 65504, 0x1p-10, 0x1p-14},
      {NumberType::BF16, -0x1.fep127, 0x1.fep127, 0x1p-7, 0x1p-126},
  };
  for (const FloatLimits& limits : kFloats) {
    if (limits.type != type) continue;
    if (name == "min") return limits.min;
    if (name == "max") return limits.max;
    if (name == "eps") return limits.eps;
    if (name == "tiny" || name == "smallest_normal") return limits.tiny;
  }
  if (type == NumberType::U8 && name == "max") return int64_t(255);
  if (type == NumberType::U8 && name == "min") return int64_t(0);
  unsigned bits = type == NumberType::I64   ? 64
                  : type == NumberType::I32 ? 32
                  : type == NumberType::I16 ? 16
                  : type == NumberType::I8  ? 8
                                            : 0;
  if (bits && name == "max") return int64_t((uint64_t(1) << (bits - 1)) - 1);
  if (bits && name == "min") return -int64_t((uint64_t(1) << (bits - 1)) - 1) - 1;
  context.fail(diag::unknownAttribute, "this finfo or iinfo", std::string_view(name), "");
}

} // namespace

Object Tracer::lookup(llvm::StringRef name) {
  for (Scope* around = scope; around; around = around->parent) {
    auto found = around->names.find(name);
    if (found != around->names.end() && (!around->isClass || around == scope)) {
      if (around == watched) lookups.insert(name);
      return found->second;
    }
    const bool isLocal = around->function && !around->isClass && around->function->locals.contains(name);
    if (isLocal) fail(diag::unboundLocal, std::string_view(name));
  }
  if (auto value = lookupBuiltin(name)) return *value;
  if (declareAvailable(name)) return declared.find(name)->second;
  failUndefined(name, scope);
}

/// Returns the capture of this name, which may come from the available tensors.
std::optional<Object> Tracer::captureOf(llvm::StringRef name) {
  auto found = declared.find(name);
  if (found == declared.end() && declareAvailable(name)) found = declared.find(name);
  if (found == declared.end()) return std::nullopt;
  return found->second;
}

std::optional<Object> Tracer::lookupBuiltin(llvm::StringRef name) {
  for (unsigned i = 0; i < ir::kBuiltinDims; ++i)
    if (name == module.dims[i]) return Object(module.dim(i), Ints::Python);
  if (const Builtin* builtin = findBuiltin(name, kPython)) return builtin;
  if (const Builtin* builtin = findBuiltin(name, kTorch)) return builtin;
  if (const Builtin* builtin = findBuiltin(name, kFlex)) return builtin;
  if (const Builtin* builtin = findBuiltin(name, kAttnc)) return builtin;
  if (auto value = constant(name)) return value;
  if (auto type = findBareDType(name)) return DTypeObject{*type};
  if (const Builtin* builtin = findBuiltin(name, kFunctools)) return builtin;
  for (auto& [known, path] : kImported)
    if (name == known) return Namespace{path};
  if (name == "__name__") return makeStr("attnc");
  if (name == "NotImplemented") return Opaque{"NotImplemented"};
  return std::nullopt;
}

std::optional<Object> Tracer::member(Namespace space, llvm::StringRef name) {
  const PythonModule* python = findPythonModule(space.path);
  const PythonModule* inner = findPythonModule(std::string(space.path) + "." + name.str());
  if (inner) return Namespace{inner->path};
  if (const Builtin* builtin = findBuiltin(name, python->builtins)) return builtin;
  if (isOpaque(space.path, name)) return Opaque{name};
  llvm::StringRef path = space.path;
  if (path == "attnc") {
    for (unsigned i = 0; i < ir::kBuiltinDims; ++i)
      if (name == module.dims[i]) return Object(module.dim(i), Ints::Python);
    // What `bool` means without an import is a function and, in an annotation, a dtype.
    if (findDType(name, /*isTorch=*/false)) return lookupBuiltin(name);
  }
  if (path != "torch" && path != "math" && path != "numpy") return std::nullopt;
  if (auto value = constant(name)) return value;
  if (name == "e") return M_E;
  if (path == "math" && name == "tau") return 2 * M_PI;
  if (path != "torch") return std::nullopt;
  if (auto type = findDType(name, /*isTorch=*/true)) return DTypeObject{*type};
  return std::nullopt;
}

Object Tracer::attribute(Object base, llvm::StringRef name) {
  if (base.is<Namespace>()) {
    Namespace space = base.as<Namespace>();
    if (auto value = member(space, name)) return *value;
    noMember(at, space.path, name, builtinNames(findPythonModule(space.path)->builtins));
  }
  if (base.is<Instance*>()) {
    if (auto value = instanceMember(*base.as<Instance*>(), name)) return *value;
    fail(diag::unknownAttribute, describe(base), std::string_view(name), "");
  }
  if (base.is<Class*>()) {
    if (auto value = classMember(*base.as<Class*>(), name, NoneObject{})) return *value;
    // A torch.autograd.Function is refused: its `backward` may differ from what attnc derives.
    fail(diag::unknownAttribute, describe(base), std::string_view(name),
         name == "apply"
             ? "attnc derives gradients itself: call `forward`, or write `torch.tanh_approx` for `tanh.approx`"
             : "");
  }
  if (base.is<TypeInfo>()) return typeInfoMember(*this, base.as<TypeInfo>().type, name);
  unsigned places = 0;
  if (base.isNumber() || base.isArrayLike()) places = kMethod;
  if (base.is<Sequence*>() && base.as<Sequence*>()->isList) places = kListMethod;
  if (base.is<Dict*>()) places = kDictMethod;
  if (base.is<GridObject>()) places = kGridMethod;
  if (base.isCallable() && name == "mask_mod") return base; // of the result of create_block_mask()
  if (base.isCallable() && (name == "__name__" || name == "__qualname__" || name == "__doc__"))
    return makeStr("function");
  if (places == kMethod)
    if (auto value = property(base, name)) return *value;
  if (const Builtin* builtin = findBuiltin(name, places))
    return static_cast<const Method*>(heap.make<Method>(base, builtin));
  if (const char* instead = base.is<Opaque>() ? insteadOf(name) : nullptr)
    fail(diag::unknownAttribute, describe(base), std::string_view(name), instead);
  std::string hint = closest(name, builtinNames(places));
  if (const char* instead = insteadOf(name); hint.empty() && instead) hint = instead;
  if (hint.empty() && base.isNumber()) hint = "it is one number, that of this score: write `torch.f(x)`, or operators";
  fail(diag::unknownAttribute, describe(base), std::string_view(name), hint);
}

std::optional<Object> Tracer::property(Object base, llvm::StringRef name) {
  if (name == "dtype") return DTypeObject{dtypeOf(*this, base)};
  if (name == "device") return Opaque{"device"};
  std::vector<Object> shape;
  if (base.isArrayLike()) shape = shapeOf(*this, base);
  if (name == "ndim") return int64_t(shape.size());
  if (name == "shape") return makeSequence(/*isList=*/false, std::move(shape));
  if (name != "T" && name != "mT") return std::nullopt;
  if (!base.is<const Tensor*>() || shape.size() < 2) return base;
  if (name == "T" && shape.size() > 2) fail(diag::unknownAttribute, describe(base), "T", "write `.transpose(a, b)`");
  Tensor view = *base.as<const Tensor*>();
  std::swap(view.order[view.order.size() - 1], view.order[view.order.size() - 2]);
  return static_cast<const Tensor*>(heap.make<Tensor>(std::move(view)));
}

/// Puts off what cannot be imported, name by name.
void Tracer::runImport(const ImportStmt& stmt) {
  for (size_t i = 0; i < stmt.names.size(); ++i) {
    const ImportedName& imported = stmt.names[i];
    llvm::StringRef name = imported.as.empty() ? imported.name : imported.as;
    Object value;
    const Deferred* why = defer([&] {
      at = stmt.isFrom ? stmt.moduleLoc : imported.loc;
      const std::string& path = stmt.isFrom ? stmt.module : stmt.paths[i];
      const PythonModule* python = findPythonModule(path);
      if (!python) fail(diag::unknownImport, path);
      if (!stmt.isFrom) {
        // `import a.b` binds a; `import a.b as c` binds a.b.
        value = Namespace{imported.as.empty() ? findPythonModule(imported.name)->path : python->path};
        return;
      }
      Namespace space{python->path};
      if (auto found = member(space, imported.name))
        value = *found;
      else
        noMember(imported.loc, space.path, imported.name, builtinNames(python->builtins));
    });
    // `import torch.x` binds torch, whatever x is.
    if (why && !stmt.isFrom && imported.as.empty())
      if (const PythonModule* python = findPythonModule(imported.name)) {
        bind(name, imported.loc, Namespace{python->path});
        continue;
      }
    bind(name, imported.loc, why ? Object(why) : value);
  }
}

} // namespace attnc::dsl
