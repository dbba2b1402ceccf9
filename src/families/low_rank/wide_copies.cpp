#include "families/low_rank/wide_copies.h"

#include "families/capture_gradients.h"
#include "launch/tensor_maps.h"
#include "support/ceil_div.h"

#include <llvm/ADT/STLExtras.h>

#include <array>
#include <cmath>
#include <utility>

namespace attnc::plan {
namespace {

using analysis::LowRankTerm;

constexpr int kRowsOfTile = 64;

/// Returns the scale of the wider product. Factors are divided by it, so it is not tiny. Where the scale is, products
/// of q and k below 2^24 err by less than 2^-24.
float wideScaleOf(float scale) {
  constexpr float kLeast = 0x1p-48f;
  return std::fabs(scale) < kLeast ? std::copysign(kLeast, scale) : scale;
}

/// Returns what a number of bf16 for a row is multiplied by, in a part of the term: its gain divided by the scale.
double quotientOf(llvm::ArrayRef<LowRankTerm::Gain> gains, const LaunchOperands& operands) {
  double quotient = 1 / double(wideScaleOf(*operands.scale));
  for (const LowRankTerm::Gain& gain : gains) {
    const double value = gain.scalar ? operands.bindings->scalars[*gain.scalar].real : gain.constant;
    quotient = gain.divides ? quotient / value : quotient * value;
  }
  return quotient;
}

constexpr double kRounding = 0x1p-40; // of quotients

/// Whether each number of bf16 for a row, times its gain and divided by the scale, is a number of bf16: the quotient is
/// a power of two.
bool dividesExactly(const LowRankTerm& term, const LaunchOperands& operands) {
  if (!operands.bindings || !operands.scale) return false;
  return llvm::all_of(*term.gains, [&](const auto& gains) {
    int exponent = 0;
    const double mantissa = std::fabs(std::frexp(quotientOf(gains, operands), &exponent));
    return std::fabs(mantissa - 0.5) < kRounding && std::abs(exponent) <= 64;
  });
}

/// A launch's wider tensors. Factors that depend on the batch entry or on the query head make copies of k for each. The
/// sequences of a ragged batch are in one entry.
struct WideShapes {
  int64_t qBatch, kBatch, kHeads, vBatch;
  int64_t qRows, kRows; ///< of a head
  bool spreadsV;        ///< whether v is also copied: heads of k and v are counted alike
  bool spreadsDv;       ///< whether dV has heads or batch entries that v does not have

