// What a mod computes for one score, value by value, next to the lines of its text.
#pragma once

#include "ir/bindings.h"
#include "ir/ir.h"
#include "support/element.h"

#include <cstdint>
#include <string>

namespace attnc::cli {

/// One element of the score matrix.
struct ScorePlace {
  int64_t b = 0, h = 0, q = 0, kv = 0;
  float score = 0; ///< input of score_mod
};

/// Returns the infix form of an operation of two operands; null for those that are written as functions.
const char* infix(ir::Op op);

/// Formats a value as Python does: True, 7, 0.5.
std::string valueText(ir::Type type, Number number);

/// Returns each line of the text that the output needs, and under it the values that it computes, in order of
/// computation. A sum shows its result. If `text` is empty, only values are shown. `module` is as traced; `bindings`
/// are for it, with host memory.
std::string journeyText(const ir::Module& module, const ir::Bindings& bindings, ir::Value output,
                        const ScorePlace& place, const std::string& text);

} // namespace attnc::cli
