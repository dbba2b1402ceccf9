#include "families/capture_gradients.h"

#include "families/backward_delta.h"
#include "families/tangents.h"
#include "ir/bind.h"
#include "support/ceil_div.h"
#include "support/try.h"
#include "templates/params_sm90.cuh"

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/Support/MathExtras.h>

#include <algorithm>

namespace attnc::plan {
namespace {

static_assert(kMaxCaptureSums == ir::kMaxCaptures);

size_t captureSumBytes(const LaunchOperands& operands) {
  size_t bytes = 0;
  for (const CaptureOutput& capture : operands.captureOutputs)
    if (!capture.isDirect) bytes = std::max(bytes, capture.offset + capture.bytes());
  return bytes;
}

CaptureSum sumOf(const CaptureOutput& capture, const WorkspaceView& workspace, bool loopsBatches = false) {
  CaptureSum sum{};
  sum.elements = capture.elements;
  sum.owned = !capture.isOwned ? 0 : loopsBatches ? 1 : 2;
  if (capture.elements > 0)
    sum.slots =
        capture.isDirect ? capture.out.data : static_cast<char*>(workspace.at(Use::CaptureSums)) + capture.offset;
  return sum;
}

CaptureParams captureParams(const LaunchOperands& operands, const WorkspaceView& workspace) {
  CaptureParams p{};
  p.backward = backwardParams(operands, workspace);
  fillCaptureSums(p.sums, operands, workspace);
  p.loops_batches = operands.loopsBatches;
  return p;
}

Expected<ParameterBlock> captureBlock(const Stage&, const LaunchOperands& operands, const Device&,
                                      const WorkspaceView& workspace) {
  return ParameterBlock(captureParams(operands, workspace));
}

Expected<ParameterBlock> captureTangentBlock(const Stage&, const LaunchOperands& operands, const Device&,
                                             const WorkspaceView& workspace) {
  TangentCaptureParams params{tangentParams(operands, workspace), {}};
  fillCaptureSums(params.sums, operands, workspace);
  return ParameterBlock(params);
}

Expected<ParameterBlock> diagonalBlock(const Stage&, const LaunchOperands& operands, const Device&,
                                       const WorkspaceView& workspace) {
  return ParameterBlock(
      DiagonalParams{captureParams(operands, workspace), static_cast<const float*>(workspace.at(Use::DiagonalSums))});
}

CaptureOutputParams outputParams(const CaptureOutput& capture, const WorkspaceView& workspace) {
  CaptureOutputParams p{};
  p.sum = sumOf(capture, workspace);
  p.out = capture.out.data;
  p.element_bits = int(8 * dtypeBytes(capture.out.dtype));
  p.is_bf16 = capture.out.dtype == DType::BF16;
  p.exact = capture.isExact;
  p.rank = capture.out.rank;
  std::copy(capture.out.shape.begin(), capture.out.shape.end(), p.shape);
  std::copy(capture.out.stride.begin(), capture.out.stride.end(), p.stride);
  return p;
}

/// As perQTile(), for one batch entry if a CTA takes all.
int64_t perCaptureTile(const Stage& stage, const LaunchOperands& operands, const Device& device) {
  const int64_t tiles = perQTile(stage, operands, device);
  return operands.loopsBatches ? tiles / operands.problem.batch : tiles;
}

/// One CTA per `threads` diagonals of each (batch, head).
int64_t perDiagonal(const Stage& stage, const LaunchOperands& operands, const Device&) {
  const ProblemShape& problem = operands.problem;
  if (problem.qLen == 0 || problem.kvLen == 0) return 0;
  return problem.batch * problem.qHeads * ceilDiv(problem.qLen + problem.kvLen, stage.threads);
}

/// One CTA per `threads` elements of a capture whose sums are not kept in its gradient.
int64_t perElement(const Stage& stage, const CaptureOutput& capture) {
  return capture.isDirect ? 0 : ceilDiv(capture.elements, stage.threads);
}

/// Mirrors `Memory` of templates/algo/backward_tiles_mma.cuh, and `scratch` of templates/backward_captures.cu.
codegen::Config captureConfig(const Request& request) {
  const KernelOptions& options = request.options;
  const int widest = std::max(options.headDim, options.headDimV);
  const bool isF32 = options.dtype == DType::F32;
  const int warps = isF32 && widest > 64 ? 2 : 4, rows = 16 * warps;
  const int bytes = paddedRowBytes(options);
  const auto scratchBytes = [&](int step) { return 4 * warps * (step + 16); };
  int step = widest <= 64 ? 64 : isF32 ? 16 : widest <= 128 ? 64 : 32;
  if ((rows + step) * bytes + scratchBytes(step) > request.arch.sharedBytesPerCta()) step = 16;
  codegen::Config config = configOf(options, {rows, step, warps});
  config.sharedBytes = (rows + step) * bytes;
  return config;
}

bool isDense(const TensorView& tensor) {
  int64_t step = 1;
  for (int axis = tensor.rank; axis-- > 0;) {
    if (tensor.shape[axis] > 1 && tensor.stride[axis] != step) return false;
    step *= tensor.shape[axis];
  }
  return true;
}

std::string describe(const TensorView& tensor) {
  return fmt::format("{} [{}]", dtypeName(tensor.dtype),
                     fmt::join(tensor.shape.begin(), tensor.shape.begin() + tensor.rank, ", "));
}

/// Checks and returns the tensor that receives the gradient of a capture. `like`: the capture.
Expected<TensorView> outputOf(const std::string& name, const TensorView& like, const Captures* outputs, bool launches) {
  const auto wrong = [&](const std::string& observed, const std::string& expected) {
    return Error::environment(fmt::format("the gradient of {} {}, expected {}", name, observed, expected));
  };
  const Captures::Item* given = outputs ? outputs->find(name) : nullptr;
  if (!given) {
    if (launches) return wrong("is not given", "a tensor of this name in BackwardOutputs::captures");
    TensorView assumed = like;
    assumed.dtype = DType::BF16;
    return assumed;
  }
  const auto* tensor = std::get_if<TensorView>(given);
  if (!tensor) return wrong("is a number", "a tensor");
  const bool isAlike = tensor->rank == like.rank &&
                       std::equal(like.shape.begin(), like.shape.begin() + like.rank, tensor->shape.begin());
  if (!isAlike || (tensor->dtype != DType::F32 && tensor->dtype != like.dtype))
    return wrong("is " + describe(*tensor), describe(like) + (like.dtype == DType::F32 ? "" : ", or of f32"));
  ATTNC_TRY(checkDistinct("the gradient of " + name, *tensor));
  if (launches) ATTNC_TRY(checkAddress("the gradient of " + name, *tensor));
  return *tensor;
}

} // namespace

size_t CaptureOutput::bytes() const { return size_t(elements) * (isExact ? 8 * kExactWords : sizeof(float)); }

void fillCaptureSums(CaptureSum* sums, const LaunchOperands& operands, const WorkspaceView& workspace) {
  for (const CaptureOutput& capture : operands.captureOutputs)
    *sums++ = sumOf(capture, workspace, operands.loopsBatches || capture.inColumns);
}

/// Adds the stage for the gradients of what sink_mod reads.
static void addSinks(Plan& plan, const Request& request) {
  constexpr int kRows = 256;
  plan.stages.push_back(
      {.templateName = "backward_sinks.cu",
       .entry = "attnc_backward_sinks",
       .config = configOf(request.options, {kRows, 0, kRows / 32}),
       .callsGradients = true,
       .forCaptures = true,
       .threads = kRows,
       .ctas = perQTile,
       .parameters = request.options.features.has(Feature::Tangents) ? captureTangentBlock : captureBlock});
  plan.stages.back().config.deterministic = request.options.features.has(Feature::Deterministic);
}

void addSharedStages(Plan& plan, const Request& request, Family family) {
  if (request.options.kind != KernelKind::Backward) return;
  const bool hasTangents = request.options.features.has(Feature::Tangents),
             isNaive = family == Family::Naive || hasTangents;
  if (!isNaive) addLargeRows(plan, request);
  plan.captures = request.mod->captures;
  if (!plan.captures.empty())
    plan.workspace.push_back(
        {.use = Use::CaptureSums, .bytes = captureSumBytes, .zeroed = WorkspaceUse::Zeroed::EveryLaunch});
  const bool needsScores = llvm::any_of(plan.captures, [](const auto&capture) { return capture.needsScores(); }),
             needsSinks = llvm::any_of(plan.captures, [](const auto&capture) { return capture.inSink; });
  const KernelOptions& options = request.options;
  if (!isNaive && (needsScores || needsSinks)) addDelta(plan, request).forCaptures = true;
  if (needsSinks) addSinks(plan, request);
  if (!needsScores) return;
  Stage sums{.templateName = request.mod->facts.hasProbWeight ? "backward_prob.cu"
                             : isNaive                        ? "backward_captures_naive.cu"
                                                              : "backward_captures.cu",
             .entry = "attnc_backward_captures",
             .config = isNaive ? configOf(options, {8, 8, 8}) : captureConfig(request),
             .callsGradients = true,
             .forCaptures = true,
             .ctas = isNaive ? perQRow : perCaptureTile,
             .parameters = captureBlock};
  if (hasTangents) {
    sums.templateName = "tangents_captures_naive.cu";
    sums.entry = "attnc_tangent_captures";
    sums.parameters = captureTangentBlock;
  } else if (sumsDiagonals(plan)) {
    sums.templateName = "backward_diagonals.cu";
    sums.entry = "attnc_backward_diagonals";
    sums.config = configOf(options, {0, 0, 4});
    sums.ctas = perDiagonal;
    sums.parameters = diagonalBlock;
  }
  // No row shifts: the derivatives may count positions by themselves, and these must then begin at 0.
  if (!isNaive) sums.algebra = {.scale = algebraFor(options.dtype).scale};
  sums.threads = 32 * sums.config.warps;
  sums.config.deterministic = options.features.has(Feature::Deterministic);
  plan.stages.push_back(std::move(sums));
}

void addCaptureOutputStages(Plan& plan) {
  for (size_t i = 0; i < plan.captures.size(); ++i) {
    Stage out{.templateName = "backward_captures_out.cu",
              .entry = "attnc_backward_captures_out",
              .config = configOf(plan.options, {0, 0, 4}),
              .forCaptures = true,
              .threads = 128,
              .ctas = [i](const Stage& stage, const LaunchOperands& operands,
                          const Device&) { return perElement(stage, operands.captureOutputs[i]); },
              .parameters = [i](const Stage&, const LaunchOperands& operands, const Device&,
                                const WorkspaceView& workspace) -> Expected<ParameterBlock> {
                return ParameterBlock(outputParams(operands.captureOutputs[i], workspace));
              }};
    plan.stages.push_back(std::move(out));
  }
}

Status addCaptureOutputs(LaunchOperands& operands, const Plan& plan, const ir::Module& module, const Captures* captures,
                         const Captures* outputs, bool launches) {
  if (plan.captures.empty()) return {};
  static const Captures kNone;
  ATTNC_TRY_AS(bindings, ir::bind(module, captures ? *captures : kNone, operands.problem, &operands));
  size_t end = 0;
  for (const CaptureAccess& access : plan.captures) {
    const auto tensor = llvm::find_if(module.tensors, [&](const auto& t) { return t.name == access.name; });
    const TensorView like =
        tensor == module.tensors.end() ? TensorView() : bindings->tensors[size_t(tensor - module.tensors.begin())];
    ATTNC_TRY_AS(out, outputOf(access.name, like, outputs, launches));
    CaptureOutput capture{.out = *out, .elements = out->elements()};
    capture.inColumns = access.inColumns;
    if (access.inSink) {
      capture.isOwned = false; // two stages may add to an element
    } else if (access.inColumns) {
      capture.isOwned = access.places.size() == 1 && access.places[0].once;
    } else if (access.places.size() == 1) {
      const analysis::GradientAccess& place = access.places[0];
      const bool ofBatches = place.oneBatch && operands.problem.batch > 1; // batch entries share elements
      // batch entries of different lengths differ in their tiles
      constexpr Features kOthers{Feature::Ragged, Feature::Lengths, Feature::Tangents};
      const bool mayLoop = plan.options.family != Family::Naive && (plan.options.features & kOthers).empty();
      capture.isOwned = place.once && (!ofBatches || mayLoop) && (!place.oneHead || operands.problem.qHeads <= 1);
      operands.loopsBatches |= capture.isOwned && ofBatches;
    }
    capture.isExact = plan.options.features.has(Feature::Deterministic) && !capture.isOwned;
    capture.isDirect = !capture.isExact && out->dtype == DType::F32 && isDense(*out);
    if (!capture.isDirect) {
      capture.offset = size_t(llvm::alignTo(end, kWorkspaceAlignment));
      end = capture.offset + capture.bytes();
    }
    operands.captureOutputs.push_back(capture);
  }
  return {};
}

} // namespace attnc::plan
