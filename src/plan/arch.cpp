#include "plan/arch.h"

#include "jit/arch.h"

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

std::string canonicalArch(const std::string& text) { return text == "sm_90" ? "sm_90a" : text; }

std::string machineArch(const std::string& text) {
  llvm::StringRef number = text;
  return number.consume_front("compute_") ? "sm_" + number.str() : canonicalArch(text);
}

Expected<Arch> parseArch(llvm::StringRef text) {
  const std::optional<jit::ArchName> name = jit::parseArchName(machineArch(text.str()));
  // the first GPU with instructions of this suffix
  const int first = !name || !name->suffix ? 80 : name->suffix == 'a' ? 90 : 100;
  if (!name || name->number < first)
    return Error::environment("unknown architecture `" + text.str() + "`",
                              "sm_80 or later: sm_80, sm_86, sm_89, sm_90a, sm_100, sm_120; compute_90: sm_90 without "
                              "the kernels made for it");
  return Arch{name->number, name->suffix != 0};
}

} // namespace attnc::plan
