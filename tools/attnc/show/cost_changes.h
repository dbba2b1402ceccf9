// What changes in cost from one mod to another.
#pragma once

#include "attnc/explain.h"
#include "show/json_report.h"

#include <string>

namespace attnc::cli {

/// Returns a line for each cost: what it was and is, or what it still is.
std::string changesText(const Explanation& older, const Explanation& newer);

/// Returns {"old", "new", "costs": [{"cost", "old", "new", "isChanged"}]}.
JsonReport changesJson(const Explanation& older, const Explanation& newer);

} // namespace attnc::cli
