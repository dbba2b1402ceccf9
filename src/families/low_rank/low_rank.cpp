#include "families/low_rank/low_rank.h"

#include "families/capture_gradients.h"
#include "families/low_rank/pieces.h"
#include "families/low_rank/wide_copies.h"

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>

#include <utility>

namespace attnc::plan {
namespace {

using analysis::LowRankTerm;

/// Returns the least rank from which columns gain, as measured; backward kernels with gradients of the factors.
int64_t leastRank(KernelKind kind) { return kind == KernelKind::Forward ? 4 : 8; }

constexpr int64_t kMostRank = 64;
constexpr int kMostWideHeadDim = 256;

/// Whether a family's kernels take further columns from tensors of their own. The copy engine loads 64 at a time.
bool areApart(const Request& request, const FamilyRow& row) {
  return request.options.kind == KernelKind::Forward && row.family == Family::Sm90 && request.options.headDim % 64 == 0;
}

/// Returns why a mod with a term is computed as it is. Empty if nothing speaks against columns of q and k.
std::string againstColumns(const LowRankTerm& term, const Request& request, const FamilyRow& row) {
  const KernelOptions& options = request.options;
  constexpr Features kTaken{Feature::BlockMask, Feature::RowMax,  Feature::Gradients, Feature::Deterministic,
                            Feature::Lengths,   Feature::Offsets, Feature::Ragged};
  if (options.kind != KernelKind::Forward && options.kind != KernelKind::Backward)
    return fmt::format("{} kernels compute it", kindName(options.kind));
  if (row.family != Family::Sm90 && row.family != Family::Sm80)
    return fmt::format("family {} computes it", familyName(row.family));
  if (const Features others = featuresOf(options).without(kTaken); !others.empty())
    return fmt::format("columns of q and k go with no {}", featureText(others.first()));
  constexpr Features kInAnyOrder{Feature::Ragged, Feature::Gradients, Feature::Deterministic};
  if (kInAnyOrder.without(featuresOf(options)).empty()) return "sequences add to captures in any order";
  if (options.dtype != DType::BF16)
    return fmt::format("the range of {} may not hold the factors", dtypeName(options.dtype));
  if (const int64_t least = leastRank(options.kind); term.rank < least)
    return fmt::format("rank {}, and columns gain from {}", term.rank, least);
  if (term.rank > kMostRank) return fmt::format("rank {}, and columns are for at most {}", term.rank, kMostRank);
  return {};
}

} // namespace

LowRankColumns::Form::Form(const Request& given, const Columns& columns, double error)
    : columns(columns), error(error), request(given) {
  if (!columns.wideHeadDim) return;
  request.mod = given.mod->withoutLowRank;
  request.widens = true;
  request.options.headDim = columns.wideHeadDim;
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
  const LowRankTerm& term = *given.mod->lowRank.term;
  const auto fitting = [&](const Pieces& pieces) {
    const Columns columns = columnsFor(term, given.options.headDim, pieces, areApart(given, row));
    return againstForm(columns, row).empty() ? columns.wideHeadDim : 0;
  };
  std::string text;
  for (double error : kPieceErrors) {
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
  const analysis::LowRank& found = request.mod->lowRank;
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
  for (const Form& form : forms) {
    const Columns& columns = form.columns;
    const bool isFirst = &form == &forms.front();
    if (!columns.wideHeadDim) {
      text += "; else in the mod";
      continue;
    }
    const int further = columns.rank * columnsOfRound(columns.qPieces, columns.kvPieces);
    text += isFirst ? fmt::format("rank {}: {} columns of q and k", columns.rank, further)
                    : fmt::format("; else {}", further);
    text += fmt::format(" (head dim {}), {}", columns.wideHeadDim, errorText(form.error));
    if (isFirst && forms.size() > 1) text += ", if factor / scale is a power of two";
  }
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
  for (const Form& form : forms) {
    const bool isFirst = &form == &forms.front();
    Plan own = plan;
    if (!isFirst) {
      own = row.plan(form.request);
      addSharedStages(own, form.request, row.family);
    }
    const When when = forms.size() == 1 ? When::Always : isFirst ? When::Exact : When::NotExact;
    const auto copies = std::make_shared<const WideCopies>(
        WideCopies{*given.mod->lowRank.term, form.columns, given.options.headDim, when, isBackward, own.captures});
    widen(own, copies);
    addWorkspace(all, own, copies);
    addAccesses(all.captures, own.captures);
    const bool isWide = form.columns.wideHeadDim > 0;
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
