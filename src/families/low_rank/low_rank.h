// Low-rank terms of a score as further columns of q and k, for the kernels of a plan for that head dim.
//
// Forward kernels of Hopper take these columns from tensors of their own: from the captures themselves if the factors
// are elements of these, else from the workspace, where a stage of its own writes them. Other kernels take wider copies
// of q and k, which that stage writes. In a backward plan, a stage behind these divides the wider gradients among q, k
// and the captures in the term.
#pragma once

#include "families/family.h"

#include <string>
#include <vector>

namespace attnc::plan {

/// How a plan computes a low-rank term of the mod.
class LowRankColumns {
public:
  /// Decides for a request that `row` serves. `request` must outlive this.
  LowRankColumns(const Request& request, const FamilyRow& row);

  /// Returns the request that the family plans for: that of the wider head dim and the mod without the term, or the
  /// given one.
  const Request& request() const { return forms.empty() ? given : forms.front().request; }

  /// Gives the kernels of a plan for request() their further columns of q and k. Adds the stages that run if a launch's
  /// numbers need more columns than these. Does nothing if the term stays in the mod. `plan`: with addSharedStages().
  void addTo(Plan& plan, const FamilyRow& row) const;

  /// Returns where the term is computed and how exactly, or why it stays in the mod. Empty if the mod has none.
  const std::string& words() const { return text; }

private:
  using Columns = codegen::Config::LowRank;
  struct Form {
    Columns columns; ///< wideHeadDim 0: none, the term stays in the mod
    double error;    ///< of the term, as KernelOptions::lowRankError
    Request request;
    Form(const Request& given, const Columns& columns, double error = 0);
  };
  void addForm(const Columns& columns, double error = 0) { forms.emplace_back(given, columns, error); }
  /// Returns why the family's kernels do not take q and k with these columns. Empty if they do.
  std::string againstForm(const Columns& columns, const FamilyRow& row) const;
  /// Returns which coarser columns fit where those within `most` do not. Empty if none do.
  std::string coarserColumns(const FamilyRow& row, double most) const;

  const Request& given;
  /// None if the term stays in the mod. Two if the first is for some launches: the second is for the others.
  std::vector<Form> forms;
  std::string text;
};

} // namespace attnc::plan
