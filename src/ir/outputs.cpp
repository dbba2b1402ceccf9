#include "ir/outputs.h"

namespace attnc::ir {

const OutputRole* roleNamed(llvm::StringRef name) {
  for (const OutputRole& role : kRoles)
    if (std::string_view(name) == role.name) return &role;
  return nullptr;
}

} // namespace attnc::ir
