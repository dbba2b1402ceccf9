// Proofs come from the interval analysis. Counter-examples come from running the interpreter over example problems.
#include "passes/gather_proofs.h"

#include "ir/bindings.h"
#include "ir/interpreter.h"
#include "ir/loops.h"
#include "ir/printer.h"
#include "passes/rebuild.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnc::passes {
namespace {

using ir::Op;
using ir::ParamKind;
using ir::Value;

/// What an index depends on.
struct Dependences {
  std::vector<bool> dims;
  bool param[5] = {};
  std::string data; ///< the first tensor, scalar or score it needs; empty if none
};

Dependences dependencesOf(const ir::Module& module, Value value) {
  Dependences result{std::vector<bool>(module.dims.size(), false), {}, {}};
  std::vector<bool> needed(value.id + 1, false);
  needed[value.id] = true;
  for (uint32_t id = value.id + 1; id-- > 0;) {
    if (!needed[id]) continue;
    const ir::Node& node = module[{id}];
    for (Value operand : node.operands) needed[operand.id] = true;
    if (node.op == Op::Dim) result.dims[node.attr] = true;
    if (node.op == Op::Param) result.param[node.attr] = true;
    if (node.op == Op::Load) result.data = module.tensors[node.attr].name;
    if (node.op == Op::Scalar) result.data = module.scalars[node.attr].name;
  }
  if (result.param[size_t(ParamKind::Score)]) result.data = "score";
  return result;
}

/// The extent along which a parameter counts.
ir::BuiltinDim alongOf(ParamKind param) {
  switch (param) {
  case ParamKind::B: return ir::BuiltinDim::B;
  case ParamKind::H: return ir::BuiltinDim::H;
  case ParamKind::QIdx: return ir::BuiltinDim::QLen;
  case ParamKind::KvIdx:
  case ParamKind::Score: break;
  }
  return ir::BuiltinDim::KvLen;
}

/// Example problems: B, H, HKV, Q_LEN, KV_LEN, and the value of every free extent. Small ones first, for readable
/// examples.
constexpr int64_t kProblems[][6] = {
    {2, 4, 2, 8, 8, 4},
    {2, 4, 2, 8, 16, 4},
    {2, 4, 2, 16, 8, 4},
    {1, 8, 1, 1, 32, 64},
    {2, 8, 2, 128, 128, 16},
    {4, 32, 8, 2048, 2048, 64},
    {64, 64, 8, 65536, 65536, 16},
    {2, 8, 2, 1 << 24, 1 << 24, 4096},
    {2, 8, 2, 1 << 24, 1, 4},
};

constexpr const char* kNoExample = "the index was inside in all examples tried, but this is not proved";

/// Positions worth trying along an extent: all of a short one, the ends and some powers of two of a long one.
std::vector<int64_t> positions(int64_t extent, bool matters) {
  std::vector<int64_t> result = {0};
  if (!matters) return result;
  int64_t all = std::min<int64_t>(extent, 16);
  for (int64_t at = 1; at < all; ++at) result.push_back(at);
  for (int64_t at = 16; at < extent; at *= 4) result.push_back(at);
  if (extent > 16) result.push_back(extent - 1);
  return result;
}

class Search {
public:
  /// `extent`: of the axis that is indexed.
  Search(const ir::Module& module, const Pins& pins, Value index, ir::Extent extent)
      : module(module), pins(pins), index(index), uses(dependencesOf(module, index)), extent(extent) {}

  std::string run() {
    if (!uses.data.empty()) return fmt::format("the index depends on {}, which may be anything", uses.data);
    for (const auto& problem : kProblems)
      if (std::string found = tryProblem(problem); !found.empty()) return found;
    return kNoExample;
  }

private:
  int64_t sizeOf(const ir::Bindings& bindings) const {
    return extent.isNamed ? bindings.dims[extent.value] : extent.value;
  }

  std::string tryProblem(const int64_t (&problem)[6]) {
    ir::Bindings bindings;
    for (size_t dim = 0; dim < module.dims.size(); ++dim) {
      auto pinned = pins.find(module.dims[dim]);
      bindings.dims.push_back(pinned == pins.end() ? problem[std::min<size_t>(dim, 5)] : pinned->second);
    }
    if (std::count(bindings.dims.begin(), bindings.dims.begin() + ir::kBuiltinDims, 0)) return ""; // no coordinates
    ir::Evaluator evaluator(module, bindings, index);
    auto along = [&](ParamKind param, ir::BuiltinDim dim) {
      return positions(bindings.dims[size_t(dim)], uses.param[size_t(param)]);
    };
    for (int64_t b : along(ParamKind::B, ir::BuiltinDim::B))
      for (int64_t h : along(ParamKind::H, ir::BuiltinDim::H))
        for (int64_t q : along(ParamKind::QIdx, ir::BuiltinDim::QLen))
          for (int64_t kv : along(ParamKind::KvIdx, ir::BuiltinDim::KvLen)) {
            int64_t at = evaluator.evaluate(0, b, h, q, kv).integer;
            if (at < 0 || at >= sizeOf(bindings)) return describe({b, h, q, kv}, bindings, at);
          }
    return "";
  }

