// GPU architectures as far as kernels depend on them.
#pragma once

#include "attnc/error.h"

#include <llvm/ADT/StringRef.h>

#include <cstdint>
#include <string>
#include <vector>

namespace attnc::plan {

/// "sm_90a": compute capability 90, with architecture-specific instructions.
struct Arch {
  int capability = 0; ///< 10 major + minor: 80, 86, 89, 90, 100, 120, ...
  bool specific = false;
  int64_t sharedBytesPerCta() const; ///< largest dynamic shared memory of a CTA
};

/// Those of GPUs that there are, from 80 on, in order.
const std::vector<int>& knownCapabilities();

/// Reads "sm_80", "sm_90a", ...; below sm_80 is refused, and so is a suffix that the GPU does not have. "sm_90" is
/// "sm_90a": every such GPU has its instructions. "compute_90" is that GPU without them.
Expected<Arch> parseArch(llvm::StringRef text);

/// The one spelling of an architecture, which keys hold: "sm_90a" for "sm_90", else the text itself.
std::string canonicalArch(const std::string& text);
/// What machine code is compiled for: "sm_90" for "compute_90", else the canonical spelling.
std::string machineArch(const std::string& text);

} // namespace attnc::plan
