// What operands decide: kernels, block mask, workspace.
#include "attnc/prepared.h"

#include "api/compiler_impl.h"
#include "ir/bind.h"
#include "ir/interpreter.h"
#include "ir/outputs.h"
#include "plan/capture_gradients.h"
#include "plan/catalog.h"
#include "plan/decode_parts.h"
#include "plan/family.h"
#include "plan/grid_plan.h"
#include "plan/kernel_options.h"
#include "plan/mask_shape.h"
#include "support/try.h"

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/Support/MathExtras.h>

#include <functional>
#include <utility>

namespace attnc {
passes::SequenceForm sequenceForm(const Operands& operands, const PrepareOptions& options) {
  const bool lengthsDiffer = operands.kvLengths || operands.cuSeqlensKv;
  const QueryOffsets otherwise = operands.qOffsets ? QueryOffsets::Tensor
                                 : lengthsDiffer   ? QueryOffsets::FromLengths
                                                   : QueryOffsets::None;
  const bool isRagged = operands.cuSeqlensQ.has_value();
  return {operands.kvLengths.has_value(), options.offsets.value_or(otherwise), isRagged,
          isRagged && operands.pageTable};
}

passes::SequenceForm sequenceForm(const KernelOptions& options) {
  const bool isRagged = options.features.has(Feature::Ragged);
  return {options.features.has(Feature::Lengths), options.offsets, isRagged, isRagged && options.pageSize != 0};
}

KernelOptions optionsOf(const Operands& operands, const Outputs& outputs, const PrepareOptions& options) {
  const bool isFp8 = operands.q.dtype == DType::E4M3;
  KernelOptions kernel{.family = options.family,
                       .arch = options.arch,
                       .dtype = !isFp8        ? operands.q.dtype
                                : outputs.out ? outputs.out->dtype
                                              : DType::BF16,
                       .headDim = int(operands.q.shape[3]),
                       .headDimV = int(operands.v.shape[3]),
                       .features = featuresOf(operands) & kOptionFeatures,
                       .offsets = sequenceForm(operands, options).offsets,
                       .pageSize = operands.pageTable ? int(operands.k.shape[2]) : 0,
                       .pins = options.pins,
                       .tile = options.tile};
  copyChoices(options, kernel);
  kernel.features.set(Feature::Fp8Q, isFp8); // scales of others are refused by name
  kernel.features.set(Feature::Fp8Kv, operands.k.dtype == DType::E4M3);
  kernel.features.set(Feature::RowMax, outputs.rowMax.has_value());
  const bool appendsInK = !operands.newK || !operands.newV || vIsInK(*operands.newK, *operands.newV);
  kernel.features.set(Feature::VInK, plan::hasWideHeads(kernel) && vIsInK(operands.k, operands.v) && appendsInK);
  if (const BlockMaskView* mask = operands.blockMask) {
    kernel.blockSparse = true;
    kernel.maskQBlock = mask->shape.qBlock;
    kernel.maskKvBlock = mask->shape.kvBlock;
    kernel.maskByBoxes = mask->shape.boxes.has_value();
    kernel.listsOfWholeMod = mask->ofWholeMod;
  }
  return kernel;
}

namespace {

plan::WorkspaceLayout workspaceOf(const plan::Plan& plan, const plan::LaunchOperands& operands,
                                  const std::optional<BlockMaskShape>& blockMask, BlockMask::Lists lists) {
  std::vector<plan::WorkspaceUse> uses = plan.workspace;
  if (blockMask) {
    uses.push_back({.use = plan::Use::Lists, .bytes = [shape = *blockMask, lists](const plan::LaunchOperands&) {
                      return BlockMask::storageBytes(shape, lists);
                    }});
  }
  return {uses, operands};
}

/// Returns the rows of q that share a KV head.
int64_t rowsOfKvHead(const ProblemShape& problem) {
  return problem.kvHeads ? problem.qLen * (problem.qHeads / problem.kvHeads) : 0;
}

/// Returns what speaks against a decode kernel; empty if nothing does. A decode kernel reads K and V once, and divides
/// them among CTAs. That pays for few rows over long KV, if one tile takes all rows of a KV head, or if forward kernels
/// would leave most of a GPU idle.
std::string againstDecode(const ProblemShape& problem, DType dtype) {
  constexpr int64_t kMostQueries = 127, kLeastColumns = 512, kTileRows = 64, kFewHeads = 64;
  if (dtype == DType::F32) return "decode kernels take bf16 and fp16";
  if (problem.qLen > kMostQueries)
    return fmt::format("{} queries, decode kernels gain up to {}", problem.qLen, kMostQueries);
  if (problem.kvLen < kLeastColumns)
    return fmt::format("KV_LEN {}, decode kernels gain from {}", problem.kvLen, kLeastColumns);
  const int64_t rows = rowsOfKvHead(problem), heads = problem.batch * problem.qHeads;
  if (rows == 0 || heads == 0) return "there are no queries";
  if (rows > kTileRows && heads > kFewHeads)
    return fmt::format(
        "{} rows of q share a KV head, a tile of a decode kernel takes {}, and {} (batch, head) keep a GPU busy", rows,
        kTileRows, heads);
  return {};
}

/// Returns what speaks for a decode kernel.
std::string forDecode(const ProblemShape& problem, int packedRows) {
  const int64_t rows = rowsOfKvHead(problem);
  if (rows > packedRows)
    return fmt::format("{} (batch, head) leave a GPU idle unless KV is divided", problem.batch * problem.qHeads);
  return fmt::format("K and V are read once for the {} that share{} a KV head, and divided among CTAs",
                     rows == 1 ? "row of q" : fmt::format("{} rows of q", rows), rows == 1 ? "s" : "");
}

/// Returns the least tile that takes all rows of a KV head, or the largest tile.
int packedRowsFor(const ProblemShape& problem) {
  const int64_t rows = rowsOfKvHead(problem);
  return rows <= 16 ? 16 : rows <= 32 ? 32 : 64;
}

} // namespace

Status bindCaptures(const Mod& mod, const Captures* captures, const passes::GridKernel* grid,
                    plan::LaunchOperands& operands, const std::map<std::string, int64_t>& pins) {
  static const Captures kNone;
  if (!captures && !(grid && mod.captures().empty())) {
    if (grid) operands.grids = plan::gridsOf(*grid, operands.problem);
    return {};
  }
  ATTNC_TRY_AS(bindings, ir::bind(mod.module(), captures ? *captures : kNone, operands.problem, &operands));
  if (grid) operands.grids = plan::gridsOf(*grid, *bindings);
  return checkPins(mod.module(), *bindings, pins);
}

namespace {

/// Finds a tuned tile for a selection.
using TileLookup = std::function<std::optional<FoundChoice>(const plan::KernelMod&, const plan::Selection&,
                                                            const std::string& shapeClass)>;

/// Returns what a launch tells of its walks. A row sees all columns if the host does not know: what captured tensors
/// hold is in device memory.
plan::WalkFacts walkFacts(const ir::Module& module, const Captures* captures, const ProblemShape& problem) {
  static const Captures kNone;
  plan::WalkFacts facts{.columns = problem.kvLen, .sharesKv = problem.qHeads != problem.kvHeads};
  const std::optional<ir::Value> begin = module.output(ir::kKvBegin), end = module.output(ir::kKvEnd);
  if (!begin || !end || !module.tensors.empty()) return facts;
  const auto bindings = ir::bind(module, captures ? *captures : kNone, problem);
  if (!bindings) return facts; // the values are not known yet
  const auto edge = [&](ir::Value value) {
    return ir::Evaluator(module, *bindings, value).evaluate(0, 0, 0, problem.qLen / 2, 0).integer;
  };
  const int64_t first = std::max<int64_t>(edge(*begin), 0);
  facts.columns = std::max<int64_t>(std::min(edge(*end), problem.kvLen) - first, 0);
  facts.isWindow = first > 0 && module[*begin].op != ir::Op::Const;
  return facts;
}

/// Returns the tile that the model has for the operands. Empty: the default.
std::string modelTile(const plan::KernelMod& mod, const plan::Selection& selection, const Captures* captures,
                      const ProblemShape& problem) {
  return plan::tileOfLaunch(mod, selection, [&] { return walkFacts(mod.module, captures, problem); });
}

/// What the kernels of a mod have in common.
struct Context {
  const Mod& mod;
  TileLookup lookup;
  int64_t maxWork; ///< CompilerOptions::maxWork
};

/// Makes the plan of a selection, with the tile that was asked for, else with the tuned one, else with the model's. A
/// tuned tile that is the default shares its kernel.
Expected<Plan> planTiled(const Context& context, const Mod& derived,
                         const std::shared_ptr<const plan::KernelMod>& kernelMod, plan::Selection selection,
                         const std::string& asked, const std::string& ofModel, const std::string& shapeClass,
                         std::string passedOver, bool listsAnew = false) {
  const plan::KernelMod& mod = *kernelMod;
  std::optional<FoundChoice> found = asked.empty() ? context.lookup(mod, selection, shapeClass) : std::nullopt;
  if (!found)
    selection.options.tile = asked.empty() ? ofModel : asked;
  else if (found->tile != plan::candidatesOf(mod, selection).front())
    selection.options.tile = found->tile;
  ATTNC_TRY_AS(plan, plan::planOf(mod, selection));
  const KvLoop kvLoop = kvLoopOf(mod, selection, listsAnew);
  return PlanAccess::make({.given = context.mod,
                           .mod = derived,
                           .kernelMod = kernelMod,
                           .selection = std::move(selection),
                           .plan = *std::move(plan),
                           .maxWork = context.maxWork,
                           .kvLoop = kvLoop,
                           .tileFrom = found           ? TileFrom::Tuned
                                       : asked.empty() ? TileFrom::Model
                                                       : TileFrom::Asked,
                           .passedOver = std::move(passedOver),
                           .tunedBy = found ? std::move(found->tunedBy) : std::string()});
}

/// Returns the shape of the mask to build. If each launch builds it, it is of each sequence.
BlockMaskShape shapeToBuild(const ir::Module& module, const ProblemShape& problem, const KernelOptions& options) {
  BlockMaskShape shape = plan::smallestMask(module, problem, options.maskQBlock, options.maskKvBlock);
  if (options.offsets != QueryOffsets::None) shape.batch = std::max<int64_t>(1, problem.batch);
  return shape;
}

/// Whether lists may be built for sequences as they lie. Only forward kernels walk lists of a ragged batch, or of
/// queries with offsets.
///
/// Offsets differ from launch to launch. So each launch builds lists, of the rows and keys that it finds there. They
/// must not take too much memory, and there must be keys to skip. A CTA builds a row of blocks, so few rows of many
/// blocks might take longer than what they save. Lists that are kept are of the longest sequences of a ragged batch,
/// which the host must know. To find them must not take many more pairs than the sequences have.
bool mayBuildLists(const plan::LaunchOperands& layout, const ir::Module& module, const KernelOptions& options,
                   BlockMask::Lists lists) {
  if (options.offsets != QueryOffsets::None) {
    constexpr size_t kMostBytes = size_t(256) << 20;
    constexpr int64_t kLeastKeys = 512, kFewRows = 16, kManyBlocks = 64;
    const BlockMaskShape shape = shapeToBuild(module, layout.problem, options);
    if (lists != BlockMask::Lists::ByRow || shape.kvLen < kLeastKeys || !plan::checkShape(shape)) return false;
    const bool isSlow = shape.batch * shape.heads * shape.qBlocks() < kFewRows && shape.kvBlocks() > kManyBlocks;
    return !isSlow && BlockMask::storageBytes(shape, lists) <= kMostBytes;
  }
  if (!layout.cuSeqlensQ) return true;
  if (!layout.maxQLen || !layout.maxKvLen || lists != BlockMask::Lists::ByRow) return false;
  constexpr double kMostPadding = 4; // pairs of the lists for each pair of rows and keys of a sequence
  const auto sequences = double(std::max<int64_t>(1, layout.problem.batch));
  const double keys = layout.pageTable ? sequences * double(layout.maxKvLen) : double(layout.k.shape[2]);
  const auto batch = double(plan::smallestMask(module, layout.problem, 128, 128).batch);
  return batch * double(layout.maxQLen) * double(layout.maxKvLen) <=
         kMostPadding * double(layout.q.shape[2]) * keys / sequences;
}

Expected<Settled> settleFor(const Context& context, const Mod& derived, const Operands& operands,
                            const Outputs& outputs, KernelOptions options, bool buildBlockMask, bool mayDecode,
                            BlockMask::Lists lists) {
  const std::string askedTile = std::exchange(options.tile, {}); // of the kernel that is settled below
  ATTNC_TRY_AS(layout, plan::checkLayout(operands, outputs, options));
  ATTNC_TRY(plan::checkGiven(operands, options));
  ATTNC_TRY_AS(kernelMod, kernelModOf(derived, plan::algebraFor(options)));
  ATTNC_TRY(bindCaptures(derived, operands.captures, (*kernelMod)->grid.get(), *layout, options.pins));
  ATTNC_TRY_AS(selection, plan::selectFamily(**kernelMod, options, &*layout));
  std::string whyKind;
  if (mayDecode) whyKind = againstDecode(layout->problem, options.dtype);
  if (mayDecode && whyKind.empty()) {
    KernelOptions few = options;
    few.kind = KernelKind::Decode;
    few.packedRows = packedRowsFor(layout->problem);
    Expected<plan::Selection> divided = plan::selectFamily(**kernelMod, few, &*layout);
    whyKind = divided ? forDecode(layout->problem, few.packedRows) : divided.error().message;
    if (divided) selection = std::move(divided);
  }
  std::string passedOver = passedOverBy(*selection);
  const bool hasOffsets = options.offsets != QueryOffsets::None;
  bool buildsMask = buildBlockMask && !options.blockSparse &&
                    mayBuildLists(*layout, derived.module(), options, lists) &&
                    plan::wantsBlockMask(**kernelMod, *selection);
  if (buildsMask) {
    const bool mayListBoxes = lists == BlockMask::Lists::ByRow && !hasOffsets;
    Expected<plan::Selection> listed = plan::selectListed(**kernelMod, options, &*layout, mayListBoxes);
    const auto hasTile = [&] { return llvm::is_contained(plan::candidatesOf(**kernelMod, *listed), askedTile); };
    if (hasOffsets && (!listed || !(askedTile.empty() || hasTile())))
      buildsMask = false; // the caller may not know that there would be lists
    else
      selection = std::move(listed);
  }
  if (buildsMask) {
    if (!selection) return selection.error();
    // The first selection's reason, which leads to the mask, takes precedence. For mods that bound nothing it says only
    // that, so the new one's is better.
    const bool isUnbounded = (*kernelMod)->grid && !(*kernelMod)->grid->isBounded;
    if (passedOver.empty() || isUnbounded) passedOver = passedOverBy(*selection);
  }
  std::string shapeClass = shapeClassOf(*layout, selection->options.kind);
  const std::string ofModel = modelTile(**kernelMod, *selection, operands.captures, layout->problem);
  ATTNC_TRY_AS(kernel, planTiled(context, derived, *kernelMod, *std::move(selection), askedTile, ofModel, shapeClass,
                                 std::move(passedOver), buildsMask && hasOffsets));
  const plan::Plan& plan = PlanAccess::of(*kernel).plan;
  Preparation preparation{.kernel = *kernel,
                          .blockMaskKernel = {},
                          .backward = {},
                          .whyKind = std::move(whyKind),
                          .blockMask = {},
                          .problem = layout->problem};
  const bool byBoxes = plan.options.maskByBoxes;
  if (byBoxes) ATTNC_TRY(plan::checkListedBoxes(plan.stages.front().config, *layout));
  if (buildsMask) {
    BlockMaskShape shape = shapeToBuild(derived.module(), layout->problem, options);
    if (byBoxes) shape.boxes = plan::latticesOf(plan.stages.front().config, *layout->grids);
    ATTNC_TRY(plan::checkShape(shape));
    preparation.blockMask = shape;
  }
  plan::WorkspaceLayout workspace = workspaceOf(plan, *layout, preparation.blockMask, lists);
  preparation.workspaceBytes = workspace.bytes();
  return Settled{.preparation = std::move(preparation),
                 .workspace = std::move(workspace),
                 .qRows = operands.q.shape[2],
                 .kvRows = operands.k.shape[2],
                 .shapeClass = std::move(shapeClass)};
}

/// Returns the options of the backward pass for a forward pass, without a block mask in the workspace.
KernelOptions backwardOptions(KernelOptions options, const Training& training, bool deterministic) {
  options.tile.clear();
  options.kind = KernelKind::Backward;
  options.features.set(Feature::Deterministic, deterministic);
  if (const Captures* captures = training.gradients.captures)
    for (const auto& [name, tensor] : captures->all()) options.gradients.insert(name);
  return options;
}

/// Whether the backward pass would walk boxes of a grid, and for mods on a grid, why it would not.
struct GradientsByBoxes {
  bool areTaken = false;
  std::string passedOver;
};

/// Ignores errors in the operands, which others report.
GradientsByBoxes gradientsByBoxes(const Mod& derived, const Training& training, const KernelOptions& options) {
  Expected<plan::LaunchOperands> layout = plan::checkBackwardLayout(training.operands, training.gradients, options);
  auto kernelMod = kernelModOf(derived, plan::algebraFor(options));
  if (!layout || !kernelMod || !(*kernelMod)->grid) return {};
  if (!bindCaptures(derived, training.operands.captures, (*kernelMod)->grid.get(), *layout, options.pins)) return {};
  const Expected<plan::Selection> selection = plan::selectFamily(**kernelMod, options, &*layout);
  if (!selection) return {};
  return {selection->family->walksBoxes, passedOverBy(*selection)};
}

/// Adds the backward pass to a settled forward pass. `derived`: with the gradient of the score. `passedOver`:
/// GradientsByBoxes::passedOver, which takes precedence over what a block mask rules out.
Status settleBackward(const Context& context, const Mod& derived, const Training& training,
                      const KernelOptions& options, const std::string& askedTile, const std::string& passedOver,
                      Settled& settled) {
  ATTNC_TRY_AS(layout, plan::checkBackwardLayout(training.operands, training.gradients, options));
  ATTNC_TRY_AS(kernelMod, kernelModOf(derived, plan::algebraFor(options)));
  const BackwardOperands& operands = training.operands;
  ATTNC_TRY(bindCaptures(derived, operands.captures, (*kernelMod)->grid.get(), *layout, options.pins));
  ATTNC_TRY_AS(selection, plan::selectFamily(**kernelMod, options, &*layout));
  settled.backwardShapeClass = shapeClassOf(*layout, KernelKind::Backward);
  const std::string ofModel = modelTile(**kernelMod, *selection, operands.captures, layout->problem);
  const std::string why = passedOver.empty() ? passedOverBy(*selection) : passedOver;
  ATTNC_TRY_AS(kernel, planTiled(context, derived, *kernelMod, *std::move(selection), askedTile, ofModel,
                                 settled.backwardShapeClass, why));
  const plan::Plan& plan = PlanAccess::of(*kernel).plan;
  ATTNC_TRY(plan::addCaptureOutputs(*layout, plan, derived.module(), operands.captures, training.gradients.captures,
                                    /*launches=*/false));
  if (const auto& mask = settled.preparation.blockMask) layout->lists = BlockMaskView{.shape = *mask};
  settled.backwardWorkspace = plan::WorkspaceLayout(plan.workspace, *layout);
  if (const size_t bytes = settled.backwardWorkspace->bytes())
    settled.preparation.workspaceBytes = backwardOffset(settled.workspace) + bytes;
  settled.preparation.backward = *std::move(kernel);
  return {};
}

} // namespace

size_t backwardOffset(const plan::WorkspaceLayout& forward) {
  return size_t(llvm::alignTo(forward.bytes(), kWorkspaceAlignment));
}

/// Returns the name of the device whose choices are looked up. Empty if nothing is looked up.
std::string Compiler::Impl::deviceOf(Lookup lookup, const std::string& arch) const {
  if (lookup == Lookup::None || !looksUpTuned) return {};
  if (lookup == Lookup::Named || !tunedDevice.empty()) return tunedDevice;
  const Expected<jit::DeviceInfo> device = jit::currentDevice();
  return device && device->arch == arch ? device->name : std::string();
}

Expected<Settled> Compiler::Impl::settle(const Mod& mod, const Operands& operands, const Outputs& outputs,
                                         const PrepareOptions& options, Lookup lookup, const Training* training) {
  ATTNC_TRY_AS(kernel, withArch(optionsOf(operands, outputs, options)));
  const bool isFp8 = kernel->features.has(Feature::Fp8Q), isCacheFp8 = kernel->features.has(Feature::Fp8Kv) && !isFp8;
  if ((isFp8 || isCacheFp8) && training)
    return Error::environment(
        fmt::format("{} and v are e4m3, of which there is no backward pass", isFp8 ? "q, k" : "k"));
  if (isCacheFp8 && !options.decode.value_or(true))
    return Error::environment(
        fmt::format("k and v are e4m3, and q is {}: only decode kernels take these", dtypeName(kernel->dtype)),
        "forward kernels take k and v of e4m3 if q is e4m3");
  if (training && plan::hasWideHeads(*kernel))
    return Error::environment(
        fmt::format("there is no backward pass for head dims above 256, and q and v have {} and {}", kernel->headDim,
                    kernel->headDimV),
        "leave the gradients out; decode kernels of sm_90a then take up to 576 and 512");
  const bool mustDecode = plan::hasWideHeads(*kernel) && !training && options.family != Family::Naive;
  if (mustDecode && !options.decode && kernel->dtype == DType::F32) {
    ATTNC_TRY(plan::checkOptions(*kernel)); // names head dims of which there is no kernel
    return Error::environment("head dims above 256 are not supported in f32",
                              "decode kernels of sm_90a take them in bf16 and f16, the naive family in f32");
  }
  if (options.decode.value_or(isCacheFp8 || mustDecode)) {
    if (training) return Error::environment("a decode kernel is asked for, which has no backward pass");
    kernel->kind = KernelKind::Decode;
    kernel->packedRows = packedRowsFor(plan::problemOf(operands));
  }
  std::optional<KernelOptions> backward;
  std::optional<Mod> gradientMod;
  GradientsByBoxes byBoxes;
  if (training) {
    backward = backwardOptions(*kernel, *training, options.deterministic);
    ATTNC_TRY_AS(made, derived(mod, *backward));
    gradientMod = *std::move(made);
    byBoxes = gradientsByBoxes(*gradientMod, *training, *backward);
    kernel->noBoxes = !byBoxes.areTaken; // both passes use boxes, or both use lists
  }
  ATTNC_TRY_AS(derivedMod, derived(mod, *kernel));
  const BlockMask::Lists lists = training ? BlockMask::Lists::ByRowAndColumn : BlockMask::Lists::ByRow;
  const bool mayDecode = !options.decode && !mustDecode && !isFp8 && !isCacheFp8 && !training &&
                         options.family == Family::Auto && !kernel->blockSparse;
  const bool looksUp = options.tile.empty() || (training && options.backwardTile.empty());
  const std::string device = looksUp ? deviceOf(lookup, kernel->arch) : std::string();
  const TileLookup findTile = [&](const plan::KernelMod& kernelMod, const plan::Selection& selection,
                                  const std::string& shapeClass) -> std::optional<FoundChoice> {
    if (device.empty()) return std::nullopt;
    const auto candidates = [&] { return plan::candidatesOf(kernelMod, selection); };
    return tuned.find(tunedKey(device, mod, selection.options, shapeClass), candidates);
  };
  const Context context{mod, findTile, maxWork};
  Expected<Settled> settled =
      settleFor(context, *derivedMod, operands, outputs, *kernel, options.buildBlockMask, mayDecode, lists);
  if (settled && mustDecode && !options.decode)
    settled->preparation.whyKind = "only decode kernels take head dims above 256";
  if (!settled) return settled;
  Preparation& preparation = settled->preparation;
  if (preparation.blockMask) {
    KernelOptions builder = preparation.kernel.options();
    builder.columnLists = training;
    ATTNC_TRY_AS(complete, withArch(blockMaskOptions(builder)));
    ATTNC_TRY_AS(ofMask, derived(mod, *complete));
    ATTNC_TRY_AS(plan, planned(mod, *std::move(ofMask), *complete, maxWork));
    preparation.blockMaskKernel = *std::move(plan);
  }
  if (!training) return settled;
  // Both passes use one mask.
  if (preparation.blockMask) backward->blockSparse = backward->listsOfWholeMod = true;
  ATTNC_TRY(
      settleBackward(context, *gradientMod, *training, *backward, options.backwardTile, byBoxes.passedOver, *settled));
  return settled;
}

Expected<Preparation> Compiler::settle(const Mod& mod, const Operands& operands, const Outputs& outputs,
                                       const PrepareOptions& options) const {
  // With an arch, no driver is opened.
  const auto lookup = options.arch.empty() ? Impl::Lookup::Device : Impl::Lookup::Named;
  ATTNC_TRY_AS(settled, impl->settle(mod, operands, outputs, options, lookup));
  return std::move(settled->preparation);
}

Expected<Preparation> Compiler::settleTraining(const Mod& mod, const BackwardOperands& operands, const Outputs& outputs,
                                               const BackwardOutputs& gradients, const PrepareOptions& options) const {
  const Training training{operands, gradients};
  const auto lookup =
      options.arch.empty() ? Impl::Lookup::Device : Impl::Lookup::Named; // with an arch, no driver is opened
  ATTNC_TRY_AS(settled, impl->settle(mod, operands, outputs, options, lookup, &training));
  return std::move(settled->preparation);
}

} // namespace attnc
