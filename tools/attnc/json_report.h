// Output of commands with --json: one object on stdout, for programs. Names are camelCase; unknown values are left out.
#pragma once

#include "attnc/captures.h"
#include "attnc/error.h"
#include "attnc/mod.h"
#include "ir/ir.h"

#include <nlohmann/json.hpp>

#include <string>

namespace attnc::cli {

/// Keeps the order of its keys.
using JsonReport = nlohmann::ordered_json;

/// Returns the whole text, with a line end. Bytes that are not UTF-8 are replaced.
std::string jsonText(const JsonReport& report);

/// Returns {"mod", "functions", "choices": [{"function", "name", "line", "why", "others": [{"name", "line"}]}],
/// "masksLifted", "captures"}. A line of 0 means: not in the text.
JsonReport modJson(const Mod& mod);

/// Returns {"score_mod": {"launch": 0, "head": 1, "row": 0, "column": 0, "element": 2, "perElement": {"add": 1}}}: for
/// each function, and for d_score if the module has it: what the gradient needs in addition to score_mod.
JsonReport operationsJson(const ir::Module& module);

/// Returns scalars by name.
JsonReport valuesJson(const Captures& captures);

/// Returns [{"id", "file", "line", "column", "message", "severity": "warning" for warnings, "hint"}].
JsonReport diagnosticsJson(const std::vector<Diagnostic>& diagnostics);

/// Returns {"message", "hint"}, and for errors in a mod "diagnostics".
JsonReport errorJson(const Error& error);

/// Calls report(error). With `asJson`, first prints {"ok": false, "error": errorJson(error)} to stdout.
int reportEither(const Error& error, bool asJson);

} // namespace attnc::cli
