// What a mod computes for one score, value by value, beside the lines of its text.
#pragma once

#include "ir/bindings.h"
#include "ir/element.h"
#include "ir/ir.h"

#include <cstdint>
#include <string>

namespace attnc::cli {

/// One element of the score matrix.
struct ScorePlace {
  int64_t b = 0, h = 0, q = 0, kv = 0;
  float score = 0; ///< that score_mod is given
};

/// How an operation of two operands is written between them; null for those that are written as functions.
const char* infix(ir::Op op);

/// A value as Python writes it: True, 7, 0.5.
std::string valueText(ir::Type type, ir::Number number);

/// For each line of the text that the output needs, the line, and under it the values that it computes, in the order in
/// which they are computed. Of a sum, the result. `text` may be empty: then there are values alone. `module` is as
/// traced, `bindings` are for it, with host memory.
std::string journeyText(const ir::Module& module, const ir::Bindings& bindings, ir::Value output, const ScorePlace& place,
                        const std::string& text);

} // namespace attnc::cli
