#include "families/reductions.h"

#include "attnc/captures.h"
#include "ir/walk.h"
#include "launch/kernel_options.h"
#include "launch/tensor_maps.h"
#include "support/ceil_div.h"
#include "support/try.h"
#include "templates/params_reductions.cuh"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/Sequence.h>
#include <llvm/Support/MathExtras.h>

namespace attnc::plan {
namespace {

using Declared = std::vector<ir::Reduction>;
using ir::Kept;

static_assert(kMaxReductions == ir::kMaxReductions);

/// Returns the tensor that receives an output; null if it is not wanted.
const TensorView* tensorOf(const LaunchOperands& operands, const ir::Reduction& reduction) {
  const Captures::Item* item = operands.reductions ? operands.reductions->find(reduction.name) : nullptr;
  return item ? std::get_if<TensorView>(item) : nullptr;
}

/// Returns the shape that a tensor has; for an output of rows, that of lse.
std::vector<int64_t> shapeOf(const LaunchOperands& operands, Kept kept) {
  const ProblemShape& problem = operands.problem;
  const bool isPacked = operands.cuSeqlensQ && !operands.pageTable;
  if (kept == Kept::Heads) return {problem.batch, problem.qHeads};
  if (kept == Kept::Queries) return {operands.q.shape[0], problem.qHeads, rowsOfQ(operands)};
  return {isPacked ? 1 : problem.batch, problem.qHeads, rowsOfKv(operands)};
}

size_t rowBytes(const LaunchOperands& operands) {
  return sizeof(float) * size_t(operands.q.shape[0] * operands.problem.qHeads * rowsOfQ(operands));
}

/// Where what is written for each row of a head lies, of the declared output number `i`.
float* partOf(const Declared& declared, size_t i, const LaunchOperands& operands, const WorkspaceView& workspace) {
  const auto ofHeads = std::count_if(declared.begin(), declared.begin() + ptrdiff_t(i),
                                     [](const auto& each) { return each.kept == Kept::Heads; });
  char* const parts = static_cast<char*>(workspace.at(Use::RowParts));
  return parts ? reinterpret_cast<float*>(parts + size_t(ofHeads) * rowBytes(operands)) : nullptr;
}

/// Returns the output of rows, or else of heads, that is the row maxima which forward kernels write. Null: the caller
/// wants these maxima besides, or none is an output. The others are computed from these, or anew.
const ir::Reduction* rowMaxOutput(llvm::ArrayRef<ir::Reduction> declared, const LaunchOperands& operands, Kept kept) {
  const auto* found = llvm::find_if(declared, [&](const ir::Reduction& each) {
    return each.isRowMax && each.kept == kept && tensorOf(operands, each) && !operands.rowMax;
  });
  return found == declared.end() ? nullptr : &*found;
}

/// Returns where forward kernels write row maxima. Null: they are not wanted.
float* rowMaxOf(const Declared& declared, const LaunchOperands& operands, const WorkspaceView& workspace) {
  if (const ir::Reduction* rows = rowMaxOutput(declared, operands, Kept::Queries))
    return static_cast<float*>(tensorOf(operands, *rows)->data);
  const ir::Reduction* heads = rowMaxOutput(declared, operands, Kept::Heads);
  return heads ? partOf(declared, size_t(heads - declared.data()), operands, workspace) : operands.rowMax;
}

/// Whether a stage of these kinds has to compute an output.
bool isOf(llvm::ArrayRef<Kept> kinds, const Declared& declared, const ir::Reduction& each,
          const LaunchOperands& operands) {
  if (!tensorOf(operands, each) || !llvm::is_contained(kinds, each.kept)) return false;
  const bool isKnown = each.kept == Kept::Heads || &each == rowMaxOutput(declared, operands, Kept::Queries);
  return kinds.size() == 1 || !each.isRowMax || !isKnown;
}

bool wants(const Declared& declared, const LaunchOperands& operands, llvm::ArrayRef<Kept> kinds) {
  return llvm::any_of(declared, [&](const ir::Reduction& each) { return isOf(kinds, declared, each, operands); });
}

constexpr Tile kNaive{8, 8, 8}; // equals the tile of reductions_naive.cu

/// Returns the shared memory of templates/reductions_sm80.cu. Mirrors its `Memory`.
int tileBytes(const codegen::Config& config) {
  return 3 * config.blockM * paddedRowBytes(config.headDimQk, config.dtype) + 2 * config.blockM * int(sizeof(float));
}

/// Whether templates/reductions_sm80.cu serves a request; else the naive one does.
bool takesTiles(const Request& request) {
  const KernelOptions& options = request.options;
  const Features others = options.features.without({Feature::Lengths, Feature::Appends, Feature::RowMax, Feature::VInK,
                                                    Feature::Reductions, Feature::Deterministic});
  const int most = options.dtype == DType::F32 ? 128 : 256;
  return request.family->family != Family::Naive && others.empty() && !options.pageSize && options.headDim <= most;
}

/// Returns the config of templates/reductions_sm90.cu; without shared memory if it does not serve the request. Four
/// consumers on an SM: in one CTA they share loads; in two, of which each fits into a smaller block. Mods that need
/// many registers have half as many scores at a time.
codegen::Config configSm90(const Request& request) {
  const KernelOptions& options = request.options;
  const analysis::ScoreForm form = request.mod->facts.form;
  const bool isShort = options.kind == KernelKind::Forward &&
                       (form == analysis::ScoreForm::Identity || form == analysis::ScoreForm::Linear);
  const int block = options.blockSparse ? std::min(options.maskQBlock, options.maskKvBlock) : 256;
  const int warps = options.headDim <= 128 && block == 256 ? 16 : 8;
  codegen::Config config = configOf(options, {16 * warps, isShort ? 128 : 64, warps});
  if (request.family->family != Family::Sm90 || options.kind == KernelKind::Decode || block < 128) return config;
  config.kvStages = warps == 16 || options.headDim <= 64 ? 4 : 2;
  config.wgmmaShapes = {config.blockN};
  const int rowBytes = 128 * int(ceilDiv(options.headDim, 64));
  // Mirrors `Memory`: own rows; the ring, with two references a row and control words; a barrier.
  config.sharedBytes = config.blockM * rowBytes + config.kvStages * (config.blockN * (rowBytes + 8) + 24) + 8;
  return config;
}

/// Encodes the maps of templates/reductions_sm90.cu.
Expected<ParameterBlock> parametersSm90(const ReductionParams& base, const Stage& stage,
                                        const LaunchOperands& operands) {
  ReductionParamsSm90 params{};
  params.base = base;
  const bool ownsQ = stage.entry == "attnc_reduce_rows";
  const auto [own, walked] = std::pair(stage.config.blockM, stage.config.blockN);
  ATTNC_TRY(encodeMaps({{"q", &operands.q, ownsQ ? own : walked, &params.q, &params.q_batch_step},
                        {"k", &operands.k, ownsQ ? walked : own, &params.k, &params.k_batch_step}},
                       operands));
  return ParameterBlock(params);
}

/// Returns the parameters in the form that the stage takes.
Expected<ParameterBlock> blockOf(const ReductionParams& params, const Stage& stage, const LaunchOperands& operands) {
  if (stage.templateName == "reductions_sm90.cu") return parametersSm90(params, stage, operands);
  return withScales(params, stage, operands);
}

/// Makes the parameters of the stage that writes outputs of these kinds. With Queries and Heads, those of heads are
/// written to Use::RowParts, row by row.
MakeParameters parametersFor(Declared declared, std::initializer_list<Kept> kinds) {
  return [declared = std::move(declared),
          kinds = std::vector(kinds)](const Stage& stage, const LaunchOperands& operands, const Device&,
                                      const WorkspaceView& workspace) -> Expected<ParameterBlock> {
    ReductionParams params{forwardParams(operands), {}, {}};
    if (!params.lse) params.lse = static_cast<float*>(workspace.at(Use::Lse));
    for (size_t i = 0; i < declared.size(); ++i) {
      if (!isOf(kinds, declared, declared[i], operands)) continue;
      const bool isOfHead = declared[i].kept == Kept::Heads, isPart = isOfHead && kinds.size() > 1;
      float* const part =
          declared[i].isRowMax ? rowMaxOf(declared, operands, workspace) : partOf(declared, i, operands, workspace);
      params.out[i] = isPart ? part : static_cast<float*>(tensorOf(operands, declared[i])->data);
      if (isOfHead && !isPart) params.parts[i] = part;
    }
    return blockOf(params, stage, operands);
  };
}

/// Returns a stage's parameters, of a launch that has an lse, and the row maxima that outputs are.
MakeParameters withLse(MakeParameters parameters, Declared declared) {
  return [parameters = std::move(parameters),
          declared = std::move(declared)](const Stage& stage, const LaunchOperands& given, const Device& device,
                                          const WorkspaceView& workspace) -> Expected<ParameterBlock> {
    if (!given.reductions) return parameters(stage, given, device, workspace);
    ATTNC_TRY(checkReductions(declared, given, /*launches=*/true));
    LaunchOperands operands = given;
    if (!operands.lse) operands.lse = static_cast<float*>(workspace.at(Use::Lse));
    operands.rowMax = rowMaxOf(declared, given, workspace);
    return parameters(stage, operands, device, workspace);
  };
}

/// The kernels that compute outputs, and their config. `naive`: that of templates/reductions_naive.cu.
struct Kernels {
  const char* templateName = "reductions_naive.cu";
  codegen::Config naive, config = naive;

