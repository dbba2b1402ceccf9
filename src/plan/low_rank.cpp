#include "plan/low_rank.h"

#include "plan/capture_gradients.h"
#include "plan/tensor_maps.h"
#include "support/ceil_div.h"

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/Support/MathExtras.h>

#include <cmath>
#include <utility>

namespace attnc::plan {
namespace {

using analysis::LowRankTerm;

/// Returns the least rank from which columns gain, as measured; backward kernels with gradients of the factors.
int64_t leastRank(KernelKind kind) { return kind == KernelKind::Forward ? 4 : 8; }

constexpr int64_t kMostRank = 64;
constexpr int kMostWideHeadDim = 256;
constexpr int kRowsOfTile = 64;

/// Returns the columns of a round: templates/low_rank.cu.
int columnsOfRound(int qPieces, int kvPieces) {
  const int pieces = std::max(qPieces, kvPieces);
  int all = 0;
  for (int j = 0; j < kvPieces; ++j) all += std::min(qPieces, pieces - j);
  return all;
}

/// The pieces of both factors, and what their products err by: KernelOptions::lowRankError.
struct Pieces {
  int q, kv;
  double error;
};

constexpr double kF32Error = 0x1p-22; // of three roundings: of a factor, of 1 / scale, of their product

/// Returns the error of pieces. For |x| in [2^e, 2^(e+1)), the first is off by at most 2^(e-8), where |x| is 257 times
/// that; the second is this rest rounded, and off by half its unit, 2^(e-17). Three hold the 24 bits of f32. Products
/// that have no column add the sizes of their pieces.
double errorOf(int qPieces, bool qIsBf16, int kvPieces, bool kvIsBf16) {
  constexpr double kMissing[] = {1. / 257, 0x1p-17, 0}, kSize[] = {1, 0x1p-8, 0x1p-17};
  if (qIsBf16 && kvIsBf16) return 0;
  const double q = qIsBf16 ? 0 : kMissing[qPieces - 1], kv = kvIsBf16 ? 0 : kMissing[kvPieces - 1];
  double error = q + kv + q * kv + kF32Error;
  for (int i = 1; i < qPieces; ++i)
    for (int j = 1; j < kvPieces; ++j)
      if (i + j >= std::max(qPieces, kvPieces)) error += kSize[i] * kSize[j];
  return error;
}

/// Returns the pieces with the fewest columns whose error is at most `most`. Unset if none are so exact.
std::optional<Pieces> fewestPieces(bool qIsBf16, bool kvIsBf16, double most) {
  std::optional<Pieces> fewest;
  for (int q = 1; q <= (qIsBf16 ? 1 : 3); ++q)
    for (int kv = 1; kv <= (kvIsBf16 ? 1 : 3); ++kv) {
      const double error = errorOf(q, qIsBf16, kv, kvIsBf16);
      if (error <= most && (!fewest || columnsOfRound(q, kv) < columnsOfRound(fewest->q, fewest->kv)))
        fewest = {q, kv, error};
    }
  return fewest;
}

constexpr double kErrors[] = {2 * kF32Error, 0x1p-16, 0x1p-14, 0x1p-8, 0x1p-7}; // that pieces keep

/// Returns the most that a term may err by.
double mostError(const LowRankTerm& term, const KernelOptions& options) {
  if (options.lowRankError > 0) return double(options.lowRankError);
  return term.qIsBf16 ? 0x1p-14 : 2 * kF32Error;
}

std::string errorText(double error) {
  if (error == 0) return "exact";
  if (error <= 2 * kF32Error) return "as exact as f32";
  return fmt::format("to 2^{}", int(std::ceil(std::log2(error))));
}

codegen::Config::LowRank columnsFor(const LowRankTerm& term, int headDim, const Pieces& pieces, bool isApart) {
  const int64_t columns = headDim + term.rank * columnsOfRound(pieces.q, pieces.kv);
  return {int(llvm::alignTo(uint64_t(columns), 16)), int(term.rank), pieces.q, pieces.kv, isApart};
}

/// Whether a family's kernels take further columns from tensors of their own. The copy engine loads 64 at a time.
bool areApart(const Request& request, const FamilyRow& row) {
  return request.options.kind == KernelKind::Forward && row.family == Family::Sm90 && request.options.headDim % 64 == 0;
}

/// Returns why a mod with a term is computed as it is. Empty if nothing speaks against columns of q and k.
std::string againstColumns(const LowRankTerm& term, const Request& request, const FamilyRow& row) {
  const KernelOptions& options = request.options;
  constexpr Features kTaken{Feature::Lengths, Feature::Offsets,   Feature::BlockMask,
                            Feature::RowMax,  Feature::Gradients, Feature::Deterministic};
  if (options.kind != KernelKind::Forward && options.kind != KernelKind::Backward)
    return fmt::format("{} kernels compute it", kindName(options.kind));
  if (row.family != Family::Sm90 && row.family != Family::Sm80)
    return fmt::format("family {} computes it", familyName(row.family));
  if (const Features others = featuresOf(options).without(kTaken); !others.empty())
    return fmt::format("columns of q and k go with no {}", featureText(others.first()));
  if (options.dtype != DType::BF16)
    return fmt::format("the range of {} may not hold the factors", dtypeName(options.dtype));
  if (const int64_t least = leastRank(options.kind); term.rank < least)
    return fmt::format("rank {}, and columns gain from {}", term.rank, least);
  if (term.rank > kMostRank) return fmt::format("rank {}, and columns are for at most {}", term.rank, kMostRank);
  return {};
}

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

/// A launch's wider tensors. Factors that depend on the batch entry or on the query head make copies of k for each.
struct WideShapes {
  int64_t kBatch, kHeads, vBatch;
  bool spreadsV;  ///< whether v is also copied: heads of k and v are counted alike
  bool spreadsDv; ///< whether dV has heads or batch entries that v does not have

