// In: requests of the tracer for nodes, objects and time. Out: these, or the diagnostic of the exceeded limit.
#include "dsl/objects/context.h"
#include "dsl/ir_names.h"

namespace attnc::dsl {

void Context::charge(uint64_t count) {
  steps += count;
  if (steps <= kMaxSteps) return;
  diagnostics.report(at, diag::tooManySteps, Count(kMaxSteps));
  throw Abort{refills == 0};
}

void Context::force(const Deferred& deferred) {
  for (const Finding& finding : deferred.findings) diagnostics.put(finding);
  pending = deferred;
  pending.findings.clear();
  at = deferred.at;
  throw Abort{false, deferred.raised};
}

void Context::failUndefined(llvm::StringRef name, Scope* scope) {
  pending.undefined = name;
  pending.at = at;
  pending.scope = scope;
  throw Abort{};
}

const Deferred* Context::attempt(llvm::function_ref<void()> work, bool takesRaised) {
  const size_t before = diagnostics.size(), conditionsBefore = conditions.size(),
               warningsBefore = diagnostics.warningCount();
  try {
    work();
    return nullptr;
  } catch (const Abort& abort) {
    if (abort.fatal || (abort.raised && !takesRaised)) throw;
    conditions.resize(conditionsBefore);
    diagnostics.dropWarnings(warningsBefore);
    Deferred deferred = std::exchange(pending, {});
    deferred.findings = diagnostics.take(before);
    deferred.raised = abort.raised;
    if (deferred.undefined.empty()) deferred.at = at;
    charge(kDeferralSteps);
    return heap.make<Deferred>(std::move(deferred));
  }
}

ir::Value Context::make(ir::Op op, ir::Type type, llvm::ArrayRef<ir::Value> operands, int64_t attr) {
  return makeAt(at.text == 0 ? uint32_t(diagnostics.lineAndColumn(at).first) : 0, op, type, operands, attr);
}

ir::Value Context::remake(ir::Value value, llvm::ArrayRef<ir::Value> operands) {
  const ir::Node node = module[value];
  return makeAt(node.line, node.op, node.type, operands, node.attr);
}

ir::LoopSet Context::openLoops(ir::Value value) {
  while (open.size() <= value.id) open.push_back(ir::openLoopsOf(module[{uint32_t(open.size())}], open));
  return open[value.id];
}

ir::Value Context::makeAt(uint32_t line, ir::Op op, ir::Type type, llvm::ArrayRef<ir::Value> operands, int64_t attr) {
  charge(1);
  if (module.size() >= kMaxNodes) {
    diagnostics.report(at, diag::tooManyNodes, Count(kMaxNodes));
    throw Abort{true};
  }
  return module.make(op, type, operands, attr, line);
}

Object Context::makeSequence(bool isList, std::vector<Object> items) {
  if (items.size() > kMaxItems) fail(diag::tooManyItems, Count(items.size()), Count(kMaxItems));
  charge(1 + items.size() / 4);
  return heap.make<Sequence>(isList, std::move(items));
}

Object Context::makeStr(std::string text) {
  if (text.size() > kMaxStringBytes) fail(diag::stringTooLong, Count(text.size()), Count(kMaxStringBytes));
  charge(1 + text.size() / 64);
  return static_cast<const Str*>(heap.make<Str>(std::move(text)));
}

const analysis::Range& Context::range(ir::Value value) {
  const std::array<size_t, 3> now = {module.dims.size(), module.scalars.size(), module.grids.size()};
  if (!intervals || now != declared) intervals.emplace(module);
  declared = now;
  return intervals->range(value);
}

bool Context::isNonNegative(ir::Value value) {
  while (nonNegative.size() <= value.id)
    nonNegative.push_back(computeNonNegative(module[{uint32_t(nonNegative.size())}]));
  return nonNegative[value.id];
}

/// Operands come before their users, so their answers are known. f32 values also get an answer: they may be cast.
bool Context::computeNonNegative(const ir::Node& node) const {
  auto operand = [&](size_t i) { return bool(nonNegative[node.operands[i].id]); };
  switch (node.op) {
  case Op::Const: return node.type == ir::Type::F32 ? false : node.attr >= 0;
  case Op::Param: return ir::ParamKind(node.attr) != ir::ParamKind::Score;
  case Op::Dim:
  case Op::Iter:
  case Op::InGrid: return true;
  case Op::Load: {
    DType dtype = module.tensors[node.attr].dtype;
    return dtype == DType::Bool || dtype == DType::U8;
  }
  case Op::Abs:
  case Op::Exp:
  case Op::Exp2:
  case Op::Acos:
  case Op::Cosh:
  case Op::Acosh:
  case Op::Erfc:
  case Op::Hypot:
  case Op::Sigmoid:
  case Op::Random: return true;
  case Op::Add:
  case Op::Mul:
  case Op::Min:
  case Op::FloorDiv:
  case Op::Div:
  case Op::Or:
  case Op::Xor: return operand(0) && operand(1);
  case Op::Max: return operand(0) || operand(1);
  case Op::And: return node.type == ir::Type::Bool || operand(0) || operand(1);
  case Op::Mod: return operand(1);
  case Op::Select: return operand(1) && operand(2);
  case Op::Cast: return operand(0);
  case Op::Shl: return operand(0);
  case Op::Shr:
  case Op::Floor:
  case Op::Ceil:
  case Op::Trunc:
  case Op::Round:
  case Op::Sqrt:
  case Op::Expm1:
  case Op::Asin:
  case Op::Atan:
  case Op::Sinh:
  case Op::Asinh:
  case Op::Atanh:
  case Op::Sum:
  case Op::Fmod:
  case Op::StopGradient: return operand(0);
  case Op::Not:
  case Op::Eq:
  case Op::Ne:
  case Op::Lt:
  case Op::Le:
  case Op::IsNan: return node.type == ir::Type::Bool;
  case Op::Coord: return ir::GridAxis::of(node).axis != 0; // may be negative outside the grid
  case Op::Scalar: return node.type == ir::Type::Bool;
  case Op::Neg:
  case Op::Sub:
  case Op::Rsqrt:
  case Op::Log:
  case Op::Log2:
  case Op::Log1p:
  case Op::Sin:
  case Op::Cos:
  case Op::Tan:
  case Op::Tanh:
  case Op::TanhApprox:
  case Op::Erf:
  case Op::Atan2:
  case Op::Pow: return false;
  }
  return false;
}

} // namespace attnc::dsl
