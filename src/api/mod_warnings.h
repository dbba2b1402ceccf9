// Warnings about a mod's text: those of the front end, and those that the analysis of its module adds.
#pragma once

#include "attnc/error.h"
#include "ir/ir.h"

#include <string>
#include <string_view>
#include <vector>

namespace attnc {

/// Returns all warnings in order of place. `found`: those of the front end. `traced`, `simplified`: the module before
/// and after the passes.
std::vector<Diagnostic> warningsOf(std::string_view text, const std::string& name, const ir::Module& traced,
                                   const ir::Module& simplified, std::vector<Diagnostic> found);

} // namespace attnc
