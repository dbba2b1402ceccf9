#include "proofs/claim.h"

#include "ir/outputs.h"
#include "support/try.h"

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>

namespace attnc::proofs {

using ir::Module;
using ir::Op;
using ir::ParamKind;
using ir::Type;
using ir::Value;

namespace {

template <class T> int64_t indexOf(std::vector<T>& all, const T& one, llvm::function_ref<bool(const T&)> isSame) {
  const auto found = llvm::find_if(all, isSame);
  if (found != all.end()) return found - all.begin();
  all.push_back(one);
  return int64_t(all.size()) - 1;
}

Value maskOf(Module& to, Import& import, const Module& from, std::optional<Value> column = {}) {
  const std::optional<Value> mask = from.output(ir::kMask);
  return mask ? import.copy(*mask, ParamKind::KvIdx, column) : to.constBool(true);
}

Value both(Module& module, Value a, Value b) { return module.make(Op::And, Type::Bool, {a, b}); }
Value either(Module& module, Value a, Value b) { return module.make(Op::Or, Type::Bool, {a, b}); }
Value inverse(Module& module, Value a) { return module.make(Op::Not, Type::Bool, {a}); }

/// Returns whether all assumptions hold.
Expected<Value> allOf(Module& module, llvm::ArrayRef<const Module*> assumptions) {
  Value all = module.constBool(true);
  for (const Module* assumption : assumptions) {
    ATTNC_TRY_AS(import, Import::into(module, *assumption));
    all = both(module, all, maskOf(module, *import, *assumption));
  }
  return all;
}

/// Copies conditions of the launch, so that examples meet them.
void addConditions(Module& module, Import& import, const Module& from, llvm::StringRef prefix) {
  for (const ir::Output& output : from.outputs())
    if (output.isCondition()) {
      ir::Output copy = output;
      copy.name = prefix.str() + output.name;
      copy.value = import.copy(output.value);
      module.setOutput(copy);
    }
}

/// What all claims begin with: the mask and the assumptions.
struct Begun {
  Module module;
  Value live, assumed;

  static Expected<Begun> make(const Module& mask, llvm::ArrayRef<const Module*> assumptions) {
    Begun begun;
    begun.module.sourceName = mask.sourceName;
    ATTNC_TRY_AS(import, Import::into(begun.module, mask));
    begun.live = maskOf(begun.module, *import, mask);
    addConditions(begun.module, *import, mask, "");
    ATTNC_TRY_AS(all, allOf(begun.module, assumptions));
    begun.assumed = *all;
    begun.module.setOutput(kLive, ir::kMask.params, begun.live);
    begun.module.setOutput(kAssumed, ir::kMask.params, begun.assumed);
    return begun;
  }

