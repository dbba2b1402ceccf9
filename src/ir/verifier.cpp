// verify(): see verifier.h. Each function returns a finding or an empty string.
#include "ir/verifier.h"

#include "ir/loops.h"
#include "ir/reductions.h"
#include "ir/walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

namespace attnc::ir {
namespace {

std::string checkConst(const Node& node) {
  switch (node.type) {
  case Type::Bool:
    if (node.attr != 0 && node.attr != 1) return "a bool constant is neither 0 nor 1";
    return "";
  case Type::I32:
    if (node.attr != int32_t(node.attr)) return "an i32 constant does not fit";
    return "";
  case Type::I64: return "";
  case Type::F32:
    if (node.attr != int64_t(uint32_t(node.attr))) return "an f32 constant is not a 32-bit pattern";
    return "";
  }
  return "a constant has no type";
}

std::string checkLoop(const Node& node) {
  const Loop loop = Loop::of(node);
  if (node.attr < 0 || loop.id >= kMaxLoops) return "a loop has no valid id";
  return loop.count >= 1 && loop.count <= kMaxRounds ? "" : fmt::format("a loop has {} rounds", loop.count);
}

std::string checkLeaf(const Module& module, const Node& node) {
  bool inRange = node.attr >= 0;
  switch (leafOf(node)) {
  case Leaf::Const: return checkConst(node);
  case Leaf::Param:
    if (!inRange || node.attr >= int64_t(kParamCount)) return "a param does not exist";
    if (node.type != typeOf(ParamKind(node.attr)))
      return fmt::format("param {} has type {}", name(ParamKind(node.attr)), name(node.type));
    return "";
  case Leaf::Scalar:
    if (!inRange || node.attr >= int64_t(module.scalars.size())) return "a scalar is not declared";
    if (node.type != module.scalars[node.attr].type)
      return fmt::format("scalar {} has type {}", module.scalars[node.attr].name, name(node.type));
    return "";
  case Leaf::Dim:
    if (!inRange || node.attr >= int64_t(module.dims.size())) return "a dim is not declared";
    return node.type == Type::I32 ? "" : "a dim is not an i32";
  case Leaf::Iter:
    if (node.type != Type::I32) return "an iter is not an i32";
    return checkLoop(node);
  }
  return "a leaf is of no kind";
}

std::string checkLoad(const Module& module, const Node& node) {
  if (node.attr < 0 || node.attr >= int64_t(module.tensors.size())) return "a load reads a tensor that is not declared";
  const TensorCapture& tensor = module.tensors[node.attr];
  if (node.operands.size() != tensor.shape.size())
    return fmt::format("load of {} has {} indices for {} axes", tensor.name, node.operands.size(), tensor.shape.size());
  if (node.type != loadedType(tensor.dtype))
    return fmt::format("load of {} has type {}, but {} loads as {}", tensor.name, name(node.type),
                       dtypeName(tensor.dtype), name(loadedType(tensor.dtype)));
  for (Value operand : node.operands)
    if (!isInt(module[operand].type))
      return fmt::format("an index of {} has type {}", tensor.name, name(module[operand].type));
  return "";
}

std::string checkCoord(const Module& module, const Node& node) {
  const char* text = info(node.op).text;
  const GridAxis at = GridAxis::of(node);
  if (node.attr < 0 || at.grid >= module.grids.size()) return fmt::format("{} is of a grid that is not declared", text);
  const size_t axes = node.op == Op::Coord ? module.grids[at.grid].extents.size() : 1;
  if (at.axis >= axes) return fmt::format("{} is of axis {} of a grid of {}", text, at.axis, axes);
  const Type result = node.op == Op::Coord ? Type::I32 : Type::Bool;
  if (node.type != result) return fmt::format("{} has type {}, not {}", text, name(node.type), name(result));
  if (node.op == Op::InGrid && module.grids[at.grid].hasRest()) return "in_grid is asked of a grid with a rest";
  const Type position = module[node.operands[0]].type;
  return position == Type::I32 ? "" : fmt::format("{} of a position of type {}", text, name(position));
}

std::string checkRandom(const Module& module, const Node& node) {
  if (node.type != Type::F32) return fmt::format("random has type {}, not f32", name(node.type));
  for (size_t i = 0; i < node.operands.size(); ++i) {
    const Type type = module[node.operands[i]].type;
    if (type != (i == 0 ? Type::I64 : Type::I32))
      return fmt::format("random: operand {} has type {}, not {}", i + 1, name(type), i == 0 ? "i64" : "i32");
  }
  return "";
}

/// Checks the typing rules of operands and result, except Leaf, Load, Grid and Random, which are checked elsewhere.
std::string checkTypes(const Module& module, const Node& node) {
  const OpInfo& op = info(node.op);
  Type first = module[node.operands[0]].type;
  if (op.rule == TypeRule::Cast) return first != node.type ? "" : fmt::format("cast {} to its own type", name(first));
  if (op.rule == TypeRule::Select) {
    if (first != Type::Bool) return fmt::format("select: the condition has type {}, not bool", name(first));
    for (unsigned i : {1u, 2u})
      if (module[node.operands[i]].type != node.type)
        return fmt::format("select {}: operand {} has type {}", name(node.type), i + 1,
                           name(module[node.operands[i]].type));
    return "";
  }
  bool isTest = op.rule == TypeRule::Compare || op.rule == TypeRule::Test;
  if (isTest && node.type != Type::Bool) return fmt::format("{} has type {}, not bool", op.text, name(node.type));
  Type expected = isTest ? first : node.type;
  if (!admits(op.rule, expected)) return fmt::format("{} does not exist for {}", op.text, name(expected));
  for (size_t i = 0; i < node.operands.size(); ++i)
    if (Type type = module[node.operands[i]].type; type != expected)
      return fmt::format("{} {}: operand {} has type {}", op.text, name(expected), i + 1, name(type));
  return "";
}

std::string checkNode(const Module& module, const Node& node) {
  const OpInfo& op = info(node.op);
  if (op.arity >= 0 && size_t(op.arity) != node.operands.size())
    return fmt::format("{} takes {} operands, not {}", op.text, op.arity, node.operands.size());
  if (op.rule == TypeRule::Leaf) return checkLeaf(module, node);
  if (op.rule == TypeRule::Load) return checkLoad(module, node);
  if (op.rule == TypeRule::Grid) return checkCoord(module, node);
  if (op.rule == TypeRule::Sum) {
    if (std::string finding = checkLoop(node); !finding.empty()) return finding;
  } else if (node.attr != 0) {
    return fmt::format("{} has an attribute", op.text);
  }
  return op.rule == TypeRule::Random ? checkRandom(module, node) : checkTypes(module, node);
}

std::string checkTensor(const Module& module, const TensorCapture& tensor, std::set<int64_t>& namedDims) {
  if (tensor.shape.size() > TensorView::kMaxRank)
    return fmt::format("tensor {} has {} axes; {} is the limit", tensor.name, tensor.shape.size(),
                       TensorView::kMaxRank);
  for (const Extent& extent : tensor.shape) {
    if (extent.isNamed && (extent.value < 0 || extent.value >= int64_t(module.dims.size())))
      return fmt::format("tensor {} has an extent that is not declared", tensor.name);
    if (!extent.isNamed && (extent.value < 0 || extent.value > std::numeric_limits<int32_t>::max()))
      return fmt::format("tensor {} has the extent {}", tensor.name, extent.value);
    if (extent.isNamed) namedDims.insert(extent.value);
  }
  const Type type = loadedType(tensor.dtype);
  const bool isOfSequences = tensor.shape.size() == 1 && tensor.shape[0].isNamed && tensor.shape[0].value == 0;
  if (tensor.choices && !(isInt(type) && isOfSequences))
    return fmt::format("tensor {} chooses mods, and is not of one int for each sequence, [B]", tensor.name);
  return "";
}

std::string checkNumber(const Module& module, const Grid::Number& number, int64_t least) {
  const bool isInRange = number.value >= 0;
  switch (number.kind) {
  case Grid::Number::Kind::Constant:
    if (number.value < least || number.value > std::numeric_limits<int32_t>::max())
      return fmt::format("a grid has the number {}", number.value);
    return "";
  case Grid::Number::Kind::Scalar:
    if (!isInRange || number.value >= int64_t(module.scalars.size())) return "a grid has a scalar that is not declared";
    if (Type type = module.scalars[size_t(number.value)].type; type != Type::I32)
      return fmt::format("a grid has a number of type {}", name(type));
    return "";
  case Grid::Number::Kind::Dim:
    return isInRange && number.value < int64_t(module.dims.size()) ? "" : "a grid has an extent that is not declared";
  case Grid::Number::Kind::Rest:
    return number.value == int64_t(BuiltinDim::QLen) || number.value == int64_t(BuiltinDim::KvLen)
               ? ""
               : "a grid has a rest of something else than Q_LEN and KV_LEN";
  }
  return "a number of a grid is of no kind";
}

std::string checkGrids(const Module& module) {
  if (module.grids.size() > kMaxGrids) return fmt::format("{} grids; {} is the limit", module.grids.size(), kMaxGrids);
  for (size_t i = 0; i < module.grids.size(); ++i) {
    const Grid& grid = module.grids[i];
    if (grid.extents.empty() || grid.extents.size() > kMaxGridAxes)
      return fmt::format("a grid has {} axes", grid.extents.size());
    for (const Grid::Number& extent : grid.extents)
      if (std::string finding = checkNumber(module, extent, 1); !finding.empty()) return finding;
    const auto isRest = [](const Grid::Number& number) { return number.kind == Grid::Number::Kind::Rest; };
    if (isRest(grid.before) || std::any_of(grid.extents.begin() + 1, grid.extents.end(), isRest))
      return "a number of a grid other than its first extent is a rest";
    if (std::string finding = checkNumber(module, grid.before, 0); !finding.empty()) return finding;
    if (std::find(module.grids.begin(), module.grids.begin() + int64_t(i), grid) != module.grids.begin() + int64_t(i))
      return "a grid is declared twice";
  }
  return "";
}

std::string checkCaptures(const Module& module) {
  if (size_t count = module.tensors.size() + module.scalars.size(); count > kMaxCaptures + std::size(kSequenceTensors))
    return fmt::format("{} captures are more than the {} that a module may have", count, kMaxCaptures);
  std::set<std::string> names;
  auto claim = [&](const std::string& name) {
    if (!isIdentifier(name)) return fmt::format("'{}' is not a name", name);
    return names.insert(name).second ? std::string() : fmt::format("two captures are called {}", name);
  };
  std::set<int64_t> namedDims;
  for (const TensorCapture& tensor : module.tensors) {
    if (std::string finding = claim(tensor.name); !finding.empty()) return finding;
    if (std::string finding = checkTensor(module, tensor, namedDims); !finding.empty()) return finding;
  }
  for (const ScalarCapture& scalar : module.scalars) {
    if (std::string finding = claim(scalar.name); !finding.empty()) return finding;
    if (scalar.type == Type::I64) return fmt::format("scalar {} has type i64", scalar.name);
  }
  static const Module kPlain;
  if (module.dims.size() < kBuiltinDims || !std::equal(kPlain.dims.begin(), kPlain.dims.end(), module.dims.begin()))
    return "the first dims are not B, H, HKV, Q_LEN, KV_LEN";
  std::set<std::string> dims;
  for (size_t dim = 0; dim < module.dims.size(); ++dim) {
    if (!isIdentifier(module.dims[dim])) return fmt::format("'{}' is not a name", module.dims[dim]);
    if (!dims.insert(module.dims[dim]).second) return fmt::format("two dims are called {}", module.dims[dim]);
    if (dim >= kBuiltinDims && !namedDims.count(int64_t(dim)))
      return fmt::format("dim {} is the extent of no tensor", module.dims[dim]);
  }
  return "";
}

/// Checks that sums bind the indices in their operands, and that nesting follows their ids.
std::string checkSums(const Module& module) {
  const std::vector<LoopSet> open = openLoops(module);
  for (const Output& output : module.outputs())
    if (LoopSet loops = open[output.value.id])
      return fmt::format("output {} depends on %i{} outside its sum", output.name, innermost(loops));
  for (uint32_t id = 0; id < module.size(); ++id) {
    const Node& node = module[{id}];
    if (node.op != Op::Sum) continue;
    if (open[id] && innermost(open[id]) < Loop::of(node).id)
      return fmt::format("node {}: a sum over %i{} stands inside that over %i{}", id, Loop::of(node).id,
                         innermost(open[id]));
    for (Value inside : nodesInside(module, open, {id}))
      if (module[inside].op == Op::Iter && module[inside].attr != node.attr)
        return fmt::format("node {}: %i{} has another number of rounds in the sum than inside", id, Loop::of(node).id);
  }
  return "";
}

/// Checks the contract of a well-known output.
std::string checkRole(const Output& output, Type type) {
  const OutputRole* role = roleNamed(output.name);
  if (!role) return "";
  if (type != role->type)
    return fmt::format("output {} has type {}, not {}", output.name, name(type), name(role->type));
  for (ParamKind param : kParams)
    if (output.params.contains(param) && !role->params.contains(param))
      return fmt::format("output {} cannot have the parameter {}", output.name, name(param));
  return "";
}

/// Checks that the host can evaluate the condition before a launch, which bind() relies on.
std::string checkCondition(const Module& module, const Output& output) {
  if (!output.isCondition()) return "";
  if (roleNamed(output.name)) return fmt::format("output {} cannot be a condition", output.name);
  if (!(output.params == ParamSet())) return fmt::format("condition {} has parameters", output.name);
  if (module[output.value].type != Type::Bool)
    return fmt::format("condition {} has type {}, not bool", output.name, name(module[output.value].type));
  const std::vector<bool> needed = neededBy(module, output.value);
  for (uint32_t id = 0; id <= output.value.id; ++id)
    if (needed[id] && module[{id}].op == Op::Load)
      return fmt::format("condition {} reads {}", output.name, module.tensors[module[{id}].attr].name);
  return "";
}

/// Checks the contract of reductions.
std::string checkReduction(const Output& output, Type type) {
  const std::optional<Reduction> reduction = reductionOf(output);
  if (!reduction) return "";
  if (type != Type::F32) return fmt::format("output {} has type {}, not f32", output.name, name(type));
  for (ParamKind param : kParams)
    if (output.params.contains(param) && !kReductionParams.contains(param))
      return fmt::format("output {} cannot have the parameter {}", output.name, name(param));
  return isIdentifier(reduction->name) ? "" : fmt::format("output {} has no name of its own", output.name);
}

std::string checkOutputs(const Module& module) {
  if (const size_t count = reductionsOf(module).size(); count > kMaxReductions)
    return fmt::format("{} reductions, more than {}", count, kMaxReductions);
  for (const Output& output : module.outputs()) {
    if (!isIdentifier(output.name)) return fmt::format("'{}' is not a name", output.name);
    if (output.value.id >= module.size()) return fmt::format("the value of output {} is not a node", output.name);
    if (std::string finding = checkRole(output, module[output.value].type); !finding.empty()) return finding;
    if (std::string finding = checkReduction(output, module[output.value].type); !finding.empty()) return finding;
    if (std::string finding = checkCondition(module, output); !finding.empty()) return finding;
  }
  const std::vector<ParamSet> params = paramsOf(module);
  for (const Output& output : module.outputs())
    for (ParamKind param : kParams)
      if (params[output.value.id].contains(param) && !output.params.contains(param))
        return fmt::format("output {} depends on {}, which is none of its parameters", output.name, name(param));
  return "";
}

std::string checkModule(const Module& module) {
  if (std::string finding = checkCaptures(module); !finding.empty()) return finding;
  if (std::string finding = checkGrids(module); !finding.empty()) return finding;
  for (uint32_t id = 0; id < module.size(); ++id) {
    const Node& node = module[{id}];
    for (Value operand : node.operands)
      if (operand.id >= id) return fmt::format("node {} uses node {}, which does not come before it", id, operand.id);
    if (std::string finding = checkNode(module, node); !finding.empty()) return fmt::format("node {}: {}", id, finding);
  }
  if (std::string finding = checkOutputs(module); !finding.empty()) return finding;
  return checkSums(module);
}

std::optional<std::string> toOptional(std::string finding) {
  if (finding.empty()) return std::nullopt;
  return finding;
}

} // namespace

bool isIdentifier(llvm::StringRef text) {
  auto isStart = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  if (text.empty() || !isStart(text[0])) return false;
  return llvm::all_of(text, [&](char c) { return isStart(c) || (c >= '0' && c <= '9'); });
}

std::optional<std::string> verifyNode(const Module& module, const Node& node) {
  for (Value operand : node.operands)
    if (operand.id >= module.size()) return "an operand is not a node";
  return toOptional(checkNode(module, node));
}

std::optional<std::string> verify(const Module& module) { return toOptional(checkModule(module)); }

} // namespace attnc::ir