  WideShapes(const LaunchOperands& operands, const LowRankTerm& term, bool areApart) {
    const ProblemShape& problem = operands.problem;
    kBatch = term.kvPerBatch ? problem.batch : areApart ? std::min<int64_t>(1, problem.batch) : operands.k.shape[0];
    kHeads = term.kvPerHead ? problem.qHeads : areApart ? std::min<int64_t>(1, problem.qHeads) : problem.kvHeads;
    vBatch = operands.v.shape[0];
    spreadsV = !areApart && kHeads != problem.kvHeads;
    spreadsDv = spreadsV || kBatch != vBatch;
  }
};

/// The further columns of q and k that the stages of a form take, with q and k in front or apart: what their functions
/// need.
struct WideCopies {
  enum class When { Always, Exact, NotExact };
  LowRankTerm term;
  codegen::Config::LowRank config;
  int headDim; ///< of q and k as given
  When when;
  bool isBackward;
  std::vector<CaptureAccess> captures; ///< of the plan with these columns

  /// Whether columns have the gradient of a capture.
  bool haveGradients() const {
    return llvm::any_of(captures, [](const CaptureAccess& capture) { return capture.inColumns; });
  }

  WideShapes shapesOf(const LaunchOperands& operands) const { return {operands, term, config.isApart}; }

  /// Returns the columns of a row that is written.
  int64_t columns() const { return config.isApart ? config.wideHeadDim - headDim : config.wideHeadDim; }

  /// Whether elements of captures can be the columns.
  bool mayBeCaptured() const { return config.isApart && config.qPieces == 1 && config.kvPieces == 1; }

