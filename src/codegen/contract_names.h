// Names of what templates/mod/contract.cuh declares.
#pragma once

#include "analysis/gradient_access.h"
#include "analysis/grid_box.h"
#include "analysis/mod_facts.h"

namespace attnc::codegen {

/// Returns the name of the form in algo/exponents.cuh.
const char* exponentsOf(analysis::ScoreForm form);
/// Returns the name of an enumerator of Beside.
const char* nameOf(analysis::Beside beside);
/// Returns the name of an enumerator of GradientReach.
const char* nameOf(analysis::Reach reach);

} // namespace attnc::codegen
