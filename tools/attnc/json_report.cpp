#include "json_report.h"

#include "mod_text.h"
#include "options.h"

#include <variant>

namespace attnc::cli {
namespace {

const char* kindOf(const CaptureInfo& capture) {
  switch (capture.kind) {
  case CaptureInfo::Kind::Tensor: return "tensor";
  case CaptureInfo::Kind::Int: return "int";
  case CaptureInfo::Kind::Float: return "float";
  case CaptureInfo::Kind::Bool: return "bool";
  }
  return "?";
}

JsonReport countJson(const analysis::OperationCount& count) {
  JsonReport json;
  for (ir::Level level : {ir::Level::Launch, ir::Level::Head, ir::Level::Row, ir::Level::Column, ir::Level::Element})
    json[ir::name(level)] = count.at(level);
  json["perElement"] = JsonReport::object();
  for (const auto& [name, times] : count.perElement) json["perElement"][name] = times;
  return json;
}

} // namespace

std::string jsonText(const JsonReport& report) {
  return report.dump(2, ' ', /*ensure_ascii=*/false, JsonReport::error_handler_t::replace) + "\n";
}

JsonReport modJson(const Mod& mod) {
  JsonReport json{{"mod", mod.name()}, {"functions", JsonReport::array()}};
  if (mod.hasScoreMod()) json["functions"].push_back("score_mod");
  if (mod.hasMaskMod()) json["functions"].push_back("mask_mod");
  json["choices"] = JsonReport::array();
  for (const ModChoice& choice : mod.choices()) {
    const auto functionJson = [](const ModFunction& function) {
      return JsonReport{{"name", function.name}, {"line", function.line}};
    };
    JsonReport one{{"function", choice.isScore ? "score_mod" : "mask_mod"}};
    one.update(functionJson(choice.function));
    one["why"] = choice.why;
    one["others"] = JsonReport::array();
    for (const ModFunction& other : choice.others) one["others"].push_back(functionJson(other));
    json["choices"].push_back(std::move(one));
  }
  json["masksLifted"] = mod.module().liftsMasks;
  json["captures"] = JsonReport::array();
  for (const CaptureInfo& capture : mod.captures()) {
    JsonReport one{{"name", capture.name}, {"kind", kindOf(capture)}};
    if (capture.kind == CaptureInfo::Kind::Tensor) {
      one["dtype"] = dtypeName(capture.dtype);
      one["shape"] = capture.extent;
    }
    json["captures"].push_back(std::move(one));
  }
  return json;
}

JsonReport operationsJson(const ir::Module& module) {
  JsonReport json = JsonReport::object();
  for (auto [function, role] : {std::pair("score_mod", ir::kScore), std::pair("mask_mod", ir::kMask)})
    if (auto root = module.output(role)) json[function] = countJson(analysis::countOperations(module, *root));
  if (module.output(ir::kDScore)) json["d_score"] = countJson(gradientOperations(module));
  return json;
}

JsonReport valuesJson(const Captures& captures) {
  JsonReport json = JsonReport::object();
  for (const auto& [name, value] : captures.all())
    std::visit(
        [&json, &name = name](auto known) {
          if constexpr (!std::is_same_v<decltype(known), TensorView>) json[name] = known;
        },
        value);
  return json;
}

JsonReport errorJson(const Error& error) {
  JsonReport json{{"message", error.message}};
  if (!error.remedy.empty()) json["hint"] = error.remedy;
  if (!error.diagnostics.empty()) json["diagnostics"] = diagnosticsJson(error.diagnostics);
  return json;
}

JsonReport diagnosticsJson(const std::vector<Diagnostic>& diagnostics) {
  JsonReport json = JsonReport::array();
  for (const Diagnostic& found : diagnostics) {
    JsonReport one{{"id", found.id},
                   {"file", found.file},
                   {"line", found.line},
                   {"column", found.column},
                   {"message", found.message}};
    if (found.severity == Severity::Warning) one["severity"] = "warning";
    if (!found.hint.empty()) one["hint"] = found.hint;
    json.push_back(std::move(one));
  }
  return json;
}

int reportEither(const Error& error, bool asJson) {
  if (asJson)
    if (auto status = printResult(jsonText({{"ok", false}, {"error", errorJson(error)}})); !status)
      return report(status.error());
  return report(error);
}

} // namespace attnc::cli