  explicit Kernels(const Request& request) : naive(configOf(request.options, kNaive)) {
    naive.fp8 = request.options.features.has(Feature::Fp8Q);
    naive.rowScales = request.options.features.has(Feature::RowScales);
    config = naive;
    if (!takesTiles(request)) return;
    config = configSm90(request);
    templateName = "reductions_sm90.cu";
    if (config.sharedBytes) return;
    config = configOf(request.options, {64, 64, 4});
    config.sharedBytes = tileBytes(config);
    templateName = "reductions_sm80.cu";
  }
  Stage stage(const char* entry, const char* file, codegen::Config own, CountCtas ctas, MakeParameters make) const {
    const int threads = 32 * own.warps + (own.kvStages ? 32 : 0);
    return {.templateName = file,
            .entry = entry,
            .config = std::move(own),
            .reduces = true,
            .threads = threads,
            .ctas = std::move(ctas),
            .parameters = std::move(make)};
  }
};

/// Adds the sums that backward_delta.cu takes, before it.
void addRowSums(Plan& plan, const Request& request) {
  const auto delta =
      llvm::find_if(plan.stages, [](const Stage& stage) { return stage.templateName == "backward_delta.cu"; });
  if (delta == plan.stages.end()) return; // the naive family computes them itself
  const Kernels kernels(request);
  Stage sums = kernels.stage("attnc_reduce_rows", kernels.templateName, kernels.config, perQTile,
                             [](const Stage& stage, const LaunchOperands& operands, const Device&,
                                const WorkspaceView& workspace) -> Expected<ParameterBlock> {
                               ReductionParams params{forwardParams(operands), {}, {}};
                               params.out[0] = static_cast<float*>(workspace.at(Use::Delta));
                               return blockOf(params, stage, operands);
                             });
  sums.forCaptures = delta->forCaptures;
  plan.stages.insert(delta, std::move(sums));
}

} // namespace

std::string unservedReductions(const Request& request) {
  const KernelOptions& options = request.options;
  if (!options.features.has(Feature::Reductions) || options.kind == KernelKind::Backward) return {};
  if (options.maskByBoxes) return "computes no outputs of mods with block masks of boxes";
  if (options.features.has(Feature::Fp8Kv) && !options.features.has(Feature::Fp8Q))
    return "computes no outputs of mods with k and v of e4m3 and q of 16 bits";
  return {};
}

std::string unservedOutputGradients(const Request& request) {
  if (!request.options.features.has(Feature::Reductions)) return {};
  const ir::Module& module = request.mod->module;
  const std::vector<bool> needed = ir::neededBy(module, {*module.output(ir::kProbGradient)});
  const auto isScore = [&](uint32_t id) { return needed[id] && ir::isScore(module, {id}); };
  const ir::Value ofScore = *module.output(ir::kScoreGradient);
  if (llvm::any_of(llvm::seq<uint32_t>(0, uint32_t(module.size())), isScore) || !module.isConst(ofScore) ||
      module.f32(ofScore) != 0)
    return "takes no gradients of outputs that read scores";
  if (request.mod->facts.hasProbMod || request.mod->facts.hasProbWeight)
    return "takes no gradients of outputs next to a prob_mod";
  if (llvm::any_of(request.mod->captures, [](const CaptureAccess& capture) { return capture.inOutputs; }))
    return "takes no gradients of captures that outputs read";
  return {};
}

bool needsRowMax(llvm::ArrayRef<ir::Reduction> declared, const KernelOptions& options) {
  const auto isRowMax = [](const ir::Reduction& each) { return each.isRowMax; };
  return options.features.has(Feature::Reductions) && options.kind != KernelKind::Backward &&
         llvm::any_of(declared, isRowMax);
}

void addReductions(Plan& plan, const Request& request) {
  const Declared& declared = request.mod->reductions;
  if (!request.options.features.has(Feature::Reductions) || declared.empty()) return;
  if (request.options.kind == KernelKind::Backward) return addRowSums(plan, request);
  for (Stage& stage : plan.stages) stage.parameters = withLse(std::move(stage.parameters), declared);
  const Kernels kernels(request);
  const auto add = [&](const char* entry, const char* file, const codegen::Config& config,
                       std::initializer_list<Kept> kinds, CountCtas ctas) {
    if (llvm::none_of(declared, [&](const auto& each) { return llvm::is_contained(kinds, each.kept); })) return;
    const auto count = [=, ctas = std::move(ctas), all = std::vector(kinds)](
                           const Stage& stage, const LaunchOperands& operands, const Device& device) {
      return wants(declared, operands, all) ? ctas(stage, operands, device) : 0;
    };
    plan.stages.push_back(kernels.stage(entry, file, config, count, parametersFor(declared, kinds)));
  };
  add("attnc_reduce_rows", kernels.templateName, kernels.config, {Kept::Queries, Kept::Heads}, perQTile);
  add("attnc_reduce_columns", kernels.templateName, kernels.config, {Kept::Keys},
      [](const Stage& stage, const LaunchOperands& operands, const Device&) {
        const int64_t rows = stage.config.blockM, length = rowsOfKv(operands), batch = operands.problem.batch;
        const bool isPacked = operands.cuSeqlensQ && !operands.pageTable;
        return operands.problem.qHeads * (isPacked ? length / rows + batch : batch * ceilDiv(length, rows));
      });
  add("attnc_reduce_heads", "reductions_naive.cu", kernels.naive, {Kept::Heads},
      [](const Stage&, const LaunchOperands& operands, const Device&) {
        return operands.problem.batch * operands.problem.qHeads;
      });
  if (!plan.bindsLse) plan.workspace.push_back({.use = Use::Lse, .bytes = rowBytes});
  const size_t ofHeads = llvm::count_if(declared, [](const auto& each) { return each.kept == Kept::Heads; });
  plan.workspace.push_back(
      {.use = Use::RowParts, .bytes = [=](const LaunchOperands& operands) { return ofHeads * rowBytes(operands); }});
}

Status checkReductions(llvm::ArrayRef<ir::Reduction> declared, const LaunchOperands& operands, bool launches) {
  if (!operands.reductions) return {};
  for (const auto& [name, item] : operands.reductions->all()) {
    const auto* tensor = std::get_if<TensorView>(&item);
    const auto* found = llvm::find_if(declared, [&, name = name](const auto& each) { return each.name == name; });
    std::vector<std::string> names;
    for (const ir::Reduction& each : declared) names.push_back(each.name);
    if (found == declared.end())
      return Error::environment(fmt::format("the mod has no output {}", name),
                                declared.empty() ? "it declares none"
                                                 : fmt::format("it has {}", fmt::join(names, ", ")));
    const std::vector<int64_t> shape = shapeOf(operands, found->kept);
    bool fits = tensor && tensor->dtype == DType::F32 &&
                llvm::ArrayRef(tensor->shape).take_front(size_t(tensor->rank)) == llvm::ArrayRef(shape);
    int64_t step = 1;
    for (size_t axis = shape.size(); fits && tensor->elements() && axis-- > 0; step *= shape[axis])
      fits = shape[axis] == 1 || tensor->stride[axis] == step;
    if (!fits)
      return Error::environment(fmt::format("the output {} is no dense tensor f32 [{}]", name, fmt::join(shape, ", ")),
                                "its mod declares it over these axes");
    if (launches) ATTNC_TRY(checkAddress(name, *tensor));
  }
  return {};
}

} // namespace attnc::plan
