#include "passes/autodiff.h"

#include "ir/reductions.h"
#include "ir/walk.h"
#include "passes/derivatives.h"
#include "passes/gradient_stops.h"
#include "passes/ir_names.h"
#include "passes/output_gradients.h"
#include "passes/tangents.h"
#include "support/try.h"

#include <fmt/format.h>
#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/STLExtras.h>

#include <algorithm>
#include <limits>
#include <map>

namespace attnc::passes {
namespace {

using Loops = llvm::SmallVector<ir::Loop, 2>; // by ascending id, from the inside out

/// A term of a value's gradient that is still to be summed over the loops that the value is not inside.
struct Pending {
  Loops loops;
  Product product;
};

bool isSame(const Loops& a, const Loops& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](ir::Loop x, ir::Loop y) { return x.attr() == y.attr(); });
}

/// Whether `loops` contains the id.
bool hasId(const Loops& loops, unsigned id) {
  return llvm::any_of(loops, [&](ir::Loop loop) { return loop.id == id; });
}

void insert(Loops& loops, ir::Loop loop) {
  auto at = llvm::find_if(loops, [&](ir::Loop other) { return other.id >= loop.id; });
  if (at == loops.end() || at->id != loop.id) loops.insert(at, loop);
}

/// Returns the loops around each node, by Value::id.
std::vector<Loops> loopsOf(const ir::Module& module) {
  std::vector<Loops> result(module.size());
  for (uint32_t id = 0; id < module.size(); ++id) {
    const Node& node = module[{id}];
    if (node.op == Op::Iter) result[id].push_back(ir::Loop::of(node));
    for (Value operand : node.operands)
      for (ir::Loop loop : result[operand.id])
        if (node.op != Op::Sum || loop.id != ir::Loop::of(node).id) insert(result[id], loop);
  }
  return result;
}

bool isFloatCapture(const Node& node) {
  return node.type == Type::F32 && (node.op == Op::Load || node.op == Op::Scalar);
}

const std::string& captureName(const ir::Module& module, const Node& node) {
  return node.op == Op::Load ? module.tensors[size_t(node.attr)].name : module.scalars[size_t(node.attr)].name;
}

/// Rewrites values inside sums as functions of the parameter `round`, which counts the rounds of all loops around them.
class RoundsAsParam {
public:
  RoundsAsParam(Products& products, const Loops& around) : products(products), module(products.module) {
    Value left = around.empty() ? Value() : module.param(ir::ParamKind::Round);
    for (const ir::Loop& loop : around) {
      const Value count = module.constInt(Type::I32, loop.count);
      const bool isLast = &loop == &around.back();
      indexOf[loop.attr()] = isLast ? left : products.make(Op::Mod, Type::I32, {left, count});
      if (!isLast) left = products.make(Op::FloorDiv, Type::I32, {left, count});
      all |= only(loop);
    }
  }

  Value of(Value value) { return of(value, all); }

  Product of(const Product& product) {
    Product result{product.factor, {}, {}, {}};
    for (Value value : product.above) products.multiply(result, of(value));
    for (Value value : product.below) products.divide(result, of(value));
    for (const Condition& one : product.when) products.require(result, {of(one.value), one.holds});
    return result;
  }

private:
  /// Returns the value with the indices of `replaced` replaced. Indices that an inner sum binds stay.
  Value of(Value value, ir::LoopSet replaced) {
    if (!(products.openOf(value) & replaced)) return value;
    std::vector<Value>& now = nows[replaced];
    while (now.size() <= value.id) {
      const Value at = {uint32_t(now.size())};
      const Node node = module[at];
      Value result = at;
      if (node.op == Op::Iter) {
        if (auto index = indexOf.find(node.attr); index != indexOf.end() && (only(ir::Loop::of(node)) & replaced))
          result = index->second;
      } else if (products.openOf(at) & replaced) {
        const ir::LoopSet bound = node.op == Op::Sum ? only(ir::Loop::of(node)) : 0;
        llvm::SmallVector<Value, 3> operands;
        for (Value operand : node.operands)
          operands.push_back(bound & replaced ? of(operand, replaced & ~bound) : now[operand.id]);
        result = module.make(node.op, node.type, operands, node.attr, node.line);
      }
      now.push_back(result);
    }
    return now[value.id];
  }

  Products& products;
  ir::Module& module;
  ir::LoopSet all = 0;
  std::map<int64_t, Value> indexOf;               // by Loop::attr
  std::map<ir::LoopSet, std::vector<Value>> nows; // by the loops replaced, then by Value::id
};