  /// Returns the elements of a capture that are the further columns of q, or of k. Unset if these have to be written.
  std::optional<TensorView> capturedColumns(bool areOfQ, const LaunchOperands& operands) const {
    const auto& elements = areOfQ ? term.qElements : term.kvElements;
    if (!mayBeCaptured() || !elements || !operands.bindings || (areOfQ && !term.gains)) return std::nullopt;
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

  /// Whether a launch runs this form.
  bool run(const LaunchOperands& operands) const {
    return when == When::Always || dividesExactly(term, operands) == (when == When::Exact);
  }

  size_t bytes(Use use, const LaunchOperands& operands) const {
    const WideShapes shapes = shapesOf(operands);
    const ProblemShape& problem = operands.problem;
    const auto bytesOf = [](int64_t batch, int64_t heads, int64_t rows, int64_t columns) {
      return size_t(batch * heads * rows * columns) * 2;
    };
    if (use == Use::WideQ) return bytesOf(problem.batch, problem.qHeads, problem.qLen, columns());
    const size_t ofK = bytesOf(shapes.kBatch, shapes.kHeads, problem.kvLen, columns());
    if (use == Use::WideK) return ofK;
    if (use == Use::WideV)
      return shapes.spreadsV ? bytesOf(shapes.vBatch, shapes.kHeads, problem.kvLen, operands.v.shape[3]) : 0;
    if (!isBackward) return 0;
    if (use == Use::WideDq) return bytes(Use::WideQ, operands);
    if (use == Use::WideDk) return ofK;
    // A launch may want no dV. Its memory is the same whether it does.
    return shapes.spreadsDv || haveGradients()
               ? bytesOf(shapes.kBatch, shapes.kHeads, problem.kvLen, operands.v.shape[3])
               : 0;
  }

  /// Whether dV goes to Use::WideDv.
  bool widensDv(const LaunchOperands& operands) const {
    return !operands.wantsOperands || shapesOf(operands).spreadsDv;
  }

  /// Returns the operands of the plan's other stages. `workspace`: null if only their shapes matter.
  LaunchOperands widened(const LaunchOperands& operands, const WorkspaceView* workspace) const {
    const WideShapes shapes = shapesOf(operands);
    LaunchOperands wide = operands;
    wide.wide = nullptr;
    if (operands.scale) wide.scale = wideScaleOf(*operands.scale);
    const auto put = [&](TensorView& tensor, Use use, std::array<int64_t, 4> shape) {
      tensor = TensorView::contiguous(workspace ? workspace->at(use) : nullptr, operands.q.dtype,
                                      {shape[0], shape[1], shape[2], shape[3]});
    };
    const ProblemShape& problem = operands.problem;
    const std::array<int64_t, 4> shapeQ{problem.batch, problem.qHeads, problem.qLen, columns()},
        shapeK{shapes.kBatch, shapes.kHeads, problem.kvLen, columns()};
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
        put(wide.dV, Use::WideDv, {shapes.kBatch, shapes.kHeads, problem.kvLen, operands.v.shape[3]});
    }
    if (shapes.spreadsV) put(wide.v, Use::WideV, {shapes.vBatch, shapes.kHeads, problem.kvLen, operands.v.shape[3]});
    wide.problem.kvHeads = shapes.kHeads;
    return wide;
  }

