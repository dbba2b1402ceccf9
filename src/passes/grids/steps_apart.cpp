#include "passes/grids/steps_apart.h"

#include "analysis/intervals.h"
#include "ir/levels.h"
#include "passes/ir_names.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallVector.h>

namespace attnc::passes {
namespace {

/// q_idx or kv_idx plus a number that is known per head.
struct Sum {
  ParamKind position;
  std::optional<Value> by;
  bool subtracts = false;
};

class Rewriter {
public:
  explicit Rewriter(const ir::Module& given) : out{given, 1}, levels(ir::levels(given)) {}

  std::optional<StepsApart> run() {
    const std::optional<Value> mask = out.module.output(ir::kMask);
    if (!mask) return std::nullopt;
    llvm::SmallVector<Value, 8> parts, open = {*mask};
    while (!open.empty()) {
      const Value value = open.pop_back_val();
      const Node& node = out.module[value];
      if (node.op == Op::And && node.type == Type::Bool)
        open.append(node.operands.begin(), node.operands.end());
      else
        parts.push_back(value);
    }
    const auto multiple = llvm::find_if(parts, [&](Value part) { return (out.step = stepOf(part)) > 1; });
    if (multiple == parts.end()) return std::nullopt;
    *multiple = make(Op::Eq, Type::Bool, slice(Op::Mod, ParamKind::QIdx), slice(Op::Mod, ParamKind::KvIdx));
    bool bounds = false;
    for (Value& part : parts)
      if (const std::optional<Value> bound = inQuotients(part)) part = *bound, bounds = true;
    if (!bounds) return std::nullopt;
    Value all = parts[0];
    for (Value part : llvm::drop_begin(parts)) all = make(Op::And, Type::Bool, all, part);
    out.module.setOutput(ir::kMask, all);
    return std::move(out);
  }

private:
  Value make(Op op, Type type, Value a, Value b) { return out.module.make(op, type, {a, b}); }
  Value slice(Op op, ParamKind position) {
    return make(op, Type::I32, out.module.param(position), out.module.constInt(Type::I32, out.step));
  }
  bool isPosition(Value value, ParamKind position) const { return out.module.isParam(value, position); }
  bool isOfHead(Value value) const { return levels[value.id] <= ir::Level::Head; }

  /// Returns the constant of which q_idx - kv_idx is a multiple; 1 if the part does not say so.
  int64_t stepOf(Value part) const {
    const ir::Module& module = out.module;
    if (module[part].op != Op::Eq) return 1;
    const Value a = module[part].operands[0], b = module[part].operands[1];
    const auto stepOfMod = [&](Value value) -> int64_t {
      const Node& node = module[value];
      return node.op == Op::Mod && node.type == Type::I32 && module.isConst(node.operands[1])
                 ? module.integer(node.operands[1])
                 : 1;
    };
    const auto areBoth = [&](Value x, Value y) {
      return (isPosition(x, ParamKind::QIdx) && isPosition(y, ParamKind::KvIdx)) ||
             (isPosition(x, ParamKind::KvIdx) && isPosition(y, ParamKind::QIdx));
    };
    const int64_t step = stepOfMod(a);
    if (step < 2) return 1;
    const Node& of = module[module[a].operands[0]];
    if (module.isConst(b) && module.integer(b) == 0)
      return of.op == Op::Sub && areBoth(of.operands[0], of.operands[1]) ? step : 1;
    return stepOfMod(b) == step && areBoth(module[a].operands[0], module[b].operands[0]) ? step : 1;
  }

  std::optional<Sum> sumOf(Value value) const {
    for (ParamKind position : {ParamKind::QIdx, ParamKind::KvIdx}) {
      if (isPosition(value, position)) return Sum{position, std::nullopt};
      const Node& node = out.module[value];
      if ((node.op == Op::Add || node.op == Op::Sub) && isPosition(node.operands[0], position) &&
          isOfHead(node.operands[1]))
        return Sum{position, node.operands[1], node.op == Op::Sub};
    }
    return std::nullopt;
  }

  /// Returns x + s <= y + t as x // step <= y // step + (t - s) // step. Nullopt if the part has another form.
  std::optional<Value> inQuotients(Value part) {
    const Node node = out.module[part];
    if (node.op != Op::Le || out.module[node.operands[0]].type != Type::I32) return std::nullopt;
    const std::optional<Sum> x = sumOf(node.operands[0]), y = sumOf(node.operands[1]);
    if (!x || !y || x->position == y->position) return std::nullopt;
    Value most = out.module.constInt(Type::I32, 0); // of the difference of x and y
    const auto add = [&](const Sum& sum, bool subtracts) {
      if (!sum.by) return true;
      most = make(sum.subtracts != subtracts ? Op::Sub : Op::Add, Type::I32, most, *sum.by);
      return analysis::Intervals(out.module).isExact(most);
    };
    if (!add(*y, false) || !add(*x, true)) return std::nullopt;
    const Value steps = make(Op::FloorDiv, Type::I32, most, out.module.constInt(Type::I32, out.step));
    return make(Op::Le, Type::Bool, slice(Op::FloorDiv, x->position),
                make(Op::Add, Type::I32, slice(Op::FloorDiv, y->position), steps));
  }

  StepsApart out;
  const std::vector<ir::Level> levels; ///< of the values of the given module
};

} // namespace

std::optional<StepsApart> stepsApart(const ir::Module& module) { return Rewriter(module).run(); }

} // namespace attnc::passes