  WideShapes(const LaunchOperands& operands, const analysis::LowRankTerm& term, bool areApart) {
    const ProblemShape& problem = operands.problem;
    qRows = rowsOfQ(operands), kRows = rowsOfKv(operands);
    qBatch = operands.cuSeqlensQ ? 1 : problem.batch;
    kBatch = term.kvPerBatch ? qBatch : areApart ? std::min<int64_t>(1, problem.batch) : operands.k.shape[0];
    kHeads = term.kvPerHead ? problem.qHeads : areApart ? std::min<int64_t>(1, problem.qHeads) : problem.kvHeads;
    vBatch = operands.v.shape[0];
    spreadsV = !areApart && kHeads != problem.kvHeads;
    spreadsDv = spreadsV || kBatch != vBatch;
  }
};

WideShapes shapesOf(const WideCopies& copies, const LaunchOperands& operands) {
  return {operands, copies.term, copies.config.isApart};
}

} // namespace

bool WideCopies::haveGradients() const {
  return llvm::any_of(captures, [](const CaptureAccess& capture) { return capture.inColumns; });
}

std::optional<TensorView> WideCopies::capturedColumns(bool areOfQ, const LaunchOperands& operands) const {
  const auto& elements = areOfQ ? term.qElements : term.kvElements;
  if (!mayBeCaptured() || !elements || !operands.bindings || (areOfQ && !term.gains)) return std::nullopt;
  if (operands.cuSeqlensQ) return std::nullopt; // it has rows of positions
  for (size_t i = 0; areOfQ && i < term.parts.size(); ++i)
    if (term.parts[i].isNegative || !(std::fabs(quotientOf((*term.gains)[i], operands) - 1) < kRounding))
      return std::nullopt;
  const TensorView& tensor = operands.bindings->tensors[elements->tensor];
  TensorView view = TensorView::contiguous(tensor.data, tensor.dtype, {1, 1, 1, 1});
  const auto put = [&](size_t to, std::optional<unsigned> axis) {
    if (axis) view.shape[to] = tensor.shape[*axis], view.stride[to] = tensor.stride[*axis];
  };
  put(0, elements->batch), put(1, elements->head), put(2, elements->row);
  for (size_t axis : {0, 1})
    if (!view.stride[axis]) view.shape[axis] = std::min<int64_t>(1, view.shape[axis]); // shared by all
  view.shape[3] = term.rank;
  int64_t first = 0;
  for (auto [axis, index] : elements->first) {
    if (index + (axis == elements->rank ? term.rank : 1) > tensor.shape[axis]) return std::nullopt; // it is clamped
    first += tensor.stride[axis] * index;
  }
  view.data = static_cast<char*>(tensor.data) + first * dtypeBytes(tensor.dtype);
  if (tensor.stride[*elements->rank] != 1 || !checkMappable("", view)) return std::nullopt;
  return view;
}

bool WideCopies::run(const LaunchOperands& operands) const {
  return when == When::Always || dividesExactly(term, operands) == (when == When::Exact);
}

size_t WideCopies::bytes(Use use, const LaunchOperands& operands) const {
  const WideShapes shapes = shapesOf(*this, operands);
  const auto bytesOf = [](int64_t batch, int64_t heads, int64_t rows, int64_t columns) {
    return size_t(batch * heads * rows * columns) * 2;
  };
  if (use == Use::WideQ) return bytesOf(shapes.qBatch, operands.problem.qHeads, shapes.qRows, columns());
  const size_t ofK = bytesOf(shapes.kBatch, shapes.kHeads, shapes.kRows, columns());
  if (use == Use::WideK) return ofK;
  if (use == Use::WideV)
    return shapes.spreadsV ? bytesOf(shapes.vBatch, shapes.kHeads, shapes.kRows, operands.v.shape[3]) : 0;
  if (!isBackward) return 0;
  if (use == Use::WideDq) return bytes(Use::WideQ, operands);
  if (use == Use::WideDk) return ofK;
  // A launch may want no dV. Its memory is the same whether it does.
  return shapes.spreadsDv || haveGradients() ? bytesOf(shapes.kBatch, shapes.kHeads, shapes.kRows, operands.v.shape[3])
                                             : 0;
}

bool WideCopies::widensDv(const LaunchOperands& operands) const {
  return !operands.wantsOperands || shapesOf(*this, operands).spreadsDv;
}

LaunchOperands WideCopies::widened(const LaunchOperands& operands, const WorkspaceView* workspace) const {
  const WideShapes shapes = shapesOf(*this, operands);
  LaunchOperands wide = operands;
  wide.wide = nullptr;
  if (operands.scale) wide.scale = wideScaleOf(*operands.scale);
  const auto put = [&](TensorView& tensor, Use use, std::array<int64_t, 4> shape) {
    tensor = TensorView::contiguous(workspace ? workspace->at(use) : nullptr, operands.q.dtype,
                                    {shape[0], shape[1], shape[2], shape[3]});
  };
  const std::array<int64_t, 4> shapeQ{shapes.qBatch, operands.problem.qHeads, shapes.qRows, columns()},
      shapeK{shapes.kBatch, shapes.kHeads, shapes.kRows, columns()};
  if (config.isApart) {
    auto& [q, k] = wide.columns.emplace();
    put(q, Use::WideQ, shapeQ), put(k, Use::WideK, shapeK);
    if (auto captured = capturedColumns(true, operands)) q = *captured;
    if (auto captured = capturedColumns(false, operands)) k = *captured;
    return wide;
  }
  put(wide.q, Use::WideQ, shapeQ);
  put(wide.k, Use::WideK, shapeK);
  if (isBackward && (operands.wantsOperands || haveGradients())) {
    put(wide.dQ, Use::WideDq, shapeQ);
    put(wide.dK, Use::WideDk, shapeK);
    if (widensDv(operands))
      put(wide.dV, Use::WideDv, {shapes.kBatch, shapes.kHeads, shapes.kRows, operands.v.shape[3]});
  }
  if (shapes.spreadsV) put(wide.v, Use::WideV, {shapes.vBatch, shapes.kHeads, shapes.kRows, operands.v.shape[3]});
  wide.problem.kvHeads = shapes.kHeads;
  return wide;
}

namespace {

/// Returns the tiles of rows of k of one head, of `batch` entries; for a ragged batch, the slots.
int64_t kTilesOf(const LaunchOperands& operands, int64_t batch) {
  return operands.cuSeqlensQ ? kvTilesOf(operands, kRowsOfTile) : ceilDiv(rowsOfKv(operands), kRowsOfTile) * batch;
}

int64_t copiedTiles(const LaunchOperands& operands, const WideCopies& copies) {
  const WideShapes shapes = shapesOf(copies, operands);
  int64_t tiles = shapes.spreadsV ? ceilDiv(shapes.kRows, kRowsOfTile) * shapes.kHeads * shapes.vBatch : 0;
  if (!copies.capturedColumns(true, operands)) tiles += qTilesOf(operands, kRowsOfTile) * operands.problem.qHeads;
  if (!copies.capturedColumns(false, operands)) tiles += kTilesOf(operands, shapes.kBatch) * shapes.kHeads;
  return tiles;
}

LowRankParams parametersOf(const WideCopies& copies, const LaunchOperands& operands, const WorkspaceView& workspace) {
  const WideShapes shapes = shapesOf(copies, operands);
  LowRankParams params{};
  params.base = forwardParams(operands);
  if (!copies.capturedColumns(true, operands)) params.q = workspace.at(Use::WideQ);
  if (!copies.capturedColumns(false, operands)) params.k = workspace.at(Use::WideK);
  params.v = workspace.at(Use::WideV);
  params.k_batch = int(shapes.kBatch);
  params.v_batch = int(shapes.vBatch);
  params.k_heads = int(shapes.kHeads);
  params.factor_times = 1 / wideScaleOf(*operands.scale);
  return params;
}

/// What a thread of low_rank_gradients.cu takes in turn: factors that are the same for all of these.
struct Together {
  int64_t qBatches = 1, qHeads = 1, kvBatches = 1, kvHeads = 1;

