// The parts into which decode kernels divide their work, as far as shapes determine them.
#pragma once

#include "analysis/mod_facts.h"
#include "plan/launch_operands.h"

#include <algorithm>

namespace attnc::plan {

/// Whether an earlier launch lists the live steps: kListsSteps of templates/algo/decode_work.cuh.
inline bool decodeListsSteps(const analysis::ModFacts& facts, const KernelOptions& options) {
  return facts.masks && !facts.kvEdges && !options.features.has(Feature::Ragged);
}

} // namespace attnc::plan

#include "templates/host/decode_parts.h"
