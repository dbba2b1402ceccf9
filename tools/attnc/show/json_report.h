// Output of commands with --json: one object on stdout, for programs. Names are camelCase; unknown values are left out.
#pragma once

#include "attnc/captures.h"
#include "attnc/error.h"
#include "attnc/problem.h"

#include <nlohmann/json.hpp>

#include <string>

namespace attnc::cli {

/// Keeps the order of its keys.
using JsonReport = nlohmann::ordered_json;

/// Returns the whole text, with a line end. Bytes that are not UTF-8 are replaced.
std::string jsonText(const JsonReport& report);

/// Returns {"B": 1, "H": 16, ...}.
JsonReport problemJson(const ProblemShape& problem);
/// Returns [1, 16, ...].
JsonReport shapeJson(const ProblemShape& problem);
/// Returns the scalar captures that have a value, by name.
JsonReport valuesJson(const Captures& captures);

/// Calls report(error). With `asJson`, first prints toJson(error) to stdout.
int reportEither(const Error& error, bool asJson);

} // namespace attnc::cli
