// What the tracer computes with: objects that are known before launch (numbers, sequences, functions, ...), and values
// of the IR, which are traced. An Object is small and copied freely; what it points at lives in the tracer's Arena.
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
struct MaskList;
struct Array;
struct Tensor;
struct Deferred;
struct Dict;
struct Class;
struct Instance;
struct Descriptor;

struct RangeObject {
  int64_t start = 0, stop = 0, step = 1;
  uint64_t size() const;
  /// The item of this index, below size(). Steps beyond INT64_MAX pass on the way, so it is computed without signs.
  int64_t at(uint64_t index) const { return int64_t(uint64_t(start) + index * uint64_t(step)); }
};
struct SliceObject;

/// A module such as torch.nn.functional, by its dotted path.
struct Namespace {
  const char* path;
};

/// The element types that a mod can name. Those the IR computes in come first, in order of promotion.
enum class NumberType : uint8_t { Bool, I32, I64, F32, U8, I8, I16, F16, BF16, F64 };
/// torch.float32 and the like.
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
/// Something that a mod may name (in annotations, say) but not use: torch.Tensor, typing.Optional.
struct Opaque {
  llvm::StringRef name;
};

template <class T, class Variant> inline constexpr bool kIsAlternative = false;
template <class T, class... Ts>
inline constexpr bool kIsAlternative<T, std::variant<Ts...>> = (std::is_same_v<T, Ts> || ...);

class Object {
public:
  using Storage = std::variant<NoneObject, bool, int64_t, double, const Str*, Sequence*, const RangeObject*,
                               const SliceObject*, EllipsisObject, const Function*, const Partial*, const Builtin*,
                               const Method*, const MaskList*, Namespace, DTypeObject, TypeInfo, GridObject, Opaque, const Array*,
                               const Tensor*, ir::Value, const Deferred*, Dict*, Class*, Instance*, const Descriptor*>;

  Object() = default;
  template <class T>
  requires kIsAlternative<T, Storage> Object(T value) : storage(std::in_place_type<T>, value) {}

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
};

/// What a value is, for messages: "a list", "a traced int".
std::string describe(const ir::Module& module, Object value);

/// A tuple, or a list, which may change.
struct Sequence {
  bool isList = false;
  std::vector<Object> items;
};

struct SliceObject {
  Object start, stop, step;
};

struct Function {
  const FunctionNode* node = nullptr;
  Scope* closure = nullptr;
  Class* owner = nullptr;       ///< of a method: the class in whose body it stands
  std::vector<Object> defaults; ///< one a parameter; unused where there is none
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

/// and_masks(...), or_masks(...).
struct MaskList {
  bool isAnd = true;
  std::vector<Object> masks;
};

/// An array of numbers, known or traced. Tables (torch.tensor([...]), torch.arange) have their items, row-major. Slices
/// of captured tensors and what is computed from them are lazy: one element as a function of its indices, which are
/// the iters that axisLoop() of lazy.h names.
struct Array {
  /// At least one extent. One below 0 is known at launch only, of lazy arrays: launchExtent() of lazy.h has its value.
  llvm::SmallVector<int64_t, 2> shape;
  std::vector<Object> items;     ///< none of a lazy one
  std::optional<Object> element; ///< of a lazy one
};

/// A captured tensor with some of its axes indexed.
struct Tensor {
  struct Axis {
    std::optional<ir::Value> index; ///< of an indexed axis; i32 or i64
    int64_t start = 0, step = 1;    ///< of an axis that is free still
    std::optional<int64_t> size;    ///< of a free axis, where it is not the whole axis of a named extent
  };
  unsigned number = 0; ///< index into Module::tensors
  llvm::SmallVector<Axis, 4> axes;
  llvm::SmallVector<unsigned, 4> order; ///< free axes in the order of the view
  bool isDetached = false;              ///< its elements pass no gradients
};

using Names = llvm::SmallDenseMap<llvm::StringRef, Object, 8>;

/// Names of a function's activation, of a class's body, of a comprehension, or of the module.
struct Scope {
  Scope* parent = nullptr;
  const FunctionNode* function = nullptr; ///< whose locals these are; null for the module and for comprehensions
  Class* owner = nullptr;                 ///< of a method's activation: its class; of a class's body: the class
  bool isClass = false;                   ///< functions inside do not see these names
  Names names = Names();
};

/// What could not be evaluated, and why. It is an error once somebody needs it.
struct Deferred {
  std::vector<Finding> findings;
  /// Of an undefined name, in place of findings: what is said about it is found out when it is reported.
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
  std::vector<Object> bases; ///< of other modules: Deferred or Opaque
  std::vector<Class*> order; ///< in which members are looked up: the class itself, then the classes it is made from
  Names members = Names();
  std::vector<llvm::StringRef> fields; ///< annotated names in the body, in order
  bool isDataclass = false, hasFieldEquality = false, isFrozen = false; ///< of @dataclass, with eq=, with frozen=True
  bool hasInitVar = false, hasPostInit = false;
  Instance* isSuperOf = nullptr; ///< of what super() gives: the object itself
};

struct Instance {
  Class* type = nullptr;
  Names names = Names();
};

/// The member of a class or of the classes it is made from; null if there is none.
const Object* findMember(const Class& type, llvm::StringRef name);
/// Fields of a dataclass, those of the dataclasses it is made from first.
std::vector<llvm::StringRef> fieldsOf(const Class& type);
/// Whether a class of another module is among those it is made from.
bool isForeign(const Class& type);

/// staticmethod(f), classmethod(f), property(f), cached_property(f)
struct Descriptor {
  enum class Kind : uint8_t { Static, Class, Property, CachedProperty };
  Kind kind;
  Object function;
};

} // namespace attnc::dsl
