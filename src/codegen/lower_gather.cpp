// Gathers: a read of a captured tensor as address arithmetic, split by level.
//
// The address is data + index[0] * stride[0] + ...; each product belongs to the level of its index. Parts known per (b,
// h) are summed in head(), parts known per row in row(), and so on, so a score only adds the remaining terms and reads.
// If row and column both have a part, the row holds an address and the column an offset. Parts that depend on the index
// of a sum are added in its loop, to the address that all rounds share.
//
// Indices that are not proven inside are clamped. A tensor without elements is passed as the address of a zero with
// strides of 0 (see packArgs), so any index reads 0.
//
// Gradients of gathers go to a dense tensor of the same shape; its offsets are split by level like addresses.
#include "codegen/lower.h"

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>

#include <algorithm>
#include <iterator>
#include <limits>

namespace attnc::codegen {

using ir::Level;
using ir::Node;
using ir::Type;
using ir::Value;

namespace {

/// The types of elements in kernels, by DType.
constexpr const char* kElementTypes[] = {"unsigned char", "unsigned char",  "signed char",    "short", "int",
                                         "long long",     "unsigned short", "unsigned short", "float", "unsigned char"};
static_assert(std::size(kElementTypes) == size_t(DType::E4M3) + 1);

bool isConstant(const ir::Extent& extent, int64_t value) { return !extent.isNamed && extent.value == value; }

} // namespace

/// Products of index and stride, by level of the index. `open`: those that depend on the index of a sum.
struct Lowering::AddressTerms {
  llvm::SmallVector<uint32_t, 4> head, row, column, element, open;
};

/// Returns the index along one axis as it is read: inside the tensor.
uint32_t Lowering::lowerIndex(Value value, unsigned axis) {
  const Node& load = module[value];
  const ir::TensorCapture& tensor = module.tensors[load.attr];
  const ir::Extent& extent = tensor.shape[axis];
  uint32_t tensorIndex = uint32_t(load.attr), index = exprOf[load.operands[axis].id];
  if (intervals.provesInside(value, axis)) return index;
  Type type = module[load.operands[axis]].type;
  Expr inside{.operands = {index}, .type = cType(type), .prefix = "i_", .name = tensor.name, .line = load.line};
  if (extent.isNamed) {
    inside.text = type == Type::I64 ? "clamp_index({0}, i64_of({1}))" : "clamp_index({0}, {1})";
    inside.operands.push_back(addArg({ArgWord::Kind::TensorSize, tensorIndex, axis, Type::I32}, "int", "t_",
                                     tensor.name, fmt::format("_size{}", axis)));
  } else {
    int64_t size = std::min<int64_t>(extent.value, std::numeric_limits<int32_t>::max());
    inside.text = fmt::format("clamp_index({{0}}, {})", literal(type, size));
  }
  return add(std::move(inside));
}

Lowering::AddressTerms Lowering::termsOf(Value value) {
  const Node& load = module[value];
  const ir::TensorCapture& tensor = module.tensors[load.attr];
  AddressTerms terms;
  for (unsigned axis = 0; axis < load.operands.size(); ++axis) {
    Value operand = load.operands[axis];
    bool isZero = module.isConst(operand) && module.integer(operand) <= 0;
    if (isZero || isConstant(tensor.shape[axis], 1)) continue; // always reads element 0 of this axis
    uint32_t index = lowerIndex(value, axis);
    uint32_t stride = addArg({ArgWord::Kind::TensorStride, uint32_t(load.attr), axis, Type::I64}, "long long", "t_",
                             tensor.name, fmt::format("_stride{}", axis));
    uint32_t term = add({.text = "step({0}, {1})",
                         .operands = {index, stride},
                         .type = "long long",
                         .prefix = "o_",
                         .name = tensor.name,
                         .line = load.line});
    if (program.exprs[term].open) {
      terms.open.push_back(term);
      continue;
    }
    switch (program.exprs[term].level) {
    case Level::Launch:
    case Level::Head: terms.head.push_back(term); break;
    case Level::Row: terms.row.push_back(term); break;
    case Level::Column: terms.column.push_back(term); break;
    case Level::Element: terms.element.push_back(term); break;
    }
  }
  return terms;
}

uint32_t Lowering::addSum(llvm::ArrayRef<uint32_t> terms, std::string type, const char* prefix, const Node& load) {
  Expr sum{.type = std::move(type), .prefix = prefix, .name = module.tensors[load.attr].name, .line = load.line};
  for (uint32_t term : terms) {
    sum.text += fmt::format("{}{{{}}}", sum.operands.empty() ? "" : " + ", sum.operands.size());
    sum.operands.push_back(term);
  }
  return add(std::move(sum));
}

uint32_t Lowering::lowerGather(Value value) {
  const Node& load = module[value];
  const ir::TensorCapture& tensor = module.tensors[load.attr];
  for (const ir::Extent& extent : tensor.shape)
    if (isConstant(extent, 0)) return addLeaf(literal(load.type, 0), cType(load.type));

  std::string type = fmt::format("const {}*", kElementTypes[int(tensor.dtype)]);
  uint32_t address = addArg({ArgWord::Kind::TensorData, uint32_t(load.attr), 0, Type::I64}, type, "t_", tensor.name);
  AddressTerms terms = termsOf(value);
  auto advance = [&](llvm::SmallVector<uint32_t, 4> by) {
    if (by.empty()) return;
    by.insert(by.begin(), address);
    address = addSum(by, type, "p_", load);
  };
  advance(terms.head);
  advance(terms.row);
  if (terms.row.empty()) {
    advance(terms.column);
  } else if (!terms.column.empty()) {
    bool single = terms.column.size() == 1;
    terms.element.insert(terms.element.begin(),
                         single ? terms.column[0] : addSum(terms.column, "long long", "o_", load));
  }
  advance(terms.element);
  advance(terms.open);
  return add({.text = fmt::format("load_{}({{0}})", dtypeName(tensor.dtype)),
              .operands = {address},
              .prefix = "v_",
              .name = tensor.name,
              .cost = costOf(ir::Op::Load, load.type)});
}

/// Returns the offset where a place adds its gradient, in a dense tensor of the capture's shape; nullopt if it is
/// always element 0. Indices are clamped, since the place may be outside what a gather proves. Exception: positions
/// along their own axes.
std::optional<uint32_t> Lowering::lowerDenseOffset(const ir::CaptureGradient& place) {
  const auto tensor = llvm::find_if(module.tensors, [&](const auto& t) { return t.name == place.capture; });
  if (tensor == module.tensors.end()) return std::nullopt;
  const auto number = uint32_t(tensor - module.tensors.begin());
  const auto addNamed = [&](Expr expr) {
    expr.name = tensor->name;
    return add(std::move(expr));
  };
  const auto sizeOf = [&](unsigned axis) {
    return addArg({ArgWord::Kind::TensorSize, number, axis, Type::I32}, "int", "t_", tensor->name,
                  fmt::format("_size{}", axis));
  };
  Expr sum{.type = "long long", .prefix = "o_"};
  std::optional<uint32_t> stride; // of the axis; unset: 1
  for (unsigned axis = unsigned(place.indices.size()); axis-- > 0;) {
    const ir::Extent& extent = tensor->shape[axis];
    if (isConstant(extent, 1)) continue;
    const Value index = *module.output(place.indices[axis]);
    uint32_t term = lowerRoot(index);
    if (!analysis::isPositionAlong(module, index, extent)) {
      const bool isLong = module[index].type == Type::I64;
      Expr inside{.text = isLong ? "clamp_index({0}, i64_of({1}))" : "clamp_index({0}, {1})",
                  .operands = {term},
                  .type = cType(module[index].type),
                  .prefix = "i_"};
      const auto most = std::min<int64_t>(extent.value, std::numeric_limits<int32_t>::max());
      inside.operands.push_back(extent.isNamed ? sizeOf(axis) : addLeaf(literal(Type::I32, most), "int"));
      term = addNamed(std::move(inside));
    }
    if (!stride) stride = addLeaf(literal(Type::I64, 1), "long long");
    term = addNamed({.text = "step({0}, {1})", .operands = {term, *stride}, .type = "long long", .prefix = "o_"});
    sum.text += fmt::format("{}{{{}}}", sum.operands.empty() ? "" : " + ", sum.operands.size());
    sum.operands.push_back(term);
    const uint32_t size = extent.isNamed ? sizeOf(axis) : addLeaf(literal(Type::I64, extent.value), "long long");
    const uint32_t longSize =
        extent.isNamed ? addNamed({.text = "i64_of({0})", .operands = {size}, .type = "long long", .prefix = "o_"})
                       : size;
    const bool isFirst = sum.operands.size() == 1;
    stride =
        isFirst ? longSize
                : addNamed({.text = "{0} * {1}", .operands = {*stride, longSize}, .type = "long long", .prefix = "o_"});
  }
  if (sum.operands.empty()) return std::nullopt;
  return addNamed(std::move(sum));
}

} // namespace attnc::codegen
