// What commands tell with --json: one object on stdout, for programs. Names are camelCase; what is unknown is left out.
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

/// The whole text, with a line end. Bytes that are no UTF-8 are replaced.
std::string jsonText(const JsonReport& report);

/// {"mod", "functions", "choices": [{"function", "name", "line", "why", "others": [{"name", "line"}]}], "masksLifted",
/// "captures"}: a line of 0 is none of the text.
JsonReport modJson(const Mod& mod);

/// {"score_mod": {"launch": 0, "head": 1, "row": 0, "column": 0, "element": 2, "perElement": {"add": 1}}}: of each
/// function, and of d_score where the module has it: what the gradient takes beside score_mod.
JsonReport operationsJson(const ir::Module& module);

/// Scalars, by name.
JsonReport valuesJson(const Captures& captures);

/// [{"id", "file", "line", "column", "message", "severity": "warning" of warnings, "hint"}]
JsonReport diagnosticsJson(const std::vector<Diagnostic>& diagnostics);

/// {"message", "hint"}, and of errors in a mod "diagnostics".
JsonReport errorJson(const Error& error);

/// report(error), and with `asJson` before that {"ok": false, "error": errorJson(error)} on stdout.
int reportEither(const Error& error, bool asJson);

} // namespace attnc::cli
