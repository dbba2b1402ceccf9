// Texts of mods: an expression as a user of FlexAttention writes it.
#pragma once

#include "infer/problem.h"

namespace attnc::inferred {

struct Written {
  std::string text;                                     ///< Text of the mod.
  std::string expression;                               ///< What mask_mod returns, in one line.
  std::vector<std::pair<std::string, TablePtr>> tables; ///< Captures by name.
  std::vector<std::string> recognised;                  ///< In words.
};

/// Writes the mod of an expression. `source` ends the docstring: "mask.safetensors".
Written write(const Expr& expr, const std::string& source);

} // namespace attnc::inferred
