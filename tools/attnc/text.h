// Text for messages. Names from files are quoted so that they cannot garble a terminal.
#pragma once

#include "attnc/problem.h"
#include "attnc/tensor.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attnc::cli {

/// Returns `name` in single quotes, readable, cut after 80 bytes.
std::string inQuotes(std::string_view name);

/// Returns a word as a shell reads it: in quotes if it needs them.
std::string inShell(const std::string& word);

/// Returns "[2, 8, 128, 64]"; "[]" for a 0-d tensor.
std::string shapeText(const std::vector<int64_t>& shape);
std::string shapeText(const TensorView& tensor);

/// Returns "2,8,2,1024,1024", as --shape takes it.
std::string shapeText(const ProblemShape& problem);
/// Returns "B 2, H 8, HKV 2, Q_LEN 1024, KV_LEN 1024".
std::string extentsText(const ProblemShape& problem);

/// Parses the whole text as an integer in base 10. Returns false if it is anything else or does not fit.
bool parseInteger(std::string_view text, int64_t& value);
/// Parses the whole text as a number, which may be inf or nan.
bool parseNumber(std::string_view text, double& value);

} // namespace attnc::cli
