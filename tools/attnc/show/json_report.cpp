#include "show/json_report.h"

#include "problem/options.h"

#include "attnc/explain.h"

#include <variant>

namespace attnc::cli {

std::string jsonText(const JsonReport& report) {
  return report.dump(2, ' ', /*ensure_ascii=*/false, JsonReport::error_handler_t::replace) + "\n";
}

JsonReport problemJson(const ProblemShape& problem) {
  return {{"B", problem.batch},
          {"H", problem.qHeads},
          {"HKV", problem.kvHeads},
          {"Q_LEN", problem.qLen},
          {"KV_LEN", problem.kvLen}};
}

JsonReport shapeJson(const ProblemShape& p) { return {p.batch, p.qHeads, p.kvHeads, p.qLen, p.kvLen}; }

JsonReport valuesJson(const Captures& captures) {
  JsonReport values = JsonReport::object();
  for (const auto& [name, value] : captures.all()) {
    if (auto integer = std::get_if<int64_t>(&value)) values[name] = *integer;
    if (auto real = std::get_if<double>(&value)) values[name] = *real;
    if (auto flag = std::get_if<bool>(&value)) values[name] = *flag;
  }
  return values;
}

int reportEither(const Error& error, bool asJson) {
  if (asJson)
    if (auto status = printResult(toJson(error)); !status) return report(status.error());
  return report(error);
}

} // namespace attnc::cli
