// Writes IR as text; the grammar is in printer.h.
#include "ir/printer.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

namespace attnc::ir {
namespace {

constexpr uint32_t kQuietNan = 0x7fc00000;

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (unsigned char c : text) {
    if (c == '"' || c == '\\')
      result += fmt::format("\\{}", char(c));
    else if (c < 0x20 || c == 0x7f)
      result += fmt::format("\\x{:02x}", c);
    else
      result += char(c);
  }
  return result + "\"";
}

std::string printConst(const Node& node) {
  switch (node.type) {
  case Type::Bool: return node.attr ? "true" : "false";
  case Type::I32: return fmt::format("{}", node.attr);
  case Type::I64: return fmt::format("{}L", node.attr);
  case Type::F32: return printF32(std::bit_cast<float>(uint32_t(node.attr)));
  }
  return "?";
}

/// Returns the spelling of the loop of an Iter or a Sum.
std::string loop(const Node& node) { return fmt::format("%i{}:{}", Loop::of(node).id, Loop::of(node).count); }

std::string list(ParamSet params) {
  std::string text;
  for (ParamKind param : kParams)
    if (params.contains(param)) text += fmt::format("{}{}", text.empty() ? "" : ", ", name(param));
  return text;
}

class Printer {
public:
  explicit Printer(const Module& module) : module(module), names(module) {}

  std::string all() const {
    std::string text = captures();
    for (uint32_t id = 0; id < module.size(); ++id)
      if (!isLeaf(module[{id}])) text += line(id);
    for (const Output& output : module.outputs()) {
      text += fmt::format("output {}({}) -> {}", output.name, list(output.params), names.of(output.value));
      if (output.isCondition()) text += " else " + quoted(output.words);
      if (output.line) text += fmt::format(" !{}", output.line);
      text += "\n";
    }
    return text;
  }

private:
  std::string captures() const {
    std::string text;
    if (!module.sourceName.empty()) text += fmt::format("source {}\n", quoted(module.sourceName));
    for (size_t dim = kBuiltinDims; dim < module.dims.size(); ++dim) text += fmt::format("dim {}\n", module.dims[dim]);
    for (const TensorCapture& tensor : module.tensors) {
      text += fmt::format("tensor {}: {}", tensor.name, dtypeName(tensor.dtype));
      for (size_t axis = 0; axis < tensor.shape.size(); ++axis) {
        const Extent& extent = tensor.shape[axis];
        text += axis ? ", " : "[";
        text += extent.isNamed ? module.dims[extent.value] : fmt::format("{}", extent.value);
      }
      text += tensor.shape.empty() ? "" : "]";
      text += tensor.choices ? fmt::format(" chooses {}\n", tensor.choices) : "\n";
    }
    for (const ScalarCapture& scalar : module.scalars)
      text += fmt::format("scalar {}: {}\n", scalar.name, name(scalar.type));
    for (const Grid& grid : module.grids) {
      for (size_t axis = 0; axis < grid.extents.size(); ++axis)
        text += (axis ? ", " : "grid [") + number(grid.extents[axis]);
      text += grid.before == Grid::Number() ? "]\n" : fmt::format("] before {}\n", number(grid.before));
    }
    return text;
  }

  std::string number(const Grid::Number& number) const {
    switch (number.kind) {
    case Grid::Number::Kind::Constant: break;
    case Grid::Number::Kind::Scalar: return "@" + module.scalars[size_t(number.value)].name;
    case Grid::Number::Kind::Dim: return "#" + module.dims[size_t(number.value)];
    case Grid::Number::Kind::Rest: return "rest #" + module.dims[size_t(number.value)];
    }
    return fmt::format("{}", number.value);
  }

  std::string line(uint32_t id) const {
    const Node& node = module[{id}];
    TypeRule rule = info(node.op).rule;
    bool namesOperandType = rule == TypeRule::Compare || rule == TypeRule::Test;
    Type type = namesOperandType ? module[node.operands[0]].type : node.type;
    std::string text = fmt::format("{} = {} {}", names.of({id}), info(node.op).text, name(type));
    bool isLoad = node.op == Op::Load;
    text += isLoad ? fmt::format(" {}", module.tensors[node.attr].name) : "";
    if (node.op == Op::Coord) text += fmt::format(" grid{}.{},", GridAxis::of(node).grid, GridAxis::of(node).axis);
    if (node.op == Op::InGrid) text += fmt::format(" grid{},", GridAxis::of(node).grid);
    if (rule == TypeRule::Sum) text += fmt::format(" {},", loop(node));
    const char* open = isLoad ? "[" : " ";
    for (size_t i = 0; i < node.operands.size(); ++i) text += (i ? ", " : open) + names.of(node.operands[i]);
    if (isLoad && !node.operands.empty()) text += "]";
    if (node.line) text += fmt::format(" !{}", node.line);
    return text + "\n";
  }

  const Module& module;
  OperandNames names;
};

} // namespace

OperandNames::OperandNames(const Module& module) : module(module), number(module.size(), 0) {
  for (uint32_t id = 0, next = 0; id < module.size(); ++id)
    if (!isLeaf(module[{id}])) number[id] = next++;
}

std::string OperandNames::of(Value value) const {
  const Node& node = module[value];
  if (!isLeaf(node)) return fmt::format("%{}", number[value.id]);
  switch (leafOf(node)) {
  case Leaf::Const: return printConst(node);
  case Leaf::Param: return fmt::format("%{}", name(ParamKind(node.attr)));
  case Leaf::Scalar: return fmt::format("@{}", module.scalars[node.attr].name);
  case Leaf::Dim: return fmt::format("#{}", module.dims[node.attr]);
  case Leaf::Iter: return loop(node);
  }
  return "?";
}

std::string printF32(float value) {
  if (std::isnan(value)) {
    uint32_t bits = std::bit_cast<uint32_t>(value);
    return bits == kQuietNan ? "nan" : fmt::format("nan:{:#010x}", bits);
  }
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

std::string print(const Module& module) { return Printer(module).all(); }

} // namespace attnc::ir
