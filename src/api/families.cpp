#include "attnc/family.h"

#include "plan/family.h"

namespace attnc {

std::vector<FamilyInfo> forwardFamilies() {
  std::vector<FamilyInfo> all;
  for (const plan::FamilyRow* row : plan::families())
    if (row->kind == KernelKind::Forward)
      all.push_back({row->family, row->arch, row->layouts, row->checkLayout == plan::takesAnyLayout});
  return all;
}

} // namespace attnc
