// The catalogue: which template, with which tile, for which request.
#pragma once

#include "attnc/kernel.h"
#include "ir/ir.h"
#include "plan/arch.h"

#include <cstdint>
#include <string>

namespace attnc::plan {

/// A template with its static parameters chosen.
struct Plan {
  KernelOptions options; ///< as asked, with family, headDimV and the like filled in
  std::string templateName;
  std::string entry;
  int blockM = 0;          ///< q rows of a CTA
  int blockN = 0;          ///< kv columns of a step
  int warps = 0;           ///< warps that compute
  int stages = 0;          ///< sm90: slots of the K and V rings
  int qStages = 0;         ///< sm90: slots of the Q ring
  int threads = 0;         ///< of a CTA
  int64_t sharedBytes = 0; ///< dynamic shared memory of a CTA
};

/// Chooses. `module` is the simplified mod: its weight per score decides how many registers a tile may take.
/// Errors (environment): a head dim, dtype, block size or family that no kernel serves, with what is served.
Expected<Plan> choosePlan(const ir::Module& module, const KernelOptions& options);

} // namespace attnc::plan
