#include "json_report.h"

#include "options.h"

#include "attnc/explain.h"

namespace attnc::cli {

std::string jsonText(const JsonReport& report) {
  return report.dump(2, ' ', /*ensure_ascii=*/false, JsonReport::error_handler_t::replace) + "\n";
}

int reportEither(const Error& error, bool asJson) {
  if (asJson)
    if (auto status = printResult(toJson(error)); !status) return report(status.error());
  return report(error);
}

} // namespace attnc::cli