  /// Calls a function of another stage with that stage's operands. `workspace`: null if only their shapes matter.
  template <class Call>
  auto withWidened(const LaunchOperands& operands, const WorkspaceView* workspace, Call call) const {
    if (!config.wideHeadDim) return call(operands);
    if (!operands.wide) return call(widened(operands, workspace));
    return call(operands.wide->of(this, [&] { return widened(operands, operands.wide->workspace()); }));
  }
};

int64_t copiedTiles(const LaunchOperands& operands, const WideCopies& copies) {
  const WideShapes shapes = copies.shapesOf(operands);
  const ProblemShape& problem = operands.problem;
  const int64_t ofRows = ceilDiv(problem.kvLen, kRowsOfTile) * shapes.kHeads;
  int64_t tiles = shapes.spreadsV ? ofRows * shapes.vBatch : 0;
  if (!copies.capturedColumns(true, operands))
    tiles += ceilDiv(problem.qLen, kRowsOfTile) * problem.qHeads * problem.batch;
  if (!copies.capturedColumns(false, operands)) tiles += ofRows * shapes.kBatch;
  return tiles;
}

LowRankParams parametersOf(const WideCopies& copies, const LaunchOperands& operands, const WorkspaceView& workspace) {
  const WideShapes shapes = copies.shapesOf(operands);
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
    const WideShapes shapes = copies.shapesOf(operands);
    const ProblemShape& problem = operands.problem;
    for (const CaptureAccess& capture : copies.captures)
      for (const analysis::GradientAccess& place : capture.places) {
        if (!capture.inColumns) continue;
        const bool isOfQ = place.reach == analysis::Reach::Row;
        int64_t &batches = isOfQ ? qBatches : kvBatches, &heads = isOfQ ? qHeads : kvHeads;
        if (place.oneBatch) batches = std::max<int64_t>(1, isOfQ ? problem.batch : shapes.kBatch);
        if (place.oneHead) heads = std::max<int64_t>(1, isOfQ ? problem.qHeads : shapes.kHeads);
      }
  }
};

int64_t dividedTiles(const LaunchOperands& operands, const WideCopies& copies) {
  const WideShapes shapes = copies.shapesOf(operands);
  const ProblemShape& problem = operands.problem;
  const int64_t ofQ = ceilDiv(problem.qLen, kRowsOfTile), ofK = ceilDiv(problem.kvLen, kRowsOfTile);
  int64_t tiles = 0;
  if (operands.wantsOperands)
    tiles += ofQ * problem.qHeads * problem.batch + ofK * problem.kvHeads * operands.k.shape[0];
  if (copies.haveGradients()) {
    const Together together(copies, operands);
    tiles += ofQ * (problem.qHeads / together.qHeads) * (problem.batch / together.qBatches) +
             ofK * (shapes.kHeads / together.kvHeads) * (shapes.kBatch / together.kvBatches);
  }
  return tiles;
}

LowRankGradientParams gradientParametersOf(const WideCopies& copies, const LaunchOperands& operands,
                                           const WorkspaceView& workspace) {
  const WideShapes shapes = copies.shapesOf(operands);
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

LowRankColumns::Form::Form(const Request& given, const Columns& columns, double error)
    : columns(columns), error(error),
      options(given.options), request{columns.wideHeadDim ? *given.mod.withoutLowRank : given.mod, options,
                                      given.arch} {
  if (columns.wideHeadDim) options.headDim = columns.wideHeadDim;
}

std::string LowRankColumns::againstForm(const Columns& columns, const FamilyRow& row) const {
  if (columns.wideHeadDim > kMostWideHeadDim)
    return fmt::format("q and k would have head dim {}, and kernels take {}", columns.wideHeadDim, kMostWideHeadDim);
  const std::string unserved = row.unserved(Form(given, columns).request);
  if (unserved.empty()) return {};
  return fmt::format("q and k would have head dim {}, and family {} {}", columns.wideHeadDim, familyName(row.family),
                     unserved);
}

std::string LowRankColumns::coarserColumns(const FamilyRow& row, double most) const {
  const LowRankTerm& term = *given.mod.lowRank.term;
  const auto fitting = [&](const Pieces& pieces) {
    const Columns columns = columnsFor(term, given.options.headDim, pieces, areApart(given, row));
    return againstForm(columns, row).empty() ? columns.wideHeadDim : 0;
  };
  std::string text;
  for (double error : kErrors) {
    const int wide = error > most ? fitting(*fewestPieces(false, term.kvIsBf16, error)) : 0;
    if (!wide) continue;
    text = fmt::format("; with lowRankError {:.2g} it can be {}", error, wide);
    break;
  }
  if (const int wide = term.qIsBf16 && term.kvIsBf16 ? 0 : fitting({1, 1, 0}))
    text += fmt::format("{} captures declared bf16 {}{}", text.empty() ? "; with" : ", with",
                        text.empty() ? "it can be " : "", wide);
  return text;
}

LowRankColumns::LowRankColumns(const Request& request, const FamilyRow& row) : given(request) {
  const analysis::LowRank& found = request.mod.lowRank;
  std::string why = found.why;
  if (found.term) {
    const LowRankTerm& term = *found.term;
    why = againstColumns(term, request, row);
    if (why.empty()) {
      const int headDim = request.options.headDim;
      const bool isApart = areApart(request, row), isBf16 = term.kvIsBf16;
      const double most = mostError(term, request.options);
      const auto columnsOf = [&](const Pieces& pieces) { return columnsFor(term, headDim, pieces, isApart); };
      // What is divided by the scale is no number of bf16 in general.
      const std::optional<Pieces> any = fewestPieces(false, isBf16, most),
                                  exact = term.gains ? fewestPieces(true, isBf16, most) : std::nullopt;
      const bool areTwo = exact && !(any && any->q == exact->q && any->kv == exact->kv);
      if (areTwo && againstForm(columnsOf(*exact), row).empty()) addForm(columnsOf(*exact), exact->error);
      why = any ? againstForm(columnsOf(*any), row)
                : fmt::format("no columns are within the lowRankError {}", request.options.lowRankError);
      if (why.empty())
        addForm(columnsOf(*any), any->error);
      else if (!forms.empty())
        addForm({}), why.clear();
      else
        why += coarserColumns(row, most);
    }
  }
  if (!why.empty()) text = "not in columns: " + why;
  for (const auto& form : forms) {
    const Columns& columns = form->columns;
    const bool isFirst = form == forms.front();
    if (!columns.wideHeadDim) {
      text += "; else in the mod";
      continue;
    }
    const int further = columns.rank * columnsOfRound(columns.qPieces, columns.kvPieces);
    text += isFirst ? fmt::format("rank {}: {} columns of q and k", columns.rank, further)
                    : fmt::format("; else {}", further);
    text += fmt::format(" (head dim {}), {}", columns.wideHeadDim, errorText(form->error));
    if (isFirst && forms.size() > 1) text += ", if factor / scale is a power of two";
  }
}

/// Makes the stages of a form run on wider copies, if they do at all.
static void widen(Plan& plan, const std::shared_ptr<const WideCopies>& copies) {
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

/// Returns the stage that writes the columns, or the copies. `options`: of the narrow kernel.
static Stage copyingStage(const KernelOptions& options, const std::shared_ptr<const WideCopies>& copies) {
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

/// Returns the stage that divides the wider gradients. `options`: of the narrow kernel.
static Stage dividingStage(const KernelOptions& options, const std::shared_ptr<const WideCopies>& copies) {
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

/// Adds memory of a form's plan: launches run one form.
static void addWorkspace(Plan& plan, const Plan& own, const std::shared_ptr<const WideCopies>& copies) {
  for (WorkspaceUse use : own.workspace) {
    if (use.use != Use::Counters) // of tiles: two, whatever the operands are
      use.bytes = [copies, inner = std::move(use.bytes)](const LaunchOperands& operands) {
        return copies->withWidened(operands, nullptr, inner);
      };
    const auto same = llvm::find_if(plan.workspace, [&](const WorkspaceUse& other) { return other.use == use.use; });
    if (same == plan.workspace.end()) {
      plan.workspace.push_back(std::move(use));
      continue;
    }
    if (use.zeroed == WorkspaceUse::Zeroed::EveryLaunch) same->zeroed = use.zeroed;
    same->bytes = [first = std::move(same->bytes), second = std::move(use.bytes)](const LaunchOperands& operands) {
      return std::max(first(operands), second(operands));
    };
  }
}

/// Adds the accesses of a form's plan. Sums that suit columns do not suit scores.
static void addAccesses(std::vector<CaptureAccess>& all, const std::vector<CaptureAccess>& own) {
  if (all.empty()) all = own;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].inColumns == own[i].inColumns) continue;
    all[i].inColumns = false;
    llvm::append_range(all[i].places, own[i].places);
  }
}

void LowRankColumns::addTo(Plan& plan, const FamilyRow& row) const {
  if (forms.empty()) return;
  using When = WideCopies::When;
  const bool isBackward = given.options.kind == KernelKind::Backward;
  Plan all = plan; // stages, workspace and captures are replaced
  all.stages.clear(), all.workspace.clear(), all.captures.clear();
  std::vector<std::shared_ptr<const WideCopies>> wide;
  for (const auto& form : forms) {
    const bool isFirst = form == forms.front();
    Plan own = plan;
    if (!isFirst) {
      own = row.plan(form->request);
      addSharedStages(own, form->request, row.family);
    }
    const When when = forms.size() == 1 ? When::Always : isFirst ? When::Exact : When::NotExact;
    const auto copies = std::make_shared<const WideCopies>(
        WideCopies{*given.mod.lowRank.term, form->columns, given.options.headDim, when, isBackward, own.captures});
    widen(own, copies);
    addWorkspace(all, own, copies);
    addAccesses(all.captures, own.captures);
    const bool isWide = form->columns.wideHeadDim > 0;
    if (isWide) all.stages.push_back(copyingStage(given.options, copies)), wide.push_back(copies);
    llvm::append_range(all.stages, own.stages);
    if (isWide && isBackward) all.stages.push_back(dividingStage(given.options, copies));
    if (isFirst && forms.size() > 1) all.stagesOfFirstForm = all.stages.size();
  }
  all.readsBindings = forms.size() > 1 || wide.front()->mayBeCaptured();
  all.widensOperands = true;
  for (Use use : {Use::WideQ, Use::WideK, Use::WideV, Use::WideDq, Use::WideDk, Use::WideDv})
    if (isBackward || use < Use::WideDq)
      all.workspace.push_back({.use = use, .bytes = [wide, use](const LaunchOperands& operands) {
                                 size_t most = 0; // a launch runs one form
                                 for (const auto& copies : wide) most = std::max(most, copies->bytes(use, operands));
                                 return most;
                               }});
  plan = std::move(all);
}

} // namespace attnc::plan
