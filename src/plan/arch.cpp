#include "plan/arch.h"

namespace attnc::plan {

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

const std::vector<int>& knownCapabilities() {
  static const std::vector<int> kKnown = {80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};
  return kKnown;
}

Expected<Arch> parseArch(llvm::StringRef text) {
  Arch arch;
  llvm::StringRef rest = text;
  bool good = rest.consume_front("sm_");
  int first = 80; // with instructions of this suffix
  if (rest.consume_back("a")) first = 90;
  if (rest.consume_back("f")) first = 100;
  arch.specific = first > 80;
  good = good && !rest.getAsInteger(10, arch.capability);
  if (!good || arch.capability < first)
    return Error::environment("unknown architecture `" + text.str() + "`",
                              "sm_80 or later: sm_80, sm_86, sm_89, sm_90a, sm_100, sm_120");
  return arch;
}

} // namespace attnc::plan
