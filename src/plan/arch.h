// GPU architectures as far as kernels depend on them.
#pragma once

#include "attnc/error.h"

#include <llvm/ADT/StringRef.h>

#include <cstdint>
#include <string>
#include <vector>

namespace attnc::plan {

/// A compute capability, and whether its architecture-specific instructions may be used. "sm_90a" is {90, true}.
struct Arch {
  int capability = 0; ///< 10 major + minor: 80, 86, 89, 90, 100, 120, ...
  bool specific = false;
  int64_t sharedBytesPerCta() const; ///< largest dynamic shared memory of a CTA
};

/// Returns the compute capabilities of existing GPUs from 80 on, in ascending order.
const std::vector<int>& knownCapabilities();

/// Parses "sm_80", "sm_90a", ... Refuses anything below sm_80 and a suffix that the GPU does not have. "sm_90" means
/// "sm_90a", because every GPU of that capability has its instructions. "compute_90" is the same GPU without them.
Expected<Arch> parseArch(llvm::StringRef text);

/// Returns the one spelling of an architecture, which keys hold: "sm_90a" for "sm_90", else the text itself.
std::string canonicalArch(const std::string& text);
/// Returns the architecture that machine code is compiled for: "sm_90" for "compute_90", else the canonical spelling.
std::string machineArch(const std::string& text);

} // namespace attnc::plan
