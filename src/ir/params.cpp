#include "ir/params.h"

#include <utility>

namespace attnc::ir {
namespace {

struct ParamInfo {
  const char* name;
  Type type;
  Level level;
  std::optional<BuiltinDim> along;
};

const ParamInfo& info(ParamKind param) {
  constexpr std::nullopt_t None = std::nullopt;
  using enum BuiltinDim;
  static constexpr ParamInfo kTable[] = {
#define PARAM(Name, text, type, level, along) {text, Type::type, Level::level, along},
#include "ir/params.def"
  };
  return kTable[size_t(param)];
}

} // namespace

const char* name(Type type) {
  switch (type) {
  case Type::Bool: return "bool";
  case Type::I32: return "i32";
  case Type::I64: return "i64";
  case Type::F32: return "f32";
  }
  return "?";
}

const char* name(Level level) {
  switch (level) {
  case Level::Launch: return "launch";
  case Level::Head: return "head";
  case Level::Row: return "row";
  case Level::Column: return "column";
  case Level::Element: return "element";
  }
  return "?";
}

Level join(Level a, Level b) {
  if (a == b) return a;
  if (a > b) std::swap(a, b);
  // Launch and Head are outside everything. A value of both Row and Column is only known per element.
  return a <= Level::Head ? b : Level::Element;
}

const char* name(ParamKind param) { return info(param).name; }
Type typeOf(ParamKind param) { return info(param).type; }
Level levelOf(ParamKind param) { return info(param).level; }
std::optional<BuiltinDim> extentOf(ParamKind param) { return info(param).along; }

} // namespace attnc::ir
