#include "inspect/expression.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <vector>

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

std::optional<ir::Value> wrappedIndex(const ir::Module& module, ir::Value value) {
  const ir::Node& node = module[value];
  if (node.op != ir::Op::Select) return std::nullopt;
  const ir::Node &test = module[node.operands[0]], &sum = module[node.operands[1]];
  const ir::Value index = node.operands[2];
  const bool isTest = test.op == ir::Op::Lt && test.operands[0] == index && module.isConst(test.operands[1]) &&
                      module.integer(test.operands[1]) == 0;
  return isTest && sum.op == ir::Op::Add && sum.operands[0] == index ? std::optional(index) : std::nullopt;
}

bool isWidening(const ir::Module& module, const ir::Node& node) {
  if (node.op != ir::Op::Cast) return false;
  const ir::Type from = module[node.operands[0]].type;
  return node.type == ir::Type::I64 || (node.type == ir::Type::F32 && from != ir::Type::F32) ||
         (from == ir::Type::Bool && node.type != ir::Type::Bool);
}

std::string leafText(const ir::Module& module, ir::Value value) {
  const ir::Node& node = module[value];
  switch (ir::leafOf(node)) {
  case ir::Leaf::Const:
    return node.type == ir::Type::F32 ? valueText(node.type, {.real = module.f32(value)})
                                      : valueText(node.type, {.integer = module.integer(value)});
  case ir::Leaf::Param: return ir::name(ir::ParamKind(node.attr));
  case ir::Leaf::Scalar: return module.scalars[size_t(node.attr)].name;
  case ir::Leaf::Dim: return module.dims[size_t(node.attr)];
  case ir::Leaf::Iter: return fmt::format("i{}", ir::Loop::of(node).id);
  }
  return "?";
}

/// `depth` is the number of operations to write out.
static std::string writeOut(const ir::Module& module, ir::Value value, int depth,
                            llvm::function_ref<std::string(ir::Value)> below, bool isOuter) {
  const ir::Node& node = module[value];
  if (ir::isLeaf(node)) return leafText(module, value);
  if (isWidening(module, node) || node.op == ir::Op::StopGradient)
    return writeOut(module, node.operands[0], depth, below, isOuter);
  if (auto index = wrappedIndex(module, value)) return writeOut(module, *index, depth, below, isOuter);
  if (depth == 0) return below(value);
  const char* sign = infix(node.op);
  std::vector<std::string> operands;
  for (ir::Value operand : node.operands)
    operands.push_back(
        writeOut(module, operand, depth - 1, below, !sign && node.op != ir::Op::Neg && node.op != ir::Op::Not));
  if (sign) {
    std::string text = fmt::format("{} {} {}", operands[0], sign, operands[1]);
    return isOuter ? text : "(" + text + ")";
  }
  switch (node.op) {
  case ir::Op::Neg: return "-" + operands[0];
  case ir::Op::Not: return "~" + operands[0];
  case ir::Op::Select: return fmt::format("where({})", fmt::join(operands, ", "));
  case ir::Op::Load: {
    const std::string& name = module.tensors[size_t(node.attr)].name;
    return operands.empty() ? name : fmt::format("{}[{}]", name, fmt::join(operands, ", "));
  }
  case ir::Op::Coord: return fmt::format("coords({})[{}]", operands[0], ir::GridAxis::of(node).axis);
  case ir::Op::InGrid: return fmt::format("contains({})", operands[0]);
  case ir::Op::Sum:
    return fmt::format("sum({}, i{} < {})", operands[0], ir::Loop::of(node).id, ir::Loop::of(node).count);
  case ir::Op::Cast: return fmt::format("{}({})", node.type == ir::Type::Bool ? "bool" : "int", operands[0]);
  default: return fmt::format("{}({})", ir::info(node.op).text, fmt::join(operands, ", "));
  }
}

std::string writtenOut(const ir::Module& module, ir::Value value, size_t width,
                       llvm::function_ref<std::string(ir::Value)> below) {
  std::string text;
  for (int depth = 6; depth > 0; --depth)
    if (text = writeOut(module, value, depth, below, /*isOuter=*/true); text.size() <= width) break;
  return text;
}

} // namespace attnc
