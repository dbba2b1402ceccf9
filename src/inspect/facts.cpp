// Questions about a mod that programs ask before they run it.
#include "analysis/low_rank.h"
#include "api/mod_impl.h"
#include "api/own_stack.h"
#include "api/plan_impl.h"
#include "attnc/explain.h"
#include "ir/bind.h"
#include "ir/conditions.h"
#include "ir/interpreter.h"
#include "ir/printer.h"
#include "ir/walk.h"
#include "passes/derive.h"
#include "support/try.h"

#include <algorithm>
#include <cmath>

namespace attnc {
namespace {

/// Whether the value only adds and selects given numbers. If it multiplies, kernels may round once; if it casts,
/// positions may be summed in another order (dsl/SPEC.md).
bool addsAtMost(const ir::Module& module, ir::Value score) {
  const std::vector<bool> needed = ir::neededBy(module, score);
  for (uint32_t id = 0; id <= score.id; ++id) {
    if (!needed[id] || module[{id}].type != ir::Type::F32) continue;
    switch (module[{id}].op) {
    case ir::Op::Const:
    case ir::Op::Param:
    case ir::Op::Scalar:
    case ir::Op::Load:
    case ir::Op::Neg:
    case ir::Op::Abs:
    case ir::Op::Add:
    case ir::Op::Sub:
    case ir::Op::Min:
    case ir::Op::Max:
    case ir::Op::Select: break;
    default: return false;
    }
  }
  return true;
}

} // namespace

ScoreFacts scoreFactsOf(const Mod& mod) {
  const ir::Module& traced = tracedModule(mod);
  ScoreFacts facts;
  if (auto score = traced.output(ir::kScore)) {
    const ir::ParamSet params = ir::paramsOf(traced, *score);
    facts.readsScore = params.contains(ir::ParamKind::Score);
    for (ir::ParamKind place : {ir::ParamKind::B, ir::ParamKind::H, ir::ParamKind::QIdx, ir::ParamKind::KvIdx})
      facts.readsPlace |= params.contains(place);
  }
  if (auto score = mod.module().output(ir::kScore)) facts.addsAtMost = addsAtMost(mod.module(), *score);
  facts.approximates = ir::uses(mod.module(), ir::Op::TanhApprox);
  return facts;
}

Expected<float> distanceSlope(const Mod& mod, const Captures& captures, const ProblemShape& problem) {
  return onOwnStack([&]() -> Expected<float> {
    ATTNC_TRY_AS(kernelMod, kernelModOf(mod, plan::ModForm(plan::algebraFor(DType::BF16))));
    const ir::Module& module = (*kernelMod)->module;
    const std::optional<ir::Value> slope = module.output(ir::kKvSlope);
    if (!slope) return 0;
    ATTNC_TRY_AS(bindings, ir::bind(module, captures, problem));
    const ir::Evaluator slopes(module, *bindings, *slope);
    float largest = 0;
    for (int64_t b = 0; b < problem.batch; ++b)
      for (int64_t h = 0; h < problem.qHeads; ++h)
        largest = std::max(largest, std::fabs(slopes.evaluate(0, b, h, 0, 0).real));
    return largest;
  });
}

Expected<LowRankFacts> lowRankFactsOf(const Mod& mod, const Captures& captures, const ProblemShape& problem) {
  return onOwnStack([&]() -> Expected<LowRankFacts> {
    const std::optional<analysis::LowRankTerm> term = analysis::lowRank(mod.module()).term;
    if (!term) return LowRankFacts{};
    ir::Module module = mod.module();
    ATTNC_TRY(passes::deriveForKernels(module, {.lowRank = passes::Algebra::LowRank::Factors}));
    ATTNC_TRY_AS(bindings, ir::bind(module, captures, problem));
    const ir::Evaluator ofQ(module, *bindings, *module.output(ir::kQFactor)),
        ofKv(module, *bindings, *module.output(ir::kKvFactor));
    const auto finite = [](double x) { return std::isfinite(x) ? std::fabs(x) : 0; };
    const int64_t rows = std::max(problem.qLen, problem.kvLen); // positions of queries may be those of keys
    double largest = 0;
    for (int64_t b = 0; b < problem.batch; ++b)
      for (int64_t h = 0; h < problem.qHeads; ++h) {
        std::vector<double> ofColumns(size_t(term->rank)); // the largest
        for (int64_t i = 0; i < problem.kvLen; ++i)
          for (int64_t r = 0; r < term->rank; ++r)
            ofColumns[size_t(r)] = std::max(ofColumns[size_t(r)], finite(ofKv.evaluate(0, b, h, 0, i, 0, r).real));
        for (int64_t i = 0; i < rows; ++i) {
          double sum = 0;
          for (int64_t r = 0; r < term->rank; ++r)
            sum += finite(ofQ.evaluate(0, b, h, i, 0, 0, r).real) * ofColumns[size_t(r)];
          largest = std::max(largest, sum);
        }
      }
    return LowRankFacts{largest, term->kvPerHead || term->kvPerBatch};
  });
}

std::set<std::string> capturesOfMask(const Mod& mod) {
  const ir::Module& module = mod.module();
  std::set<std::string> names;
  const std::optional<ir::Value> mask = module.output(ir::kMask);
  if (!mask) return names;
  const std::vector<bool> needed = ir::neededBy(module, *mask);
  for (uint32_t id = 0; id <= mask->id; ++id) {
    if (!needed[id]) continue;
    const ir::Node& node = module[{id}];
    if (node.op == ir::Op::Load) names.insert(module.tensors[size_t(node.attr)].name);
    if (node.op == ir::Op::Scalar) names.insert(module.scalars[size_t(node.attr)].name);
  }
  return names;
}

Status checkGradients(const Mod& mod, const std::set<std::string>& captures) {
  return onOwnStack([&]() -> Status {
    auto derived = gradientMod(mod, captures);
    return derived ? Status() : std::move(derived).error();
  });
}

Status checkCaptures(const Mod& mod, const Captures& captures, const ProblemShape& problem) {
  auto bindings = ir::bind(mod.module(), captures, problem);
  return bindings ? Status() : std::move(bindings).error();
}

void chooseExtents(const Mod& mod, const ProblemShape& problem, int64_t value, std::map<std::string, int64_t>& given) {
  const std::map<std::string_view, int64_t> builtin{{"B", problem.batch},
                                                    {"H", problem.qHeads},
                                                    {"HKV", problem.kvHeads},
                                                    {"Q_LEN", problem.qLen},
                                                    {"KV_LEN", problem.kvLen}};
  const ir::Module& module = mod.module();
  llvm::SmallVector<int64_t, 16> dims;
  std::vector<bool> isFree;
  for (const std::string& name : module.dims) {
    const auto known = builtin.find(name);
    const auto set = given.find(name);
    isFree.push_back(known == builtin.end() && set == given.end());
    dims.push_back(known != builtin.end() ? known->second : isFree.back() ? value : set->second);
  }
  ir::meetConditions(ir::conditionsAlone(module), dims, isFree); // bind() reports those that do not hold
  for (size_t dim = 0; dim < dims.size(); ++dim)
    if (isFree[dim]) given[module.dims[dim]] = dims[dim];
}

Expected<std::string> sequencesIrText(const Mod& mod, const KernelOptions& options) {
  return onOwnStack([&]() -> Expected<std::string> {
    const passes::SequenceForm form = sequenceForm(options);
    Expected<Mod> made = form.isPlain() ? mod.pinned(options.pins) : sequencesMod(mod, form, options.pins);
    if (!made) return std::move(made).error();
    return form.isPlain() ? made->irText() : ir::print(made->module()); // the former has no outputs of sequences
  });
}

Expected<std::string> kernelIrText(const Plan& plan) {
  return onOwnStack([&]() -> Expected<std::string> {
    const PlanAccess::Impl& of = PlanAccess::of(plan);
    const plan::Stage& stage = plan::walkingStage(of.plan);
    plan::ModForm form = stage.algebra;
    form.walksSecond = stage.walksSecond;
    ATTNC_TRY_AS(kernelMod, kernelModOf(of.mod, form));
    return ir::print((*kernelMod)->module);
  });
}

struct MaskReader::Impl {
  Mod mod; // the interpreter's module
  ir::Interpreter interpreter;
  Impl(const Mod& mod, const ir::Bindings& bindings) : mod(mod), interpreter(this->mod.module(), bindings) {}
};

MaskReader::MaskReader(std::unique_ptr<const Impl> impl) : impl(std::move(impl)) {}
MaskReader::MaskReader(const MaskReader& other) : impl(std::make_unique<Impl>(*other.impl)) {}
MaskReader::MaskReader(MaskReader&&) noexcept = default;
MaskReader::~MaskReader() = default;

Expected<MaskReader> MaskReader::create(const Mod& mod, const Captures& captures, const ProblemShape& problem) {
  ATTNC_TRY_AS(bindings, ir::bind(mod.module(), captures, problem));
  return MaskReader(std::make_unique<Impl>(mod, *bindings));
}

bool MaskReader::isLive(int64_t b, int64_t h, int64_t q, int64_t kv) const {
  return impl->interpreter.mask(b, h, q, kv);
}

float MaskReader::scoreOf(float score, int64_t b, int64_t h, int64_t q, int64_t kv) const {
  return float(impl->interpreter.score(score, b, h, q, kv));
}

float MaskReader::weightOf(float weight, int64_t b, int64_t h, int64_t q, int64_t kv) const {
  const ir::Interpreter& reads = impl->interpreter;
  return reads.hasProbWeight() ? float(reads.probWeight(weight, b, h, q, kv))
                               : weight * float(reads.probFactor(b, h, q, kv));
}

float MaskReader::sinkOf(int64_t b, int64_t h, int64_t q) const { return float(impl->interpreter.sink(b, h, q)); }

} // namespace attnc