class Differentiation {
public:
  Differentiation(const ir::Module& given, llvm::ArrayRef<std::string> captures,
                  const ir::OutputRole& root = ir::kScore, llvm::ArrayRef<CaptureGradient> others = {})
      : module(given), size(uint32_t(given.size())), captures(captures), root(root), loops(loopsOf(given)), terms(size),
        isWanted(size, false), others(others) {
    for (uint32_t id = 0; id < size; ++id) {
      const Node& node = module[{id}];
      isWanted[id] = isScore(module, {id}) || module.isParam({id}, ir::ParamKind::Prob) ||
                     (isFloatCapture(node) && llvm::is_contained(captures, captureName(module, node)));
      if (!passes(node)) continue;
      for (Value operand : node.operands)
        if (isWanted[operand.id] && module[operand].type == Type::F32) isWanted[id] = true;
    }
  }

  Expected<Gradients> run(const PipelineOptions& options, bool withTangents) {
    sweep();
    const bool isIdentity = !module.output(ir::kScore);
    module.setOutput(ir::kDScore, isIdentity ? module.param(ir::ParamKind::Grad) : gradientOf(ir::ParamKind::Score));
    for (const std::string& capture : captures) ATTNC_TRY(addCapture(capture));
    llvm::sort(outputs, [](const ir::Output& a, const ir::Output& b) { return a.name < b.name; });
    for (ir::Output& output : outputs) module.setOutput(std::move(output));
    places.insert(places.begin(), others.begin(), others.end());
    if (withTangents) ATTNC_TRY(addTangents(module, places));
    ATTNC_TRY(removeGradientStops(module, options));
    return Gradients{std::move(module), std::move(places)};
  }

  /// Adds the places in sink_mod. No pass runs.
  Expected<Gradients> runOnSink() {
    ATTNC_TRY(addPlaces());
    for (CaptureGradient& place : places) place.ofSink = true;
    places.insert(places.begin(), others.begin(), others.end());
    return Gradients{std::move(module), std::move(places)};
  }

  /// Adds what outputs of the mod give to weights and scores, and the places in them. No pass runs.
  Expected<Gradients> runOnOutputs() {
    ATTNC_TRY(addPlaces());
    for (CaptureGradient& place : places) place.ofOutputs = true;
    const Value ofProb = gradientOf(ir::ParamKind::Prob), ofScore = gradientOf(ir::ParamKind::Score);
    module.setOutput(ir::kProbGradient, ofProb);
    module.setOutput(ir::kScoreGradient, ofScore);
    addRowSum(ofProb);
    module.dropOutput(root.name);
    return Gradients{std::move(module), std::move(places)};
  }

  /// Adds what prob_mod gives to weights of the softmax, and the places in it. No pass runs.
  Expected<Gradients> runOnProb() {
    ATTNC_TRY(addPlaces());
    for (CaptureGradient& place : places) place.ofProb = true;
    places.insert(places.begin(), others.begin(), others.end());
    module.setOutput(ir::kDProb, gradientOf(ir::ParamKind::Prob));
    return Gradients{std::move(module), std::move(places)};
  }

  Expected<Gradients> runOnFactor() {
    ATTNC_TRY(addPlaces());
    std::vector<Pass> order;
    for (const char* name : {"fold-constants", "simplify", "cse", "dce"}) order.push_back(*findPass(name));
    ATTNC_TRY(runPasses(module, order, {}));
    for (CaptureGradient& place : places) place.ofFactor = true;
    return Gradients{std::move(module), std::move(places)};
  }

private:
  /// Adds a reduction for kernels with tensor cores: the sum over a row of prob times its gradient.
  void addRowSum(Value ofProb) {
    const Value prob = module.param(ir::ParamKind::Prob), zero = module.constF32(0);
    Value term = module.make(Op::Mul, Type::F32, {prob, ofProb});
    if (ir::neededBy(module, {ofProb})[prob.id]) // which may be anything where prob is 0
      term = module.make(Op::Select, Type::F32, {module.make(Op::Lt, Type::Bool, {zero, prob}), term, zero});
    module.setOutput(ir::Reduction{.name = "prob_gradient", .kept = ir::Kept::Queries}.output(), ir::kReductionParams,
                     term);
  }

  Status addPlaces() {
    sweep();
    for (const std::string& capture : captures) ATTNC_TRY(addCapture(capture));
    for (ir::Output& output : outputs) module.setOutput(std::move(output));
    return {};
  }

  static bool passes(const Node& node) { return node.type == Type::F32 && ir::info(node.op).passesGradients; }

