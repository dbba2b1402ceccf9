// Text for messages. Names from files are quoted so that they cannot garble a terminal.
#pragma once

#include "attnc/tensor.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attnc::cli {

/// Returns `name` in single quotes, readable, cut after 80 bytes.
std::string inQuotes(std::string_view name);

/// Returns "[2, 8, 128, 64]"; "[]" for a 0-d tensor.
std::string shapeText(const std::vector<int64_t>& shape);
std::string shapeText(const TensorView& tensor);

/// Parses the whole text as an integer in base 10. Returns false if it is anything else or does not fit.
bool parseInteger(std::string_view text, int64_t& value);
/// Parses the whole text as a number, which may be inf or nan.
bool parseNumber(std::string_view text, double& value);

} // namespace attnc::cli