  /// Returns the module of the claim that this holds where the assumptions do.
  Module finished(Value claim) && {
    module.setOutput(ir::kMask, either(module, inverse(module, assumed), claim));
    return std::move(module);
  }
};

} // namespace

Expected<Import> Import::into(Module& to, const Module& from) {
  Import import(to, from);
  for (const std::string& dim : from.dims)
    import.dims.push_back(indexOf<std::string>(to.dims, dim, [&](const std::string& known) { return known == dim;
}));
const auto clash = [](const std::string& name) {
  return Error::environment(fmt::format("the capture `{}` has two declarations that differ", name));
};
for (ir::TensorCapture tensor : from.tensors) {
  for (ir::Extent& extent : tensor.shape)
    if (extent.isNamed) extent.value = import.dims[size_t(extent.value)];
  const int64_t at =
      indexOf<ir::TensorCapture>(to.tensors, tensor, [&](const auto& known) { return known.name == tensor.name; });
  const ir::TensorCapture& known = to.tensors[size_t(at)];
  if (known.dtype != tensor.dtype || !std::equal(known.shape.begin(), known.shape.end(), tensor.shape.begin(),
                                                 tensor.shape.end(), [](const ir::Extent& a, const ir::Extent& b) {
                                                   return a.isNamed == b.isNamed && a.value == b.value;
                                                 }))
    return clash(tensor.name);
  import.tensors.push_back(at);
}
for (const ir::ScalarCapture& scalar : from.scalars) {
  const int64_t at =
      indexOf<ir::ScalarCapture>(to.scalars, scalar, [&](const auto& known) { return known.name == scalar.name; });
  if (to.scalars[size_t(at)].type != scalar.type) return clash(scalar.name);
  import.scalars.push_back(at);
}
for (ir::Grid grid : from.grids) {
  const auto move = [&](ir::Grid::Number& number) {
    if (number.kind == ir::Grid::Number::Kind::Scalar) number.value = import.scalars[size_t(number.value)];
    if (number.kind == ir::Grid::Number::Kind::Dim || number.kind == ir::Grid::Number::Kind::Rest)
      number.value = import.dims[size_t(number.value)];
  };
  llvm::for_each(grid.extents, move), move(grid.before);
    import.grids.push_back(indexOf<ir::Grid>(to.grids, grid, [&](const ir::Grid& known) { return known == grid;
}));
} // namespace attnc::proofs
return import;
}

Value Import::copy(Value root, ParamKind replaced, std::optional<Value> by) {
  std::vector<bool> needed(root.id + 1);
  needed[root.id] = true;
  for (uint32_t id = root.id + 1; id-- > 0;)
    if (needed[id])
      for (Value operand : from[{id}].operands) needed[operand.id] = true;
  std::vector<Value> copies(root.id + 1);
  for (uint32_t id = 0; id <= root.id; ++id) {
    if (!needed[id]) continue;
    const ir::Node& node = from[{id}];
    if (by && from.isParam({id}, replaced)) {
      copies[id] = *by;
      continue;
    }
    int64_t attr = node.attr;
    switch (node.op) {
    case Op::Dim: attr = dims[size_t(attr)]; break;
    case Op::Scalar: attr = scalars[size_t(attr)]; break;
    case Op::Load: attr = tensors[size_t(attr)]; break;
    case Op::Coord:
    case Op::InGrid: {
      ir::GridAxis axis = ir::GridAxis::of(node);
      axis.grid = unsigned(grids[axis.grid]);
      attr = axis.attr();
      break;
    }
    default: break;
    }
    llvm::SmallVector<Value, 3> operands;
    for (Value operand : node.operands) operands.push_back(copies[operand.id]);
    copies[id] = to.make(node.op, node.type, operands, attr, node.line);
  }
  return copies[root.id];
}

Expected<Module> claimOf(const Module& mask, const Module& property, bool never,
                         llvm::ArrayRef<const Module*> assumptions) {
  ATTNC_TRY_AS(begun, Begun::make(mask, assumptions));
  Module& module = begun->module;
  ATTNC_TRY_AS(import, Import::into(module, property));
  const Value holds = maskOf(module, *import, property);
  addConditions(module, *import, property, "property_");
  const Value claim = either(module, inverse(module, begun->live), never ? inverse(module, holds) : holds);
  return (*std::move(begun)).finished(claim);
}

Expected<Module> claimOfSame(const Module& mask, const Module& other, bool scores,
                             llvm::ArrayRef<const Module*> assumptions) {
  ATTNC_TRY_AS(begun, Begun::make(mask, assumptions));
  Module& module = begun->module;
  ATTNC_TRY_AS(import, Import::into(module, other));
  Value claim = module.make(Op::Eq, Type::Bool, {begun->live, maskOf(module, *import, other)});
  addConditions(module, *import, other, "other_");
  if (scores) {
    ATTNC_TRY_AS(ofMask, Import::into(module, mask));
    module.scalars.push_back({"score", Type::F32});
    const Value given = module.scalar(unsigned(module.scalars.size()) - 1);
    const auto scoreOf = [&](Import& from, const Module& its) {
      const std::optional<Value> score = its.output(ir::kScore);
      return score ? from.copy(*score, ParamKind::Score, given) : given;
    };
    const Value a = scoreOf(*ofMask, mask), b = scoreOf(*import, other);
    const auto isNaN = [&](Value x) { return module.make(Op::IsNan, Type::Bool, {x}); };
    const Value equal = either(module, module.make(Op::Eq, Type::Bool, {a, b}), both(module, isNaN(a), isNaN(b)));
    claim = both(module, claim, either(module, inverse(module, begun->live), equal));
  }
  return (*std::move(begun)).finished(claim);
}

Expected<Module> claimOfRows(const Module& mask, const Module* bounds, llvm::ArrayRef<const Module*> assumptions) {
  ATTNC_TRY_AS(begun, Begun::make(mask, assumptions));
  Module& module = begun->module;
  const auto i32 = [&](Op op, Value a, Value b) { return module.make(op, Type::I32, {a, b}); };
  const Value zero = module.constInt(Type::I32, 0), one = module.constInt(Type::I32, 1);
  const Value q = module.param(ParamKind::QIdx), qLen = module.dim(unsigned(ir::BuiltinDim::QLen)),
              kvLen = module.dim(unsigned(ir::BuiltinDim::KvLen));
  const Value last = i32(Op::Sub, kvLen, one);
  llvm::SmallVector<Value, 6> columns = {q, zero, last, i32(Op::Add, q, i32(Op::Sub, kvLen, qLen))};
  if (bounds) {
    ATTNC_TRY_AS(ofBounds, Import::into(module, *bounds));
    if (const auto begin = bounds->output(ir::kKvBegin)) columns.push_back(ofBounds->copy(*begin));
    if (const auto end = bounds->output(ir::kKvEnd)) columns.push_back(i32(Op::Sub, ofBounds->copy(*end), one));
  }
  ATTNC_TRY_AS(import, Import::into(module, mask));
  Value claim = module.constBool(false);
  for (Value column : columns)
    claim = either(module, claim, maskOf(module, *import, mask, i32(Op::Min, i32(Op::Max, column, zero), last)));
  return (*std::move(begun)).finished(claim);
}

Expected<Module> claimOfShortRows(const Module& mask, int64_t columns, llvm::ArrayRef<const Module*> assumptions) {
  ATTNC_TRY_AS(begun, Begun::make(mask, assumptions));
  Module& module = begun->module;
  ATTNC_TRY_AS(import, Import::into(module, mask));
  const Value kvLen = module.dim(unsigned(ir::BuiltinDim::KvLen));
  Value claim = module.make(Op::Ne, Type::Bool, {kvLen, module.constInt(Type::I32, columns)});
  for (int64_t column = 0; column < columns; ++column)
    claim = either(module, claim, maskOf(module, *import, mask, module.constInt(Type::I32, column)));
  return (*std::move(begun)).finished(claim);
}

} // namespace attnc::proofs