  /// Returns the gradient that a parameter received.
  Value gradientOf(ir::ParamKind param) {
    for (uint32_t id = 0; id < size; ++id)
      if (module.isParam({id}, param) && !terms[id].empty()) return products.valueOf(terms[id][0].product);
    return module.constF32(0);
  }

  /// Walks from what score_mod or sink_mod returns, or from the factor or the loss, down to its operands.
  void sweep() {
    const std::optional<Value> top = module.output(root);
    if (!top || !isWanted[top->id]) return;
    Product grad;
    if (root.name != kOutputLoss.name) products.multiply(grad, module.param(ir::ParamKind::Grad));
    terms[top->id].push_back({{}, grad});
    for (uint32_t id = top->id + 1; id-- > 0;) {
      terms[id] = gathered(std::move(terms[id]));
      if (passes(module[{id}]))
        for (const Pending& term : terms[id]) spread({id}, term);
    }
  }

  /// Returns one term for each set of loops.
  std::vector<Pending> gathered(std::vector<Pending> all) {
    std::vector<Pending> result;
    while (!all.empty()) {
      const Loops over = all.front().loops;
      llvm::SmallVector<Product, 2> same;
      llvm::erase_if(all, [&](const Pending& term) {
        const bool belongs = isSame(term.loops, over);
        if (belongs) same.push_back(term.product);
        return belongs;
      });
      Product sum = products.sum(std::move(same));
      if (sum.factor != 0) result.push_back({over, std::move(sum)});
    }
    return result;
  }

  /// Passes one term of the node's gradient on to the operands.
  void spread(Value value, const Pending& term) {
    const Node node = module[value];
    const auto wanted =
        llvm::count_if(node.operands, [&](Value x) { return isWanted[x.id] && module[x].type == Type::F32; });
    Product gradient = term.product;
    products.line = node.line;
    if (wanted > 1 && gradient.above.size() + gradient.below.size() > kMaxSpread) {
      Product rest{1, {}, {}, gradient.when};
      gradient.when.clear();
      products.multiply(rest, products.valueOf(gradient));
      gradient = std::move(rest);
    }
    auto parts = derivatives(products, value, gradient);
    Loops inside = loops[value.id];
    if (node.op == Op::Sum) insert(inside, ir::Loop::of(node));
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const Value operand = node.operands[i];
      if (!parts[i] || !isWanted[operand.id] || module[operand].type != Type::F32) continue;
      Pending part{term.loops, std::move(*parts[i])};
      for (ir::Loop loop : inside)
        if (!hasId(loops[operand.id], loop.id)) insert(part.loops, loop);
      // A sum may only stand inside sums of larger ids. The others wait until the operand's loops are left.
      const Loops& around = loops[operand.id];
      while (!part.loops.empty() && (around.empty() || part.loops.front().id < around.front().id)) {
        part.product = products.sumOver(part.product, part.loops.front(), !passes(module[operand]));
        part.loops.erase(part.loops.begin());
      }
      if (part.product.factor != 0) terms[operand.id].push_back(std::move(part));
    }
  }

  // ---- Captures ----

  Status addCapture(const std::string& name) {
    int count = 0;
    for (uint32_t id = 0; id < size; ++id) {
      const Node node = module[{id}];
      if (!isFloatCapture(node) || terms[id].empty() || captureName(module, node) != name) continue;
      // Of sink_mod, of outputs, of prob_mod, or of score_mod.
      const char* prefix = root.name == ir::kSink.name         ? "ds"
                           : root.name == kOutputLoss.name     ? "do"
                           : root.name == ir::kProbWeight.name ? "dp"
                                                               : "d";
      CaptureGradient place{name, fmt::format("{}_{}_{}", prefix, name, count++), {}, 1};
      for (ir::Loop loop : loops[id]) {
        place.rounds *= loop.count;
        if (place.rounds > std::numeric_limits<int32_t>::max())
          return Error::mod(fmt::format("{}: a gradient of it would take {} rounds of a sum", name, place.rounds), {});
      }
      products.line = node.line;
      const bool isOpen = !loops[id].empty();
      RoundsAsParam& rounds = roundsOf(loops[id]);
      ir::ParamSet params = ir::kDScore.params;
      params |= root.params;
      if (isOpen || root.name != ir::kScore.name) params |= {ir::ParamKind::Round};
      llvm::SmallVector<Product, 2> all;
      for (Pending& term : terms[id]) {
        Product product = rounds.of(term.product);
        for (ir::Loop loop : term.loops) product = products.sumOver(product, loop, /*isLast=*/true);
        all.push_back(std::move(product));
      }
      outputs.push_back({place.output, params, products.valueOf(products.sum(std::move(all)))});
      if (node.op == Op::Load)
        for (size_t axis = 0; axis < node.operands.size(); ++axis) {
          place.indices.push_back(fmt::format("{}_index{}", place.output, axis));
          outputs.push_back({place.indices.back(), params, rounds.of(node.operands[axis])});
        }
      places.push_back(std::move(place));
    }
    return {};
  }

  RoundsAsParam& roundsOf(const Loops& around) {
    std::vector<int64_t> key;
    for (ir::Loop loop : around) key.push_back(loop.attr());
    return asParams.try_emplace(std::move(key), products, around).first->second;
  }

  /// A gradient with more factors is computed once first; otherwise each operand would multiply the factors anew.
  static constexpr size_t kMaxSpread = 6;

  ir::Module module;
  const uint32_t size; // nodes of the module as given
  const llvm::ArrayRef<std::string> captures;
  const ir::OutputRole& root; // what is differentiated
  Products products{module};
  const std::vector<Loops> loops;
  std::vector<std::vector<Pending>> terms;                // terms of gradients, by Value::id
  std::vector<bool> isWanted;                             // gradient reaches the score or a wanted capture
  const llvm::ArrayRef<CaptureGradient> others;           // places that the module has gradients of
  std::map<std::vector<int64_t>, RoundsAsParam> asParams; // by the attributes of the loops
  std::vector<CaptureGradient> places;
  std::vector<ir::Output> outputs; // outputs of the places
};

} // namespace

