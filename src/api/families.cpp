#include "attnc/family.h"

#include "plan/family.h"

namespace attnc {

static std::vector<FamilyInfo> familiesOf(KernelKind kind) {
  std::vector<FamilyInfo> all;
  for (const plan::FamilyRow* row : plan::families())
    if (row->kind == kind)
      all.push_back({row->family, row->arch, row->layouts, row->checkLayout == plan::takesAnyLayout});
  return all;
}

std::vector<FamilyInfo> forwardFamilies() { return familiesOf(KernelKind::Forward); }

std::vector<FamilyInfo> backwardFamilies() { return familiesOf(KernelKind::Backward); }

std::vector<FamilyInfo> decodeFamilies() { return familiesOf(KernelKind::Decode); }

} // namespace attnc
