#include "show/html_report.h"

#include "attnc/version.h"
#include "support/try.h"

#include <fmt/format.h>
#include <llvm/ADT/ArrayRef.h>
#include <llvm/Support/Base64.h>
#include <llvm/Support/SHA256.h>

#include <filesystem>
#include <tuple>
#include <utility>

namespace attnc::cli {
namespace {

std::string scriptText() { return std::string(kPageJs) + kPicturesJs + kReportJs; }

/// "'sha256-...'"
std::string sourceOf(std::string_view text) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  return fmt::format("'sha256-{}'",
                     llvm::encodeBase64(llvm::SHA256::hash(llvm::ArrayRef<uint8_t>(bytes, text.size()))));
}

/// Returns JSON that is safe inside a script element: in strings, `<`, `>` and `&` are escapes, like all but ASCII.
std::string scriptJson(const JsonReport& data) {
  const std::string text = data.dump(-1, ' ', /*ensure_ascii=*/true, JsonReport::error_handler_t::replace);
  std::string safe;
  safe.reserve(text.size());
  for (char c : text)
    if (c == '<' || c == '>' || c == '&')
      safe += fmt::format("\\u{:04x}", unsigned(c));
    else
      safe += c;
  return safe;
}

/// Returns the launch whose header of the mod says most, one with a tile if it can be, and that header.
std::pair<std::string, std::string> modCode(const Explanation& all) {
  std::pair<size_t, bool> most;
  std::pair<std::string, std::string> found;
  for (const KernelSource& source : all.sources)
    for (const auto& [name, text] : source.headers) {
      const std::pair says(text.size(), source.tileColumns > 0);
      if (name != "attnc_mod.cuh" || says <= most) continue;
      most = says;
      found = {source.templateName, text};
    }
  return found;
}

} // namespace

std::string pagePolicy() {
  return fmt::format("default-src 'none'; style-src {}; script-src {}; connect-src 'self'; base-uri 'none'; "
                     "form-action 'none'",
                     sourceOf(kPageCss), sourceOf(scriptText()));
}

Expected<JsonReport> pageData(const Mod& mod, const Explanation& kernel) {
  ATTNC_TRY_AS(all, explain(mod));
  JsonReport data{{"version", ATTNC_VERSION},
                  {"title", std::filesystem::path(mod.name()).filename().string()},
                  {"text", mod.text().empty() ? mod.irText() : mod.text()}};
  auto ir = kernelIrText(kernel.kernel());
  data["ir"] = ir ? *ir : mod.irText();
  std::tie(data["template"], data["code"]) = modCode(kernel);
  data["mod"] = JsonReport::parse(toJson(*all));
  data["kernel"] = JsonReport::parse(toJson(kernel));
  return data;
}

std::string htmlPage(const JsonReport& data) {
  std::string page;
  std::string_view rest = kPageHtml;
  const std::pair<std::string_view, std::string> parts[] = {
      {"@POLICY@", pagePolicy()}, {"@STYLE@", kPageCss}, {"@DATA@", scriptJson(data)}, {"@SCRIPT@", scriptText()}};
  for (const auto& [place, text] : parts) { // in the order of the page, so that no part is searched for places
    const size_t at = rest.find(place);
    page += rest.substr(0, at);
    page += text;
    rest.remove_prefix(at + place.size());
  }
  return page += rest;
}

} // namespace attnc::cli
