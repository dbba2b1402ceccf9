// The stages of further columns of q and k, and what a launch's wider q, k and v are for the other stages.
#pragma once

#include "analysis/low_rank.h"
#include "families/family.h"

#include <memory>
#include <optional>
#include <vector>

namespace attnc::plan {

/// The further columns of q and k that the stages of a form take, with q and k in front or apart: what their functions
/// need.
struct WideCopies {
  enum class When { Always, Exact, NotExact };
  analysis::LowRankTerm term;
  codegen::Config::LowRank config;
  int headDim; ///< of q and k as given
  When when;
  bool isBackward;
  std::vector<CaptureAccess> captures; ///< of the plan with these columns

  /// Whether columns have the gradient of a capture.
  bool haveGradients() const;
  /// Whether elements of captures can be the columns.
  bool mayBeCaptured() const { return config.isApart && config.qPieces == 1 && config.kvPieces == 1; }
  /// Whether a launch runs this form.
  bool run(const LaunchOperands& operands) const;
  /// Returns the bytes that a launch needs of a use: Use::WideQ to Use::WideDv.
  size_t bytes(Use use, const LaunchOperands& operands) const;

  /// Calls a function of another stage with that stage's operands. `workspace`: null if only their shapes matter.
  template <class Call>
  auto withWidened(const LaunchOperands& operands, const WorkspaceView* workspace, Call call) const {
    if (!config.wideHeadDim) return call(operands);
    if (!operands.wide) return call(widened(operands, workspace));
    return call(operands.wide->of(this, [&] { return widened(operands, operands.wide->workspace()); }));
  }

  /// Returns the columns of a row that is written.
  int64_t columns() const { return config.isApart ? config.wideHeadDim - headDim : config.wideHeadDim; }
  /// Returns the elements of a capture that are the further columns of q, or of k. Unset if these have to be written.
  std::optional<TensorView> capturedColumns(bool areOfQ, const LaunchOperands& operands) const;
  /// Whether dV goes to Use::WideDv.
  bool widensDv(const LaunchOperands& operands) const;
  /// Returns the operands of the plan's other stages. `workspace`: null if only their shapes matter.
  LaunchOperands widened(const LaunchOperands& operands, const WorkspaceView* workspace) const;
};

/// Makes the stages of a form run on wider copies, if they do at all.
void widen(Plan& plan, const std::shared_ptr<const WideCopies>& copies);

/// Returns the stage that writes the columns, or the copies. `options`: of the narrow kernel.
Stage copyingStage(const KernelOptions& options, const std::shared_ptr<const WideCopies>& copies);

/// Returns the stage that divides the wider gradients. `options`: of the narrow kernel.
Stage dividingStage(const KernelOptions& options, const std::shared_ptr<const WideCopies>& copies);

} // namespace attnc::plan
