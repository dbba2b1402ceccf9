// Functions that attnc knows, as functions and as methods: those of Python, torch, math and functools.
#pragma once

#include "dsl/objects/context.h"

namespace attnc::dsl {

/// Where a builtin is found. A row of a table may be found in several places.
enum Where : unsigned {
  kPython = 1,         ///< everywhere, by its bare name
  kTorch = 2,          ///< torch.name
  kFunctional = 4,     ///< torch.nn.functional.name
  kMath = 8,           ///< math.name
  kFunctools = 16,     ///< functools.name
  kFlex = 32,          ///< torch.nn.attention.flex_attention.name
  kMethod = 64,        ///< x.name() of numbers, arrays and tensors
  kListMethod = 128,   ///< x.name() of lists
  kElementwise = 256,  ///< called once for each element if an argument is an array
  kAnything = 512,     ///< also accepts arguments that cannot be evaluated
  kDictMethod = 1024,  ///< x.name() of dicts
  kIgnored = 4096,     ///< a method of objects whose class derives from one of another module
  kAttnc = 8192,       ///< attnc.name
  kGridMethod = 16384, ///< x.name() of grids
  kGym = 2048,         ///< attn_gym.masks.name, attn_gym.utils.name
  kSpecial = 32768,    ///< torch.special.name
  kArithmetic = 65536, ///< ints take the dtype of an array of ints, as with operators
};

/// The arguments of a call, matched with the parameters of a builtin.
struct Bound {
  const Builtin* builtin = nullptr;
  /// One for each parameter; empty if an optional argument is absent or None.
  llvm::SmallVector<std::optional<Object>, 6> values;
  std::vector<Object> rest;                                 ///< values of a `*` parameter
  std::vector<std::pair<llvm::StringRef, Object>> keywords; ///< values of a `**` parameter

  bool has(size_t i) const { return values[i].has_value(); }
  Object operator[](size_t i) const { return *values[i]; }
};

struct Builtin {
  const char* name;
  unsigned where;
  /// For example "input, min=, *rest". A name ends with `=` if it is optional; `*` and `**` take the remaining
  /// arguments.
  const char* parameters;
  Object (*run)(Context&, const Bound&);
};

/// Returns the first row with this name in any of the places, or null.
const Builtin* findBuiltin(llvm::StringRef name, unsigned places);
/// Returns all names in a place, for suggestions.
std::vector<llvm::StringRef> builtinNames(unsigned places);

// The tables, grouped by topic.
llvm::ArrayRef<Builtin> pythonBuiltins();
llvm::ArrayRef<Builtin> objectBuiltins();
llvm::ArrayRef<Builtin> floatBuiltins();
llvm::ArrayRef<Builtin> operatorBuiltins();
llvm::ArrayRef<Builtin> numberBuiltins();
llvm::ArrayRef<Builtin> arrayBuiltins();
llvm::ArrayRef<Builtin> viewBuiltins();
llvm::ArrayRef<Builtin> gridBuiltins();

/// Returns an argument that must be one number, known or traced.
Object argument(Context& context, const Bound& bound, size_t i);
/// Returns the dtype that an argument names.
NumberType dtypeArgument(Context& context, Object value);
/// Returns the dtype. Reports an error for dtypes that attnc does not compute in.
NumberType computedType(Context& context, NumberType type);
/// Returns the dtype of a value.
NumberType dtypeOf(Context& context, Object value);
const char* dtypeName(NumberType type);
std::optional<NumberType> findDType(llvm::StringRef name, bool isTorch);
/// Returns the dtype that a name means without a prefix: `f32`, or a torch name with a width (`float32`), which nobody
/// uses for a variable.
std::optional<NumberType> findBareDType(llvm::StringRef name);

} // namespace attnc::dsl
