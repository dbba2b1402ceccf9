// In: names. Out: rows of the tables of builtins, and dtypes.
#include "dsl/builtins/builtins.h"
#include "dsl/objects/scalars.h"

#include <llvm/ADT/StringExtras.h>

namespace attnc::dsl {

namespace {

llvm::SmallVector<llvm::ArrayRef<Builtin>, 8> tables() {
  return {pythonBuiltins(), objectBuiltins(), floatBuiltins(), operatorBuiltins(),
          numberBuiltins(), arrayBuiltins(),  viewBuiltins(),  gridBuiltins()};
}

struct DTypeName {
  const char* name;
  NumberType type;
  bool isTorch;
};
constexpr DTypeName kDTypes[] = {
    {"bool", NumberType::Bool, false}, {"i32", NumberType::I32, false},      {"i64", NumberType::I64, false},
    {"f32", NumberType::F32, false},   {"u8", NumberType::U8, false},        {"i8", NumberType::I8, false},
    {"i16", NumberType::I16, false},   {"f16", NumberType::F16, false},      {"bf16", NumberType::BF16, false},
    {"bool", NumberType::Bool, true},  {"int32", NumberType::I32, true},     {"int", NumberType::I32, true},
    {"int64", NumberType::I64, true},  {"long", NumberType::I64, true},      {"float32", NumberType::F32, true},
    {"float", NumberType::F32, true},  {"uint8", NumberType::U8, true},      {"int8", NumberType::I8, true},
    {"int16", NumberType::I16, true},  {"short", NumberType::I16, true},     {"float16", NumberType::F16, true},
    {"half", NumberType::F16, true},   {"bfloat16", NumberType::BF16, true}, {"float64", NumberType::F64, true},
    {"double", NumberType::F64, true},
};

NumberType numberType(DType dtype) {
  switch (dtype) {
  case DType::Bool: return NumberType::Bool;
  case DType::U8: return NumberType::U8;
  case DType::I8: return NumberType::I8;
  case DType::I16: return NumberType::I16;
  case DType::I32: return NumberType::I32;
  case DType::I64: return NumberType::I64;
  case DType::F16: return NumberType::F16;
  case DType::BF16: return NumberType::BF16;
  case DType::E4M3: // declarations cannot name it
  case DType::F32: return NumberType::F32;
  }
  return NumberType::F32;
}

} // namespace

const Builtin* findBuiltin(llvm::StringRef name, unsigned places) {
  for (llvm::ArrayRef<Builtin> table : tables())
    for (const Builtin& builtin : table)
      if ((builtin.where & places) && name == builtin.name) return &builtin;
  return nullptr;
}

std::vector<llvm::StringRef> builtinNames(unsigned places) {
  std::vector<llvm::StringRef> names;
  for (llvm::ArrayRef<Builtin> table : tables())
    for (const Builtin& builtin : table)
      if (builtin.where & places) names.emplace_back(builtin.name);
  return names;
}

std::optional<NumberType> findDType(llvm::StringRef name, bool isTorch) {
  for (const DTypeName& dtype : kDTypes)
    if (dtype.isTorch == isTorch && name == dtype.name) return dtype.type;
  return std::nullopt;
}

std::optional<NumberType> findBareDType(llvm::StringRef name) {
  if (auto type = findDType(name, /*isTorch=*/false)) return type;
  bool hasWidth = !name.empty() && llvm::isDigit(name.back());
  return hasWidth ? findDType(name, /*isTorch=*/true) : std::nullopt;
}

const char* dtypeName(NumberType type) {
  for (const DTypeName& dtype : kDTypes)
    if (dtype.type == type) return dtype.name;
  return "?";
}

NumberType dtypeArgument(Context& context, Object value) {
  if (value.is<DTypeObject>()) return value.as<DTypeObject>().type;
  // `dtype=float` names the Python type.
  if (value.is<const Builtin*>())
    if (auto type = findDType(value.as<const Builtin*>()->name, /*isTorch=*/true)) return *type;
  context.fail(diag::expectedDType, context.describe(value));
}

NumberType computedType(Context& context, NumberType type) {
  if (type >= NumberType::F16) context.fail(diag::unsupportedDType, dtypeName(type));
  return type;
}

NumberType dtypeOf(Context& context, Object value) {
  if (value.is<bool>()) return NumberType::Bool;
  if (value.isNumber() && isInt(context, value)) return numberTypeOf({ir::Type::I64, value.ints});
  if (value.is<double>()) return NumberType::F32;
  if (value.isTraced()) return NumberType(context.type(value.as<ir::Value>()));
  if (value.is<const Tensor*>()) return numberType(context.module.tensors[value.as<const Tensor*>()->number].dtype);
  const Array& array = *value.as<const Array*>();
  if (array.element) return dtypeOf(context, *array.element);
  return array.items.empty() ? NumberType::F32 : dtypeOf(context, array.items.front());
}

static_assert(unsigned(NumberType::Bool) == unsigned(ir::Type::Bool) &&
              unsigned(NumberType::I32) == unsigned(ir::Type::I32) &&
              unsigned(NumberType::I64) == unsigned(ir::Type::I64) &&
              unsigned(NumberType::F32) == unsigned(ir::Type::F32));

} // namespace attnc::dsl
