// Text that goes into messages: names from files, quoted so that they cannot garble a terminal.
#pragma once

#include "attnc/tensor.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attnc::cli {

/// `name` in single quotes, readable, cut after 80 bytes.
std::string inQuotes(std::string_view name);

/// "[2, 8, 128, 64]"; "[]" for a 0-d tensor.
std::string shapeText(const std::vector<int64_t>& shape);
std::string shapeText(const TensorView& tensor);

/// The whole text as an integer in base 10; false if it is anything else or does not fit.
bool parseInteger(std::string_view text, int64_t& value);
/// The whole text as a number; inf and nan are ones.
bool parseNumber(std::string_view text, double& value);

} // namespace attnc::cli
