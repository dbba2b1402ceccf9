#include "kernels/arch.h"

namespace attnc::kernels {

int64_t Arch::sharedBytesPerCta() const {
  // CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
  switch (capability) {
  case 80:
  case 87: return 163 * 1024;
  case 86:
  case 88:
  case 89:
  case 120:
  case 121: return 99 * 1024;
  default: return 227 * 1024;
  }
}

Expected<Arch> parseArch(llvm::StringRef text) {
  Arch arch;
  llvm::StringRef rest = text;
  bool good = rest.consume_front("sm_");
  if (rest.consume_back("a") || rest.consume_back("f")) arch.specific = true;
  good = good && !rest.getAsInteger(10, arch.capability);
  if (!good || arch.capability < 80)
    return Error::environment("unknown architecture `" + text.str() + "`",
                              "sm_80 or later: sm_80, sm_86, sm_89, sm_90a, sm_100, sm_120");
  return arch;
}

} // namespace attnc::kernels
