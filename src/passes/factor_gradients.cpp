#include "passes/factor_gradients.h"

#include "analysis/gradient_access.h"
#include "ir/walk.h"
#include "passes/autodiff.h"
#include "passes/pass.h"
#include "support/try.h"

#include <llvm/ADT/STLExtras.h>

namespace attnc::passes {

using analysis::Reach;
using ir::CaptureGradient;

static int64_t placesOf(llvm::ArrayRef<CaptureGradient> places, const std::string& capture) {
  return llvm::count_if(places, [&](const CaptureGradient& place) { return place.capture == capture; });
}

bool FactorGradients::isInColumns(const std::string& capture) const { return placesOf(gradients.places, capture) > 0; }

std::vector<std::string> outputsOf(llvm::ArrayRef<CaptureGradient> places) {
  std::vector<std::string> names;
  for (const CaptureGradient& place : places) {
    names.push_back(place.output);
    names.insert(names.end(), place.indices.begin(), place.indices.end());
  }
  return names;
}

Expected<FactorGradients> factorGradients(const ir::Module& module, const ir::CaptureGradients& gradients) {
  FactorGradients made{module, {gradients.captures, {}, gradients.hasStops}};
  ATTNC_TRY(deriveLowRank(made.module, {}));
  std::vector<std::string> unfit; // what is left of the score also reads them
  const std::vector<bool> left = ir::neededBy(made.module, {*made.module.output(ir::kScore)});
  for (uint32_t id = 0; id < left.size(); ++id)
    if (const ir::Node& node = made.module[{id}]; left[id] && node.op == ir::Op::Load)
      unfit.push_back(made.module.tensors[size_t(node.attr)].name);
  std::vector<std::string> others = outputsOf(gradients.places);
  for (const ir::OutputRole* role : {&ir::kScore, &ir::kMask, &ir::kDScore}) others.emplace_back(role->name);
  made.module.dropOutputs(others);
  if (gradients.hasStops || !made.module.output(ir::kQFactor)) return made;

  std::vector<CaptureGradient> bySide[2];
  const std::pair<const ir::OutputRole*, Reach> sides[] = {{&ir::kQFactor, Reach::Row},
                                                           {&ir::kKvFactor, Reach::Column}};
  std::vector<std::string> names; // of captures that may be in columns
  for (const std::string& name : gradients.captures)
    if (llvm::any_of(made.module.tensors, [&](const auto& tensor) { return tensor.name == name; }))
      names.push_back(name);
  for (int side : {0, 1}) {
    ATTNC_TRY_AS(found, differentiateFactor(made.module, *sides[side].first, names));
    made.module = std::move(found->module);
    bySide[side] = std::move(found->captures);
    const auto accesses = analysis::gradientAccesses(made.module, bySide[side]);
    for (size_t i = 0; i < accesses.size(); ++i)
      if (accesses[i].reach != sides[side].second) unfit.push_back(bySide[side][i].capture);
  }
  for (const std::string& name : names)
    if (placesOf(bySide[0], name) && placesOf(bySide[1], name)) unfit.push_back(name);
  std::vector<CaptureGradient> gone;
  for (const std::string& name : gradients.captures)
    for (const auto& places : bySide)
      for (const CaptureGradient& place : places)
        if (place.capture == name) (llvm::is_contained(unfit, name) ? gone : made.gradients.places).push_back(place);
  made.module.dropOutputs(outputsOf(gone));
  ATTNC_TRY(dce(made.module, {}));
  return made;
}

} // namespace attnc::passes
