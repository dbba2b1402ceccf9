// What the tracer computes with: objects that are known before launch (numbers, sequences, functions, ...), and traced
// values of the IR. An Object is small and copied freely; what it points at lives in the tracer's Arena.
#pragma once

#include "dsl/syntax/ast.h"
#include "ir/ir.h"

#include <llvm/ADT/DenseMap.h>

#include <optional>
#include <variant>

namespace attnc::dsl {

struct Scope;
struct Builtin;
class Object;

struct NoneObject {};
struct EllipsisObject {};

struct Str {
  std::string text;
};

struct Sequence;
struct Function;
struct Partial;
struct Method;
struct ModList;
struct Array;
struct Tensor;
struct Deferred;
struct Dict;
struct Class;
struct Instance;
struct Descriptor;
struct ReducedObject;

struct RangeObject {
  int64_t start = 0, stop = 0, step = 1;
  uint64_t size() const;
  /// Returns the item of this index, below size(). It is computed without signs, because intermediate steps may exceed
  /// INT64_MAX.
  int64_t at(uint64_t index) const { return int64_t(uint64_t(start) + index * uint64_t(step)); }
};
struct SliceObject;

/// A module such as torch.nn.functional, by its dotted path.
struct Namespace {
  const char* path;
};

/// Element types that a mod can name. The types that the IR computes in come first, in order of promotion.
enum class NumberType : uint8_t { Bool, I32, I64, F32, U8, I8, I16, F16, BF16, F64 };
/// What an int is to torch: a Python number, which takes the dtype of the tensor that it meets, or a tensor of a dtype.
enum class Ints : uint8_t { Python, U8, I8, I16, I32, I64 };
/// torch.float32 and similar.
struct DTypeObject {
  NumberType type;
};
/// torch.finfo(dtype), torch.iinfo(dtype).
struct TypeInfo {
  NumberType type;
};
/// grid(...), by its index in Module::grids.
struct GridObject {
  unsigned number = 0;
};
/// Something that a mod may name (for example in annotations) but not use: torch.Tensor, typing.Optional.
struct Opaque {
  llvm::StringRef name;
};

template <class T, class Variant> inline constexpr bool kIsAlternative = false;
template <class T, class... Ts>
inline constexpr bool kIsAlternative<T, std::variant<Ts...>> = (std::is_same_v<T, Ts> || ...);

class Object {
public:
  using Storage =
      std::variant<NoneObject, bool, int64_t, double, const Str*, Sequence*, const RangeObject*, const SliceObject*,
                   EllipsisObject, const Function*, const Partial*, const Builtin*, const Method*, const ModList*,
                   Namespace, DTypeObject, TypeInfo, GridObject, Opaque, const Array*, const Tensor*, ir::Value,
                   const Deferred*, Dict*, Class*, Instance*, const Descriptor*, const ReducedObject*>;

  Object() = default;
  template <class T>
  requires kIsAlternative<T, Storage> Object(T value) : storage(std::in_place_type<T>, value) {
    if constexpr (std::is_same_v<T, ir::Value>) ints = Ints::I64; // as q_idx, and what is computed from it
  }
  Object(ir::Value value, Ints ints) : storage(value), ints(ints) {}

  template <class T> bool is() const { return std::holds_alternative<T>(storage); }
  /// Precondition: is<T>().
  template <class T> T as() const { return std::get<T>(storage); }
  template <class T> const T* get() const { return std::get_if<T>(&storage); }

  bool isTraced() const { return is<ir::Value>(); }
  bool isKnownNumber() const { return is<bool>() || is<int64_t>() || is<double>(); }
  /// A scalar number, known or traced.
  bool isNumber() const { return isTraced() || isKnownNumber(); }
  bool isArrayLike() const { return is<const Array*>() || is<const Tensor*>(); }
  bool isCallable() const;

