#include "launch/workspace.h"

#include <fmt/format.h>
#include <llvm/Support/MathExtras.h>

#include <algorithm>

namespace attnc::plan {

WorkspaceUse tileCounters() {
  return {.use = Use::Counters,
          .bytes = [](const LaunchOperands&) { return 2 * sizeof(unsigned); },
          .zeroed = WorkspaceUse::Zeroed::Once,
          .isOptional = true};
}

WorkspaceLayout::WorkspaceLayout(llvm::ArrayRef<WorkspaceUse> uses, const LaunchOperands& operands) {
  for (const WorkspaceUse& use : uses) {
    const size_t bytes = use.bytes(operands);
    if (bytes == 0) continue;
    const size_t offset = size_t(llvm::alignTo(end, kWorkspaceAlignment));
    all.push_back({use, offset, bytes});
    end = offset + bytes;
  }
}

const WorkspacePart* WorkspaceLayout::find(Use use) const {
  const auto* found =
      std::find_if(all.begin(), all.end(), [&](const WorkspacePart& part) { return part.use.use == use; });
  return found == all.end() ? nullptr : found;
}

void* WorkspaceView::at(Use use) const {
  const WorkspacePart* part = memory ? layout.find(use) : nullptr;
  return part ? static_cast<char*>(memory) + part->offset : nullptr;
}

Status checkWorkspace(const WorkspaceView& workspace) {
  const auto parts = workspace.layout.parts();
  const bool isNeeded = std::any_of(parts.begin(), parts.end(), [](const auto& part) { return !part.use.isOptional; });
  if (!workspace.memory && isNeeded)
    return Error::environment(fmt::format("the workspace is null, expected {} bytes", workspace.layout.bytes()));
  if (reinterpret_cast<uintptr_t>(workspace.memory) % kWorkspaceAlignment)
    return Error::environment(
        fmt::format("the workspace does not begin at a multiple of {} bytes", kWorkspaceAlignment));
  return {};
}

} // namespace attnc::plan
