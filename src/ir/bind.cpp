// bind(): see bind.h. The checks run in the order of the module's declarations, so the first message is stable.
#include "ir/bind.h"

#include "ir/conditions.h"
#include "ir/printer.h"
#include "ir/reductions.h"
#include "ir/walk.h"
#include "support/element.h"
#include "support/try.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace attnc::ir {
namespace {

constexpr int64_t kUnknown = -1;

const char* kindOf(const Captures::Item& value) {
  switch (value.index()) {
  case 0: return "a tensor";
  case 1: return "an int";
  case 2: return "a float";
  default: return "a bool";
  }
}

const char* kindOf(const ScalarCapture& scalar) {
  switch (scalar.type) {
  case Type::Bool: return "a bool";
  case Type::I32:
  case Type::I64: return "an int";
  case Type::F32: return "a float";
  }
  return "?";
}

Error wrongKind(llvm::StringRef name, const char* declared, const Captures::Item& given) {
  return Error::environment(
      fmt::format("capture '{}' is declared as {}, but {} is given", name.str(), declared, kindOf(given)));
}

Error missing(const std::string& name, const std::string& declaration) {
  return Error::environment(fmt::format("capture '{}' is missing", name),
                            fmt::format("give a value for `{}: {}`", name, declaration));
}

std::string declarationOf(const Module& module, const TensorCapture& tensor) {
  std::string text(dtypeName(tensor.dtype));
  for (size_t axis = 0; axis < tensor.shape.size(); ++axis) {
    const Extent& extent = tensor.shape[axis];
    text += axis ? ", " : "[";
    text += extent.isNamed ? module.dims[extent.value] : std::to_string(extent.value);
  }
  return tensor.shape.empty() ? text : text + "]";
}

std::string declarationOf(const ScalarCapture& scalar) {
  return scalar.type == Type::F32 ? "float" : scalar.type == Type::Bool ? "bool" : "int";
}

Status bindProblem(const ProblemShape& problem, Bindings& bindings) {
  const struct {
    const char* name;
    int64_t extent;
  } given[kBuiltinDims] = {{"B", problem.batch},
                           {"H", problem.qHeads},
                           {"HKV", problem.kvHeads},
                           {"Q_LEN", problem.qLen},
                           {"KV_LEN", problem.kvLen}};
  for (const auto& dim : given) {
    if (dim.extent < 0 || dim.extent > kMaxExtent)
      return Error::environment(fmt::format("{} is {}; it must lie in 0..{}", dim.name, dim.extent, kMaxExtent));
    bindings.dims.push_back(dim.extent);
  }
  if (problem.kvHeads > 0 && problem.qHeads % problem.kvHeads != 0)
    return Error::environment(
        fmt::format("H is {}, which is no multiple of HKV = {}", problem.qHeads, problem.kvHeads));
  return {};
}

/// Checks one extent of a tensor against its declaration. A free name takes its value from the first tensor that has
/// it.
Status bindExtent(const Module& module, const TensorCapture& tensor, size_t axis, int64_t actual, Bindings& bindings) {
  if (actual < 0 || actual > std::numeric_limits<int32_t>::max())
    return Error::environment(
        fmt::format("capture '{}': extent {} of axis {} is out of range", tensor.name, actual, axis));
  const Extent& extent = tensor.shape[axis];
  if (!extent.isNamed) {
    if (extent.value == actual) return {};
    return Error::environment(fmt::format("capture '{}': extent of axis {} is {}, but the mod declares {}", tensor.name,
                                          axis, actual, extent.value));
  }
  int64_t& bound = bindings.dims[extent.value];
  if (bound == kUnknown) bound = actual;
  if (bound == actual) return {};
  return Error::environment(fmt::format("capture '{}': extent of axis {} is {}, but {} is {}", tensor.name, axis,
                                        actual, module.dims[extent.value], bound));
}

/// Returns all but one of the cumulative lengths: the starts of sequences, or their ends.
std::optional<TensorView> allButOne(const std::optional<TensorView>& cumulative, bool isEnds) {
  if (!cumulative) return std::nullopt;
  TensorView view = *cumulative;
  --view.shape[0];
  if (isEnds && view.data) view.data = static_cast<int32_t*>(view.data) + view.stride[0];
  return view;
}

/// Returns the view of a tensor of sequences; nullopt if the tensor is a capture.
std::optional<TensorView> viewIn(const Operands& sequences, const TensorCapture& tensor) {
  const std::optional<TensorView>& cuSeqlensKv = sequences.cuSeqlensKv ? sequences.cuSeqlensKv : sequences.cuSeqlensQ;
  if (tensor.name == kKvLengthsTensor) return sequences.kvLengths;
  if (tensor.name == kQOffsetsTensor) return sequences.qOffsets;
  if (tensor.name == kQStartsTensor) return allButOne(sequences.cuSeqlensQ, false);
  if (tensor.name == kQEndsTensor) return allButOne(sequences.cuSeqlensQ, true);
  if (tensor.name == kKvStartsTensor) return allButOne(cuSeqlensKv, false);
  if (tensor.name == kKvEndsTensor) return allButOne(cuSeqlensKv, true);
  return std::nullopt;
}

Status bindTensor(const Module& module, const TensorCapture& tensor, const TensorView* view, const Captures& captures,
                  Bindings& bindings) {
  const bool isCapture = !view; // callers check the addresses of other tensors
  if (isCapture) {
    const Captures::Item* given = captures.find(tensor.name);
    if (!given) return missing(tensor.name, declarationOf(module, tensor));
    view = std::get_if<TensorView>(given);
    if (!view) return wrongKind(tensor.name, "a tensor", *given);
  }
  if (view->dtype != tensor.dtype)
    return Error::environment(fmt::format("capture '{}' has dtype {}, but the mod declares {}", tensor.name,
                                          dtypeName(view->dtype), dtypeName(tensor.dtype)));
  if (view->rank != int(tensor.shape.size()))
    return Error::environment(fmt::format("capture '{}' has {} axes, but the mod declares {}: {}", tensor.name,
                                          view->rank, tensor.shape.size(), declarationOf(module, tensor)));
  for (size_t axis = 0; axis < tensor.shape.size(); ++axis)
    ATTNC_TRY(bindExtent(module, tensor, axis, view->shape[axis], bindings));
  if (isCapture && !view->data && view->elements() != 0)
    return Error::environment(fmt::format("capture '{}' has no data: its pointer is null", tensor.name));
  bindings.tensors.push_back(*view);
  return {};
}

Status bindScalar(const ScalarCapture& scalar, const Captures& captures, Bindings& bindings) {
  const Captures::Item* given = captures.find(scalar.name);
  if (!given) return missing(scalar.name, declarationOf(scalar));
  const int64_t* integer = std::get_if<int64_t>(given);
  const double* real = std::get_if<double>(given);
  const bool* boolean = std::get_if<bool>(given);
  ScalarValue value;
  if (scalar.type == Type::F32 && (real || integer)) {
    value.real = float(real ? *real : double(*integer));
  } else if (scalar.type == Type::Bool && boolean) {
    value.integer = *boolean;
  } else if (scalar.type == Type::I32 && integer) {
    if (*integer != int32_t(*integer))
      return Error::environment(
          fmt::format("capture '{}' is {}, which does not fit into 32 bits", scalar.name, *integer));
    value.integer = *integer;
  } else {
    return wrongKind(scalar.name, kindOf(scalar), *given);
  }
  bindings.scalars.push_back(value);
  return {};
}

bool declares(const Module& module, const std::string& name) {
  for (const TensorCapture& tensor : module.tensors)
    if (tensor.name == name) return true;
  for (const ScalarCapture& scalar : module.scalars)
    if (scalar.name == name) return true;
  return false;
}

/// Returns the values that a condition reads: "N = 4, B = 4".
std::string askedAbout(const Module& module, const Bindings& bindings, Value condition) {
  const std::vector<bool> needed = neededBy(module, condition);
  std::string text;
  for (uint32_t id = 0; id <= condition.id; ++id) {
    const Node& node = module[{id}];
    if (!needed[id] || (node.op != Op::Dim && node.op != Op::Scalar)) continue;
    text += text.empty() ? "" : ", ";
    if (node.op == Op::Dim) {
      text += fmt::format("{} = {}", module.dims[node.attr], bindings.dims[node.attr]);
      continue;
    }
    const ScalarValue& scalar = bindings.scalars[node.attr];
    text += module.scalars[node.attr].name + " = ";
    text += node.type == Type::F32    ? printF32(scalar.real)
            : node.type == Type::Bool ? (scalar.integer ? "True" : "False")
                                      : std::to_string(scalar.integer);
  }
  return text;
}

Status checkConditions(const Module& module, const Bindings& bindings) {
  if (llvm::none_of(module.outputs(), [](const Output& output) { return output.isCondition(); })) return {};
  const Module conditions = conditionsAlone(module);
  for (const Output& condition : conditions.outputs()) {
    if (meets(conditions, bindings, condition)) continue;
    const std::string place =
        condition.line ? fmt::format("{}:{}: ", module.sourceName, condition.line) : std::string();
    const std::string values = askedAbout(conditions, bindings, condition.value);
    return Error::environment(fmt::format("{}{}{}", place, condition.words, values.empty() ? "" : " (" + values + ")"),
                              "the mod sets this as a condition of every launch");
  }
  return {};
}

/// Whether a name is that of the direction of a captured float (passes/tangents.h), or of the gradient of an output
/// (passes/output_gradients.h). Modules without these, such as that of the forward pass, leave it to others.
bool isForDerivatives(const Module& module, llvm::StringRef name) {
  for (const Reduction& each : reductionsOf(module))
    if (!each.isMax && each.gradient() == name) return true;
  return name.consume_back("_tangent") &&
         (llvm::any_of(module.tensors,
                       [&](const auto& one) { return one.name == name && loadedType(one.dtype) == Type::F32; }) ||
          llvm::any_of(module.scalars, [&](const auto& one) { return one.name == name && one.type == Type::F32; }));
}

/// Checks for names that are given but not declared. Called only if the counts differ; all declared names are given.
Status checkDeclared(const Module& module, const Captures& captures) {
  std::string declared;
  for (const TensorCapture& tensor : module.tensors) declared += (declared.empty() ? "" : ", ") + tensor.name;
  for (const ScalarCapture& scalar : module.scalars) declared += (declared.empty() ? "" : ", ") + scalar.name;
  bool areForDerivatives = false;
  for (const auto& [name, value] : captures.all()) {
    if (declares(module, name)) continue;
    areForDerivatives = isForDerivatives(module, name);
    if (!areForDerivatives)
      return Error::environment(fmt::format("capture '{}' is given, but the mod does not declare it", name),
                                declared.empty() ? "the mod declares no captures" : "declared: " + declared);
  }
  return areForDerivatives ? Status() : Error::internal("bind: two captures of the module share a name");
}

/// Checks the numbers of a grid against the limits of ir::Grid.
Status checkGrid(const Module& module, const Grid& grid, const Bindings& bindings) {
  const auto nameOf = [&](const Grid::Number& number) {
    switch (number.kind) {
    case Grid::Number::Kind::Constant:
    case Grid::Number::Kind::Rest: break;
    case Grid::Number::Kind::Scalar: return fmt::format("{}, which is ", module.scalars[size_t(number.value)].name);
    case Grid::Number::Kind::Dim: return fmt::format("{}, which is ", module.dims[size_t(number.value)]);
    }
    return std::string();
  };
  const int64_t before = bindings.of(grid.before);
  if (before < 0 || before >= kMaxExtent)
    return Error::environment(
        fmt::format("a grid begins at {}{}; it must lie in 0..{}", nameOf(grid.before), before, kMaxExtent - 1));
  int64_t tokens = 1;
  for (const Grid::Number& number : llvm::ArrayRef<Grid::Number>(grid.extents).drop_front(grid.hasRest())) {
    const int64_t extent = bindings.of(number);
    if (extent < 1 || extent > kMaxExtent)
      return Error::environment(
          fmt::format("an extent of a grid is {}{}; it must lie in 1..{}", nameOf(number), extent, kMaxExtent));
    tokens = std::min(tokens * extent, kMaxExtent + 1); // no overflow: both are at most 2^24 + 1
  }
  if (const int64_t index = grid.extents[0].value; grid.hasRest()) {
    const std::string& length = module.dims[size_t(index)];
    const int64_t rows = bindings.dims[size_t(index)];
    if (rows >= before && (rows - before) % tokens == 0) return {};
    const std::string from = before ? fmt::format(", counted from {}", before) : "";
    return Error::environment(
        fmt::format("{} is {}{}, no multiple of the {} tokens of a slice of a grid", length, rows, from, tokens));
  }
  if (before + tokens <= kMaxExtent) return {};
  return Error::environment(fmt::format("a grid ends behind {} tokens, more than there can be", kMaxExtent));
}

/// Checks the elements of a tensor that chooses mods.
Status checkChoices(const TensorCapture& tensor, const TensorView& view) {
  for (int64_t b = 0; b < view.shape[0]; ++b) {
    const int64_t taken = readElement(view.data, view.dtype, b * view.stride[0]).integer;
    if (taken < 0 || taken >= tensor.choices)
      return Error::environment(
          fmt::format("capture '{}' is {} for sequence {}, and chooses between {} mods", tensor.name, taken, b,
                      tensor.choices),
          fmt::format("give 0 to {}; kernels mask all scores of other sequences", tensor.choices - 1));
  }
  return {};
}

} // namespace