std::vector<std::string> floatCaptures(const ir::Module& module) {
  std::vector<std::string> names;
  for (const ir::TensorCapture& tensor : module.tensors)
    if (ir::loadedType(tensor.dtype) == Type::F32) names.push_back(tensor.name);
  for (const ir::ScalarCapture& scalar : module.scalars)
    if (scalar.type == Type::F32) names.push_back(scalar.name);
  return names;
}

Expected<Gradients> differentiate(const ir::Module& module, llvm::ArrayRef<std::string> captures,
                                  const PipelineOptions& options, bool withTangents, bool withOutputs) {
  if (withTangents && withOutputs)
    return Error::environment("outputs of a mod have no tangents, and so no second derivatives",
                              "leave their gradients out");
  Gradients all{module, {}};
  if (withOutputs) ATTNC_TRY(addOutputLoss(all.module));
  ir::dropReductions(all.module);
  if (withTangents && (module.output(ir::kIsWeight) || module.output(ir::kProbWeight)))
    return Error::environment(
        "mods with a weight_mod, and prob_mods that are no multiple of prob, have no tangents, and "
        "so no second derivatives",
        "leave the weight_mod out, or write `prob * factor`");
  if (const std::optional<Value> factor = module.output(ir::kProbFactor)) {
    const std::vector<bool> needed = ir::neededBy(module, *factor);
    for (uint32_t id = 0; id < module.size(); ++id)
      if (const Node& node = module[{id}];
          needed[id] && isFloatCapture(node) && llvm::is_contained(captures, captureName(module, node)))
        return Error::environment(fmt::format("{} has no gradient: prob_mod reads it", captureName(module, node)),
                                  "ask for gradients of other captures");
  }
  if (withOutputs) {
    ATTNC_TRY_AS(ofOutputs, Differentiation(all.module, captures, kOutputLoss).runOnOutputs());
    all = *std::move(ofOutputs);
  }
  if (module.output(ir::kProbWeight)) {
    ATTNC_TRY_AS(ofProb, Differentiation(all.module, captures, ir::kProbWeight, all.captures).runOnProb());
    all = *std::move(ofProb);
  }
  if (module.output(ir::kSink) && !captures.empty()) {
    ATTNC_TRY_AS(ofSink, Differentiation(all.module, captures, ir::kSink, all.captures).runOnSink());
    all = *std::move(ofSink);
  }
  return Differentiation(all.module, captures, ir::kScore, all.captures).run(options, withTangents);
}

Expected<Gradients> differentiateFactor(const ir::Module& module, const ir::OutputRole& factor,
                                        llvm::ArrayRef<std::string> captures) {
  return Differentiation(module, captures, factor).runOnFactor();
}

bool hasScoreGradient(const ir::Module& module) {
  const std::optional<Value> gradient = module.output(ir::kDScore);
  return gradient && !(module.isConst(*gradient) && module.f32(*gradient) == 0);
}

} // namespace attnc::passes
