#include "inspect/expression.h"

#include <fmt/format.h>

#include <cmath>

namespace attnc {

const char* infix(ir::Op op) {
  switch (op) {
  case ir::Op::Add: return "+";
  case ir::Op::Sub: return "-";
  case ir::Op::Mul: return "*";
  case ir::Op::Div: return "/";
  case ir::Op::FloorDiv: return "//";
  case ir::Op::Mod: return "%";
  case ir::Op::And: return "&";
  case ir::Op::Or: return "|";
  case ir::Op::Xor: return "^";
  case ir::Op::Shl: return "<<";
  case ir::Op::Shr: return ">>";
  case ir::Op::Eq: return "==";
  case ir::Op::Ne: return "!=";
  case ir::Op::Lt: return "<";
  case ir::Op::Le: return "<=";
  case ir::Op::Pow: return "**";
  default: return nullptr;
  }
}

std::string valueText(ir::Type type, Number number) {
  switch (type) {
  case ir::Type::Bool: return number.integer ? "True" : "False";
  case ir::Type::I32:
  case ir::Type::I64: return fmt::to_string(number.integer);
  case ir::Type::F32: return std::isnan(number.real) ? "nan" : fmt::format("{}", number.real); // ignores NaN's sign
  }
  return "?";
}

} // namespace attnc
