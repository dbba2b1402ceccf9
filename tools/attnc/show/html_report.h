// The page of `attnc explain --html` and `attnc serve`: one file that needs no network. Its data is a block of JSON,
// from which html/*.js draw it.
#pragma once

#include "attnc/explain.h"
#include "show/json_report.h"

#include <string>
#include <string_view>

namespace attnc::cli {

/// The sources of the page, in tools/attnc/show/html. Written by tools/cmake/embed_text.cmake.
extern const char kPageHtml[], kPageCss[], kPageJs[], kPicturesJs[], kReportJs[];

/// Returns what the page shows of a mod and its kernel: {"version", "title", "text", "ir", "code", "template", "mod",
/// "kernel"}. `mod` is what check tells, `kernel` what explain tells. Errors: those of explain(mod).
Expected<JsonReport> pageData(const Mod& mod, const Explanation& kernel);

/// Returns the page. Texts in `data` become neither markup nor script, whatever they are.
std::string htmlPage(const JsonReport& data);

/// Returns the content security policy of the page: its own style and script, and nothing else.
std::string pagePolicy();

} // namespace attnc::cli
