#include "attnc/family.h"

#include "families/family.h"
#include "families/grids/grid_plan.h"

namespace attnc {

static std::vector<FamilyInfo> familiesOf(KernelKind kind) {
  std::vector<FamilyInfo> all;
  for (const plan::FamilyRow* row : plan::families()) {
    if (row->kind != kind) continue;
    // Whether tokens lie on grids is not a question of layout.
    const bool takesAny = row->checkLayout == plan::takesAnyLayout || row->checkLayout == plan::takesAnyLayoutOnGrids;
    Features takes = plan::takenBy(*row);
    for (const plan::FamilyRow* other : plan::families()) // kernels of any architecture serve the rest
      if (other->kind == kind && other->family == row->family && !other->madeFor) takes = takes | plan::takenBy(*other);
    all.push_back({row->family, row->arch, row->layouts, takesAny, takes});
  }
  return all;
}

std::vector<FamilyInfo> forwardFamilies() { return familiesOf(KernelKind::Forward); }

std::vector<FamilyInfo> backwardFamilies() { return familiesOf(KernelKind::Backward); }

std::vector<FamilyInfo> decodeFamilies() { return familiesOf(KernelKind::Decode); }

} // namespace attnc