  /// The smallest extent that has this position.
  int64_t shortest(size_t dim, int64_t position) const {
    auto pinned = pins.find(module.dims[dim]);
    return pinned == pins.end() ? position + 1 : pinned->second;
  }

  std::string describe(std::array<int64_t, 4> coordinates, const ir::Bindings& bindings, int64_t at) const {
    std::string text;
    auto add = [&](llvm::StringRef name, int64_t value) {
      text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", name.str(), value);
    };
    for (size_t dim = 0; dim < module.dims.size(); ++dim)
      if (uses.dims[dim]) add(module.dims[dim], bindings.dims[dim]);
    for (ParamKind param : {ParamKind::B, ParamKind::H, ParamKind::QIdx, ParamKind::KvIdx}) {
      if (!uses.param[size_t(param)]) continue;
      // Beside another extent by name, a position says little unless one sees that it exists: Q_LEN = 9, q_idx = 8.
      size_t along = size_t(alongOf(param));
      bool isOther = extent.isNamed && extent.value != int64_t(along);
      if (isOther && !uses.dims[along]) add(module.dims[along], shortest(along, coordinates[size_t(param) - 1]));
      add(ir::name(param), coordinates[size_t(param) - 1]);
    }
    if (text.empty()) text = "it always";
    std::string size = fmt::format("{}", sizeOf(bindings));
    if (extent.isNamed) size = fmt::format("{} = {}", module.dims[extent.value], size);
    return fmt::format("{} gives index {}, extent {}", text, at, size);
  }

  const ir::Module& module;
  const Pins& pins;
  Value index;
  Dependences uses;
  ir::Extent extent;
};

/// An index inside a sum, in the last round or in the first. Nothing where the index holds a sum itself.
std::optional<std::pair<ir::Module, Value>> inRound(const ir::Module& module, Value index, bool last) {
  std::vector<bool> needed(index.id + 1, false);
  needed[index.id] = true;
  for (uint32_t id = index.id + 1; id-- > 0;)
    if (needed[id])
      for (Value operand : module[{id}].operands) needed[operand.id] = true;
  ir::Module out = declarationsOf(module);
  std::vector<Value> now(index.id + 1);
  for (uint32_t id = 0; id <= index.id; ++id) {
    if (!needed[id]) continue;
    ir::Node node = module[{id}];
    if (node.op == Op::Sum) return std::nullopt;
    for (Value& operand : node.operands) operand = now[operand.id];
    now[id] = node.op == Op::Iter ? out.constInt(ir::Type::I32, last ? ir::Loop::of(node).count - 1 : 0)
                                  : keep(out, node);
  }
  return std::pair(std::move(out), now[index.id]);
}

/// A counter-example for an index that is not proved to lie inside, or why there is none.
std::string whyNot(const ir::Module& module, const Pins& pins, Value index, const ir::Extent& extent, bool isOpen) {
  if (!isOpen) return Search(module, pins, index, extent).run();
  std::string why = kNoExample;
  for (bool last : {true, false}) {
    auto closed = inRound(module, index, last);
    if (closed) why = Search(closed->first, pins, closed->second, extent).run();
    if (why != kNoExample) return why;
  }
  return why;
}

/// The bounds in the terms of the extent: a number beside a number, a form that names the extent beside a name.
std::string boundsText(const ir::Module& module, Value index, const Bounds& bounds, const ir::Extent& extent) {
  std::string upper = fmt::format("{}", bounds.range.hi);
  for (const LinearForm& form : bounds.upper)
    for (const LinearForm::Term& term : form.terms)
      if (extent.isNamed && int64_t(term.dim) == extent.value) upper = toString(form, module);
  return fmt::format("{} <= {} <= {}", bounds.range.lo, ir::printOperand(module, index), upper);
}

} // namespace

std::vector<GatherProof> proveGathers(const ir::Module& module, const Pins& pins) {
  std::vector<GatherProof> proofs;
  std::vector<bool> needed = reachable(module);
  Intervals intervals(module, pins);
  const std::vector<ir::LoopSet> open = ir::openLoops(module);
  for (uint32_t id = 0; id < module.size(); ++id) {
    if (!needed[id] || module[{id}].op != Op::Load) continue;
    for (unsigned axis = 0; axis < module[{id}].operands.size(); ++axis) {
      Value index = module[{id}].operands[axis];
      const ir::Extent& extent = module.tensors[module[{id}].attr].shape[axis];
      bool proven = intervals.provesInside({id}, axis);
      std::string why = proven ? boundsText(module, index, intervals.of(index), extent)
                               : whyNot(module, pins, index, extent, open[index.id]);
      proofs.push_back({{id}, axis, proven, std::move(why)});
    }
  }
  return proofs;
}

} // namespace attnc::passes
