// lower(): see program.h. Gathers are in lower_gather.cpp.
#include "codegen/lower.h"

#include "analysis/grid_box.h"
#include "ir/reductions.h"
#include "ir/visits.h"
#include "ir/walk.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/Support/MathExtras.h>

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <set>

namespace attnc::codegen {

using ir::Level;
using ir::Node;
using ir::Op;
using ir::Type;
using ir::Value;

const char* cType(Type type) {
  switch (type) {
  case Type::Bool: return "bool";
  case Type::I32: return "int";
  case Type::I64: return "long long";
  case Type::F32: return "float";
  }
  return "?";
}

int costOf(Op op, Type type) {
  const ir::Cost cost = ir::info(op).cost;
  return type == Type::F32 ? cost.ofFloats : type == Type::I64 ? 2 * cost.ofInts : cost.ofInts;
}

namespace {

/// Returns the spelling to use of "a; b" in ops.def: a for bool and f32, b for integers that may wrap.
std::string spelling(Op op, bool mayWrap) {
  auto [first, second] = llvm::StringRef(ir::info(op).cuda).split("; ");
  return (mayWrap && !second.empty() ? second : first).str();
}

std::string castPattern(Type from, Type to) {
  switch (to) {
  case Type::Bool: return from == Type::F32 ? "{0} != 0.0f" : from == Type::Bool ? "{0}" : "{0} != 0";
  case Type::I32: return from == Type::F32 ? "saturate_i32({0})" : from == Type::I64 ? "i32_of({0})" : "int({0})";
  case Type::I64: return from == Type::F32 ? "saturate_i64({0})" : "i64_of({0})";
  case Type::F32: return "float({0})";
  }
  return "?";
}

// For reciprocal() and saturate_i64() of templates/mod/ops.cuh.
constexpr int kReciprocalCost = 10, kSaturateCost = 8;

/// Returns 1 / value if it can replace the division: value and result are finite and normal.
std::optional<float> exactEnoughReciprocal(float value) {
  float result = 1.0f / value;
  if (std::isnormal(value) && std::isnormal(result)) return result;
  return std::nullopt;
}

} // namespace

uint32_t Lowering::add(Expr expr) {
  std::vector<uint32_t> operands(expr.operands.begin(), expr.operands.end());
  auto [found, isNew] = exprWith.try_emplace({expr.text, operands}, uint32_t(program.exprs.size()));
  if (!isNew) return found->second;
  for (uint32_t operand : operands) {
    expr.level = join(expr.level, program.exprs[operand].level);
    expr.open |= program.exprs[operand].open;
  }
  if (expr.kind == Expr::Kind::Iter) expr.open = only(expr.loop);
  if (expr.kind == Expr::Kind::Sum) expr.open &= ~only(expr.loop);
  program.exprs.push_back(std::move(expr));
  return found->second;
}

uint32_t Lowering::addLeaf(std::string text, std::string type) {
  return add({.kind = Expr::Kind::Leaf, .text = std::move(text), .type = std::move(type)});
}

uint32_t Lowering::addArg(ArgWord slot, std::string type, llvm::StringRef prefix, llvm::StringRef name,
                          llvm::StringRef suffix) {
  auto [found, isNew] = arguments.indexOf.try_emplace({slot.kind, slot.index, slot.axis}, arguments.fields.size());
  if (isNew) {
    arguments.slots.push_back(slot);
    arguments.fields.push_back({type, arguments.names.unique(prefix, name, suffix)});
  }
  return addLeaf("args." + arguments.fields[found->second].name, type);
}

uint32_t Lowering::lowerParam(ir::ParamKind param) {
  Expr expr{.kind = Expr::Kind::Param, .text = ir::name(param), .type = "int"};
  switch (param) {
  case ir::ParamKind::Score:
  case ir::ParamKind::Grad:
  case ir::ParamKind::ScoreTangent:
  case ir::ParamKind::GradTangent:
  case ir::ParamKind::Prob:
    expr.level = Level::Element;
    expr.type = "float";
    break;
  case ir::ParamKind::Round: expr.level = Level::Element; break;
  case ir::ParamKind::B:
  case ir::ParamKind::H: expr.level = Level::Head; break;
  case ir::ParamKind::QIdx: expr.level = Level::Row; break;
  case ir::ParamKind::KvIdx: expr.level = Level::Column; break;
  }
  return add(std::move(expr));
}

uint32_t Lowering::lowerCast(const Node& node) {
  const Node& from = module[node.operands[0]];
  if (node.type == Type::F32 && from.op == Op::Param) {
    bool isRow = ir::ParamKind(from.attr) == ir::ParamKind::QIdx;
    if (isRow || ir::ParamKind(from.attr) == ir::ParamKind::KvIdx)
      return add({.kind = Expr::Kind::Given,
                  .text = isRow ? "q_float" : "kv_float",
                  .type = "float",
                  .level = isRow ? Level::Row : Level::Column,
                  .prefix = isRow ? "q_" : "kv_",
                  .name = "float",
                  .line = node.line});
  }
  const bool isLong = from.type == Type::F32 && node.type == Type::I64;
  return add({.text = castPattern(from.type, node.type),
              .operands = {exprOf[node.operands[0].id]},
              .cost = isLong ? kSaturateCost : costOf(Op::Cast, node.type)});
}

/// A division that is part of a score becomes a product with the reciprocal, computed at the divisor's level. The error
/// is 2 ulp, and a divisor below 2^-128 counts as 0. Divisions of indices keep IEEE rounding, since floor() and == may
/// follow.
uint32_t Lowering::lowerDiv(const Node& node) {
  Value divisor = node.operands[1];
  uint32_t left = exprOf[node.operands[0].id], right = exprOf[divisor.id];
  bool ofScores = llvm::any_of(node.operands, [&](Value operand) {
    return params[operand.id].contains(ir::ParamKind::Score) || params[operand.id].contains(ir::ParamKind::Grad);
  });
  if (module.isConst(divisor)) {
    std::optional<float> inverse = exactEnoughReciprocal(module.f32(divisor));
    if (ofScores && inverse)
      right = addLeaf(literal(Type::F32, std::bit_cast<uint32_t>(*inverse)), "float");
    else
      ofScores = false;
  } else if (ofScores) {
    right = add({.text = "reciprocal({0})",
                 .operands = {right},
                 .type = "float",
                 .prefix = "r",
                 .name = std::to_string(numberOf[divisor.id]),
                 .line = node.line,
                 .cost = kReciprocalCost});
  }
  return add({.text = ofScores ? "{0} * {1}" : spelling(Op::Div, false),
              .operands = {left, right},
              .cost = ir::info(ofScores ? Op::Mul : Op::Div).cost.ofFloats});
}

/// Lowers coordinates of q_idx or kv_idx, or whether these are on their grids. Modules for kernels have no other ones.
uint32_t Lowering::lowerCoordinate(const Node& node) {
  const bool isRow = module.isParam(node.operands[0], ir::ParamKind::QIdx);
  const bool isCoordinate = node.op == Op::Coord;
  const unsigned axis = ir::GridAxis::of(node).axis;
  return add({.kind = Expr::Kind::Given,
              .text = (isRow ? "q_idx." : "kv_idx.") + (isCoordinate ? fmt::format("at[{}]", axis) : "on_grid"),
              .type = isCoordinate ? "int" : "bool",
              .level = isRow ? Level::Row : Level::Column,
              .prefix = isRow ? "q_" : "kv_",
              .name = isCoordinate ? fmt::format("at{}", axis) : "on_grid",
              .line = node.line});
}

uint32_t Lowering::lowerLeaf(const Node& node) {
  if (node.op == Op::Const) return addLeaf(literal(node.type, node.attr), cType(node.type));
  if (node.op == Op::Param) return lowerParam(ir::ParamKind(node.attr));
  if (node.op == Op::Iter) {
    const ir::Loop loop = ir::Loop::of(node);
    return add({.kind = Expr::Kind::Iter, .text = fmt::format("i{}", loop.id), .type = "int", .loop = loop});
  }
  uint32_t index = uint32_t(node.attr);
  if (node.op == Op::Dim) return addArg({ArgWord::Kind::Dim, index, 0, Type::I32}, "int", "d_", module.dims[index]);
  return addArg({ArgWord::Kind::Scalar, index, 0, node.type}, cType(node.type), "s_", module.scalars[index].name);
}

/// Lowers integer // and % without the branches of floor_div and floor_mod, if the divisor is a power of two or both
/// sides are known to be nonnegative.
std::optional<uint32_t> Lowering::lowerCheapDivision(Value value) {
  const Node& node = module[value];
  Value divisor = node.operands[1];
  if (node.type == Type::F32) return std::nullopt;
  bool isDiv = node.op == Op::FloorDiv;
  uint32_t left = exprOf[node.operands[0].id], right = exprOf[divisor.id];
  int64_t constant = module.isConst(divisor) ? module.integer(divisor) : 0;
  if (constant > 0 && llvm::isPowerOf2_64(uint64_t(constant))) {
    if (isDiv) return add({.text = fmt::format("{{0}} >> {}", llvm::Log2_64(uint64_t(constant))), .operands = {left}});
    return add({.text = fmt::format("{{0}} & {}", literal(node.type, constant - 1)), .operands = {left}});
  }
  if (intervals.range(node.operands[0]).lo < 0 || intervals.range(divisor).lo <= 0) return std::nullopt;
  return add(
      {.text = isDiv ? "{0} / {1}" : "{0} % {1}", .operands = {left, right}, .cost = costOf(node.op, node.type)});
}

uint32_t Lowering::lowerSpelled(Value value) {
  const Node& node = module[value];
  if (node.op == Op::FloorDiv || node.op == Op::Mod)
    if (std::optional<uint32_t> cheap = lowerCheapDivision(value)) return *cheap;
  Type type = module[node.operands[0]].type;
  bool isSum = ir::info(node.op).rule == ir::TypeRule::Arith;
  Expr expr{.text = spelling(node.op, isInt(type) && !(isSum && intervals.isExact(value))),
            .cost = costOf(node.op, type)};
  for (Value operand : node.operands) expr.operands.push_back(exprOf[operand.id]);
  return add(std::move(expr));
}

uint32_t Lowering::lowerSum(const Node& node) {
  const ir::Loop loop = ir::Loop::of(node);
  return add({.kind = Expr::Kind::Sum,
              .text = fmt::format("sum {}:{}", loop.id, loop.count),
              .operands = {exprOf[node.operands[0].id]},
              .loop = loop});
}

uint32_t Lowering::lowerValue(Value value) {
  const Node& node = module[value];
  switch (ir::info(node.op).rule) {
  case ir::TypeRule::Grid: return lowerCoordinate(node);
  case ir::TypeRule::Leaf: return lowerLeaf(node);
  case ir::TypeRule::Cast: return lowerCast(node);
  case ir::TypeRule::Load: return lowerGather(value);
  case ir::TypeRule::Sum: return lowerSum(node);
  case ir::TypeRule::Float:
    if (node.op == Op::StopGradient) return exprOf[node.operands[0].id]; // only gradients need the stop
    return node.op == Op::Div ? lowerDiv(node) : lowerSpelled(value);
  case ir::TypeRule::Arith:
  case ir::TypeRule::Int:
  case ir::TypeRule::Bits:
  case ir::TypeRule::Shift:
  case ir::TypeRule::Compare:
  case ir::TypeRule::Test:
  case ir::TypeRule::Select:
  case ir::TypeRule::Random: return lowerSpelled(value);
  }
  return 0;
}

/// Lowers what `root` needs. Operands come before their users in the arena.
uint32_t Lowering::lowerRoot(Value root) {
  std::set<uint32_t> left; // needed and not yet lowered
  llvm::SmallVector<Value, 16> path = {root};
  while (!path.empty()) {
    const Value value = path.pop_back_val();
    ++ir::visits;
    if (exprOf[value.id] != kNotLowered || !left.insert(value.id).second) continue;
    path.append(module[value].operands.begin(), module[value].operands.end());
  }
  for (uint32_t id : left) {
    const Node& node = module[{id}];
    uint32_t lowered = exprOf[id] = lowerValue({id});
    Expr& expr = program.exprs[lowered];
    if (expr.type.empty()) expr.type = cType(node.type);
    if (expr.prefix.empty()) expr.prefix = id < firstDerived ? "v" : "e", expr.name = std::to_string(numberOf[id]);
    if (expr.line == 0) expr.line = node.line;
  }
  return exprOf[root.id];
}

Lowering::Lowering(const ir::Module& of, size_t firstDerived, Arguments& arguments)
    : module(of), firstDerived(firstDerived), intervals(of), exprOf(of.size(), kNotLowered), params(ir::paramsOf(of)),
      arguments(arguments) {
  uint32_t number = 0;
  for (uint32_t id = 0; id < of.size(); ++id)
    numberOf.push_back(ir::info(of[{id}].op).rule == ir::TypeRule::Leaf ? number : number++);
}

Program Lowering::run(const ir::CaptureGradients& gradients) {
  const std::optional<Value> score = module.output(ir::kScore), mask = module.output(ir::kMask);
  if (score && !isScore(module, *score)) program.score = lowerRoot(*score);
  bool allLive = mask && module.isConst(*mask) && module.integer(*mask) != 0;
  if (mask && !allLive) program.mask = lowerRoot(*mask);
  if (const std::optional<Value> dScore = module.output(ir::kDScore)) program.dScore = lowerRoot(*dScore);
  if (const std::optional<Value> factor = module.output(ir::kProbFactor)) program.probFactor = lowerRoot(*factor);
  if (const std::optional<Value> sink = module.output(ir::kSink)) program.sink = lowerRoot(*sink);
  if (const std::optional<Value> weight = module.output(ir::kProbWeight))
    program.hooks.push_back({&ir::kProbWeight, lowerRoot(*weight)});
  for (const ir::OutputRole* role = ir::kDerivedRoles; role != std::end(ir::kRoles); ++role)
    if (const std::optional<Value> value = module.output(*role)) program.hooks.push_back({role, lowerRoot(*value)});
  if (const std::optional<analysis::GridBox> box = analysis::gridBox(module)) {
    program.onGrid = true;
    program.boxIsMask = box->isMask();
    program.beside = box->beside;
    for (const analysis::GridBox::Axis& axis : box->axes)
      program.box.push_back(axis.begin ? BoxHook{lowerRoot(*axis.begin), lowerRoot(*axis.end)} : BoxHook{});
  }
  if (!gradients.captures.empty()) program.gradients.emplace();
  const auto accesses = analysis::gradientAccesses(module, gradients.places);
  for (size_t i = 0; i < accesses.size(); ++i) {
    const ir::CaptureGradient& place = gradients.places[i];
    program.gradients->push_back(
        {.capture = unsigned(llvm::find(gradients.captures, place.capture) - gradients.captures.begin()),
         .rounds = place.rounds,
         .access = accesses[i],
         .ofFactor = place.ofFactor,
         .ofSink = place.ofSink,
         .ofOutputs = place.ofOutputs,
         .ofProb = place.ofProb,
         .value = lowerRoot(*module.output(place.output)),
         .offset = lowerDenseOffset(place)});
  }
  for (const ir::Reduction& reduction : ir::reductionsOf(module)) {
    const ir::Value value = *module.output(reduction.output());
    program.reductions.push_back({reduction.isMax, reduction.kept == ir::Kept::Keys,
                                  module.isParam(value, ir::ParamKind::Prob), lowerRoot(value)});
  }
  return std::move(program);
}

Program lower(const ir::Module& module, size_t firstDerived, Arguments& arguments,
              const ir::CaptureGradients& gradients) {
  return Lowering(module, firstDerived, arguments).run(gradients);
}

} // namespace attnc::codegen