ProblemShape problemOf(ProblemShape rows, const Operands& operands) {
  if (!operands.cuSeqlensQ) return rows;
  const auto longest = [](int64_t told, int64_t extent) { return std::min(told ? told : extent, kMaxExtent); };
  rows.batch = operands.cuSeqlensQ->shape[0] - 1;
  rows.qLen = longest(operands.maxQLen, rows.qLen);
  rows.kvLen = longest(operands.maxKvLen, rows.kvLen);
  return rows;
}

Expected<Bindings> bind(const Module& module, const Captures& captures, const ProblemShape& problem,
                        const Operands* sequences) {
  Bindings bindings;
  ATTNC_TRY(bindProblem(problem, bindings));
  bindings.dims.resize(module.dims.size(), kUnknown);
  size_t captured = module.scalars.size();
  for (const TensorCapture& tensor : module.tensors) {
    const std::optional<TensorView> view = sequences ? viewIn(*sequences, tensor) : std::nullopt;
    ATTNC_TRY(bindTensor(module, tensor, view ? &*view : nullptr, captures, bindings));
    captured += !view;
  }
  for (const ScalarCapture& scalar : module.scalars) ATTNC_TRY(bindScalar(scalar, captures, bindings));
  for (size_t dim = kBuiltinDims; dim < module.dims.size(); ++dim)
    if (bindings.dims[dim] == kUnknown)
      return Error::internal(fmt::format("bind: no tensor gives the extent {}", module.dims[dim]));
  for (const Grid& grid : module.grids) ATTNC_TRY(checkGrid(module, grid, bindings));
  if (const std::optional<int64_t> far = bindings.farScalar(); far && module.hasNearScalars)
    return Error::environment(
        fmt::format("{} is given, the module takes numbers from -{} to {}", *far, kMaxExtent, kMaxExtent));
  if (captures.all().size() != captured) ATTNC_TRY(checkDeclared(module, captures));
  ATTNC_TRY(checkConditions(module, bindings));
  return bindings;
}

Expected<Bindings> bindOnHost(const Module& module, const Captures& captures, const ProblemShape& problem,
                              const Operands* sequences) {
  ATTNC_TRY_AS(bindings, bind(module, captures, problem, sequences));
  for (size_t i = 0; i < module.tensors.size(); ++i)
    if (module.tensors[i].choices) ATTNC_TRY(checkChoices(module.tensors[i], bindings->tensors[i]));
  return bindings;
}

} // namespace attnc::ir