  Storage storage;
  Ints ints = Ints::Python; ///< of an int, known or traced; otherwise without meaning
};

/// Describes a value for messages: "a list", "a traced int".
std::string describe(const ir::Module& module, Object value);

/// A tuple, or a list, which is mutable.
struct Sequence {
  bool isList = false;
  std::vector<Object> items;
};

struct SliceObject {
  Object start, stop, step;
};

/// reduce_sum(function), reduce_max(function).
struct ReducedObject {
  bool isMax = false;
  Object function;
};

struct Function {
  const FunctionNode* node = nullptr;
  Scope* closure = nullptr;
  Class* owner = nullptr;       ///< the class in whose body a method stands
  std::vector<Object> defaults; ///< one for each parameter; unused if it has no default
};

struct Partial {
  Object callee;
  std::vector<Object> arguments;
  std::vector<std::pair<llvm::StringRef, Object>> keywords;
};

/// A builtin that is called as a method.
struct Method {
  Object self;
  const Builtin* builtin = nullptr;
};

/// and_masks(...), or_masks(...), choice(which, ...).
struct ModList {
  const char* name = ""; ///< of the function that made it
  std::vector<Object> mods;
  const Tensor* which = nullptr; ///< of a choice: the captured tensor
};

/// An array of numbers, known or traced. Tables (torch.tensor([...]), torch.arange) have their items, row-major. Slices
/// of captured tensors, and arrays computed from them, are lazy: one element as a function of its indices, which are
/// the iters of axisLoop() in lazy.h.
struct Array {
  /// At least one extent. A negative one, in lazy arrays, is a launch extent: launchExtent() of lazy.h returns its
  /// value.
  llvm::SmallVector<int64_t, 2> shape;
  std::vector<Object> items;     ///< empty if lazy
  std::optional<Object> element; ///< set if lazy
};

/// A captured tensor with some of its axes indexed.
struct Tensor {
  struct Axis {
    std::optional<ir::Value> index; ///< for an indexed axis; i32 or i64
    int64_t start = 0, step = 1;    ///< for a free axis
    std::optional<int64_t> size;    ///< for a free axis, unless it is the whole axis of a named extent
  };
  unsigned number = 0; ///< index into Module::tensors
  llvm::SmallVector<Axis, 4> axes;
  llvm::SmallVector<unsigned, 4> order; ///< free axes in the order of the view
  bool isDetached = false;              ///< whether its elements pass no gradients
};

using Names = llvm::SmallDenseMap<llvm::StringRef, Object, 8>;

/// The names of a function call, a class's body, a comprehension, or the module.
struct Scope {
  Scope* parent = nullptr;
  const FunctionNode* function = nullptr; ///< its locals; null for the module and for comprehensions
  Class* owner = nullptr;                 ///< for a method's call, its class; for a class's body, the class
  bool isClass = false;                   ///< whether functions inside do not see these names
  Names names = Names();
};

/// What could not be evaluated, and why. It becomes an error when it is needed.
struct Deferred {
  std::vector<Finding> findings;
  /// An undefined name, in place of findings. What to say about it is decided when it is reported.
  llvm::StringRef undefined = {};
  Loc at = {};
  Scope* scope = nullptr;
  bool raised = false;
};

struct Dict {
  std::vector<std::pair<Object, Object>> items; ///< in order of insertion
};

/// A class of the text.
struct Class {
  llvm::StringRef name;
  std::vector<Object> bases; ///< bases of other modules: Deferred or Opaque
  std::vector<Class*> order; ///< order of member lookup: the class itself, then the classes it derives from
  Names members = Names();
  std::vector<llvm::StringRef> fields;                                  ///< annotated names in the body, in order
  bool isDataclass = false, hasFieldEquality = false, isFrozen = false; ///< @dataclass, its eq=, its frozen=True
  bool hasInitVar = false, hasPostInit = false;
  Instance* isSuperOf = nullptr; ///< for the result of super(): the object itself
};

struct Instance {
  Class* type = nullptr;
  Names names = Names();
};

/// Returns the member of a class or of the classes it derives from, or null.
const Object* findMember(const Class& type, llvm::StringRef name);
/// Returns the fields of a dataclass. Inherited fields come first.
std::vector<llvm::StringRef> fieldsOf(const Class& type);
/// Whether a class derives from a class of another module.
bool isForeign(const Class& type);

/// staticmethod(f), classmethod(f), property(f), cached_property(f)
struct Descriptor {
  enum class Kind : uint8_t { Static, Class, Property, CachedProperty };
  Kind kind;
  Object function;
};

} // namespace attnc::dsl
