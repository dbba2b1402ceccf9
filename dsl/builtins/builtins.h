// Functions that attnc knows: Python's, torch's, math's and functools', as functions and as methods.
#pragma once

#include "dsl/objects/context.h"

namespace attnc::dsl {

class Tracer;

/// Where a builtin is found; a row of a table may be found in several places.
enum Where : unsigned {
  kPython = 1,        ///< everywhere, by its bare name
  kTorch = 2,         ///< torch.name
  kFunctional = 4,    ///< torch.nn.functional.name
  kMath = 8,          ///< math.name
  kFunctools = 16,    ///< functools.name
  kFlex = 32,         ///< torch.nn.attention.flex_attention.name
  kMethod = 64,       ///< x.name() of numbers, arrays and tensors
  kListMethod = 128,  ///< x.name() of lists
  kElementwise = 256, ///< called once for each element where an argument is an array
  kAnything = 512,    ///< called with what cannot be evaluated, too
  kDictMethod = 1024, ///< x.name() of dicts
  kIgnored = 4096,    ///< of objects whose class is made from one of another module
  kAttnc = 8192,      ///< attnc.name
  kGridMethod = 16384, ///< x.name() of grids
  kGym = 2048,        ///< attn_gym.masks.name, attn_gym.utils.name
};

/// The arguments of a call, matched with the parameters of a builtin.
struct Bound {
  const Builtin* builtin = nullptr;
  /// One for each parameter; empty where an optional argument is absent or None.
  llvm::SmallVector<std::optional<Object>, 6> values;
  std::vector<Object> rest;                                 ///< of a `*` parameter
  std::vector<std::pair<llvm::StringRef, Object>> keywords; ///< of a `**` parameter

  bool has(size_t i) const { return values[i].has_value(); }
  Object operator[](size_t i) const { return *values[i]; }
};

struct Builtin {
  const char* name;
  unsigned where;
  /// "input, min=, *rest": a name, with `=` if it is optional, with `*` or `**` if it takes what is left.
  const char* parameters;
  Object (*run)(Tracer&, const Bound&);
};

/// The first row with this name in any of the places; null if there is none.
const Builtin* findBuiltin(llvm::StringRef name, unsigned places);
/// Names in the place, for suggestions.
std::vector<llvm::StringRef> builtinNames(unsigned places);

// The tables, by what the functions are about.
llvm::ArrayRef<Builtin> pythonBuiltins();
llvm::ArrayRef<Builtin> objectBuiltins();
llvm::ArrayRef<Builtin> floatBuiltins();
llvm::ArrayRef<Builtin> operatorBuiltins();
llvm::ArrayRef<Builtin> numberBuiltins();
llvm::ArrayRef<Builtin> arrayBuiltins();
llvm::ArrayRef<Builtin> viewBuiltins();
llvm::ArrayRef<Builtin> gridBuiltins();

/// An argument that has to be one number, known or traced.
Object argument(Tracer& tracer, const Bound& bound, size_t i);
/// The dtype that an argument names.
NumberType dtypeArgument(Context& context, Object value);
/// One of the IR's types for a dtype; an error for those that the IR does not compute in.
ir::Type computedType(Context& context, NumberType type);
/// The dtype that a value of this kind has.
NumberType dtypeOf(Context& context, Object value);
const char* dtypeName(NumberType type);
std::optional<NumberType> findDType(llvm::StringRef name, bool isTorch);
/// The dtype that a name stands for without a prefix: `f32`, and of torch's names those with a width (`float32`), which
/// nobody takes for a variable.
std::optional<NumberType> findBareDType(llvm::StringRef name);

} // namespace attnc::dsl
