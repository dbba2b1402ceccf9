// What a mod's grids are, and the box of keys that a query sees on them, as lines for a person.
#pragma once

#include "attnc/mod.h"

#include <string>

namespace attnc::cli {

/// Lines "grid        128 x 128: queries and keys", with the box or why there is none; of a mod that divides positions by
/// itself, how it declares the grid. Empty where it has none of that.
Expected<std::string> gridsText(const Mod& mod);

} // namespace attnc::cli