  Together(const WideCopies& copies, const LaunchOperands& operands) {
    const WideShapes shapes = shapesOf(copies, operands);
    const ProblemShape& problem = operands.problem;
    for (const CaptureAccess& capture : copies.captures)
      for (const analysis::GradientAccess& place : capture.places) {
        if (!capture.inColumns) continue;
        const bool isOfQ = place.reach == analysis::Reach::Row;
        int64_t &batches = isOfQ ? qBatches : kvBatches, &heads = isOfQ ? qHeads : kvHeads;
        if (place.oneBatch) batches = std::max<int64_t>(1, isOfQ ? shapes.qBatch : shapes.kBatch);
        if (place.oneHead) heads = std::max<int64_t>(1, isOfQ ? problem.qHeads : shapes.kHeads);
      }
  }
};

int64_t dividedTiles(const LaunchOperands& operands, const WideCopies& copies) {
  const WideShapes shapes = shapesOf(copies, operands);
  const ProblemShape& problem = operands.problem;
  const int64_t ofQ = qTilesOf(operands, kRowsOfTile);
  int64_t tiles = 0;
  if (operands.wantsOperands) tiles += ofQ * problem.qHeads + kTilesOf(operands, operands.k.shape[0]) * problem.kvHeads;
  if (copies.haveGradients()) {
    const Together together(copies, operands);
    tiles += ofQ / together.qBatches * (problem.qHeads / together.qHeads) +
             kTilesOf(operands, shapes.kBatch / together.kvBatches) * (shapes.kHeads / together.kvHeads);
  }
  return tiles;
}

LowRankGradientParams gradientParametersOf(const WideCopies& copies, const LaunchOperands& operands,
                                           const WorkspaceView& workspace) {
  const WideShapes shapes = shapesOf(copies, operands);
  const Together together(copies, operands);
  LowRankGradientParams params{};
  params.backward = backwardParams(operands);
  if (!operands.wantsOperands) params.backward.d_q = params.backward.d_k = nullptr;
  params.d_q = workspace.at(Use::WideDq);
  params.d_k = workspace.at(Use::WideDk);
  if (copies.widensDv(operands)) params.d_v = workspace.at(Use::WideDv);
  params.k_batch = int(shapes.kBatch);
  params.k_heads = int(shapes.kHeads);
  const float scale = *operands.scale, wide = wideScaleOf(scale);
  params.own_times = std::fabs(scale) < std::fabs(wide) ? scale / wide : 1;
  params.factor_times = 1 / wide;
  params.q_batches = int(together.qBatches), params.q_heads = int(together.qHeads);
  params.kv_batches = int(together.kvBatches), params.kv_heads = int(together.kvHeads);
  fillCaptureSums(params.sums, operands, workspace);
  return params;
}

} // namespace

void widen(Plan& plan, const std::shared_ptr<const WideCopies>& copies) {
  for (Stage& stage : plan.stages) {
    if (copies->config.wideHeadDim) stage.algebra.lowRank = passes::Algebra::LowRank::Left;
    if (copies->config.isApart && stage.config.narrowHeadDim) stage.config.narrowHeadDim = copies->headDim;
    stage.forCaptures = stage.forCaptures || copies->haveGradients();
    stage.ctas = [copies, inner = std::move(stage.ctas)](const Stage& of, const LaunchOperands& operands,
                                                         const Device& device) -> int64_t {
      if (!copies->run(operands)) return 0;
      return copies->withWidened(operands, nullptr, [&](const auto& wide) { return inner(of, wide, device); });
    };
    stage.tiles = [copies, inner = std::move(stage.tiles)](const Stage& of,
                                                           const LaunchOperands& operands) -> uint64_t {
      if (!copies->run(operands)) return 0;
      return copies->withWidened(operands, nullptr, [&](const auto& wide) { return inner(of, wide); });
    };
    stage.parameters = [copies, inner = std::move(stage.parameters)](const Stage& of, const LaunchOperands& operands,
                                                                     const Device& device,
                                                                     const WorkspaceView& workspace) {
      return copies->withWidened(operands, &workspace,
                                 [&](const auto& wide) { return inner(of, wide, device, workspace); });
    };
  }
}

Stage copyingStage(const KernelOptions& options, const std::shared_ptr<const WideCopies>& copies) {
  constexpr int kWarps = 8;
  codegen::Config config = configOf(options, {kRowsOfTile, 0, kWarps});
  config.lowRank = copies->config;
  return {.templateName = "low_rank.cu",
          .entry = "attnc_low_rank",
          .config = std::move(config),
          .algebra = {.kvBounds = false, .lowRank = passes::Algebra::LowRank::Factors},
          .forCaptures = !copies->captures.empty(),
          .threads = 32 * kWarps,
          .ctas = [copies](const Stage&, const LaunchOperands& operands, const Device&) -> int64_t {
            return copies->run(operands) ? copiedTiles(operands, *copies) : 0;
          },
          .tiles = [copies](const Stage&, const LaunchOperands& operands) -> uint64_t {
            return copies->run(operands) ? uint64_t(copiedTiles(operands, *copies)) : 0;
          },
          .parameters = [copies](const Stage&, const LaunchOperands& operands, const Device&,
                                 const WorkspaceView& workspace) -> Expected<ParameterBlock> {
            return ParameterBlock(parametersOf(*copies, operands, workspace));
          }};
}

Stage dividingStage(const KernelOptions& options, const std::shared_ptr<const WideCopies>& copies) {
  constexpr int kWarps = 8;
  codegen::Config config = configOf(options, {kRowsOfTile, 0, kWarps});
  config.lowRank = copies->config;
  config.lowRank->sumsFactors = copies->haveGradients();
  config.deterministic = options.features.has(Feature::Deterministic);
  return {.templateName = "low_rank_gradients.cu",
          .entry = "attnc_low_rank_gradients",
          .config = std::move(config),
          .algebra = {.kvBounds = false, .lowRank = passes::Algebra::LowRank::Factors},
          .callsGradients = copies->haveGradients(),
          .forCaptures = copies->haveGradients(),
          .threads = 32 * kWarps,
          .ctas = [copies](const Stage&, const LaunchOperands& operands, const Device&) -> int64_t {
            return copies->run(operands) ? dividedTiles(operands, *copies) : 0;
          },
          .tiles = [copies](const Stage&, const LaunchOperands& operands) -> uint64_t {
            return copies->run(operands) ? uint64_t(dividedTiles(operands, *copies)) : 0;
          },
          .parameters = [copies](const Stage&, const LaunchOperands& operands, const Device&,
                                 const WorkspaceView& workspace) -> Expected<ParameterBlock> {
            return ParameterBlock(gradientParametersOf(*copies, operands, workspace));
          }};
}

} // namespace attnc::plan
