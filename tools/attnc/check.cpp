// `attnc check`: prints the errors of a mod, or what attnc understood: functions, captures, levels, gathers.
#include "commands.h"
#include "grid_text.h"
#include "json_report.h"
#include "language.h"
#include "mod_text.h"
#include "options.h"

#include "analysis/gather_proofs.h"
#include "api/mod_impl.h"
#include "support/try.h"

#include <fmt/format.h>

#include <memory>

namespace attnc::cli {
namespace {

/// "bias[.., axis 1], line 14"
std::string place(const ir::Module& module, const analysis::GatherProof& proof) {
  const ir::Node& load = module[proof.load];
  const ir::TensorCapture& tensor = module.tensors[size_t(load.attr)];
  std::string axis = tensor.shape.size() > 1 ? fmt::format(" index {}", proof.axis) : "";
  std::string line = load.line ? fmt::format(" (line {})", load.line) : "";
  return tensor.name + axis + line;
}

std::string gathers(const ir::Module& module) {
  std::string text;
  for (const analysis::GatherProof& proof : analysis::proveGathers(module))
    text += fmt::format("{:12}{}: {}: {}\n", text.empty() ? "gathers" : "", place(module, proof),
                        proof.proven ? "proven inside" : "clamped", proof.why);
  return text.empty() ? "gathers     none\n" : text;
}

/// Returns the conditions that every launch must meet.
std::string conditions(const ir::Module& module) {
  std::string text;
  for (const ir::Output& output : module.outputs())
    if (output.isCondition())
      text += fmt::format("{:12}{}{}\n", text.empty() ? "conditions" : "", output.words,
                          output.line ? fmt::format(" (line {})", output.line) : "");
  return text;
}

/// Returns the line that says that gradients would not reach q and k; empty if they do.
Expected<std::string> gradients(const Mod& mod) {
  ATTNC_TRY_AS(gradient, scoreGradientOf(mod));
  if (*gradient == ScoreGradient::Some) return std::string();
  return fmt::format("gradients   score_mod {}: no gradient reaches q and k\n",
                     *gradient == ScoreGradient::Stopped ? "passes none to score" : "does not depend on score");
}

/// Returns which function of the text was taken for each mod, unless its name says it all.
std::string choicesText(const Mod& mod) {
  std::string text;
  for (const ModChoice& choice : mod.choices())
    if (!choice.others.empty() || choice.function.name != (choice.isScore ? "score_mod" : "mask_mod"))
      text += fmt::format("{:12}{}\n", "", choiceText(choice));
  return text;
}

struct CheckOptions {
  ModOptions mod;
  bool language = false, json = false;
};

/// Returns the JSON output of `check`.
Expected<std::string> checkJson(const Mod& mod, const ir::Module& module, const std::vector<Diagnostic>& warnings) {
  JsonReport json{{"ok", true}};
  json.update(modJson(mod));
  json["warnings"] = diagnosticsJson(warnings);
  json["operations"] = operationsJson(module);
  json["conditions"] = JsonReport::array();
  for (const ir::Output& output : module.outputs())
    if (output.isCondition()) json["conditions"].push_back({{"words", output.words}, {"line", output.line}});
  json["gathers"] = JsonReport::array();
  for (const analysis::GatherProof& proof : analysis::proveGathers(module)) {
    const ir::Node& load = module[proof.load];
    json["gathers"].push_back({{"capture", module.tensors[size_t(load.attr)].name},
                               {"index", proof.axis},
                               {"line", load.line},
                               {"proven", proof.proven},
                               {"why", proof.why}});
  }
  ATTNC_TRY_AS(grids, gridsJson(mod));
  json.update(*grids);
  ATTNC_TRY_AS(gradient, scoreGradientOf(mod));
  json["scoreGradient"] = *gradient == ScoreGradient::Some      ? "some"
                          : *gradient == ScoreGradient::Stopped ? "stopped"
                                                                : "none";
  json["hash"] = mod.hash();
  return jsonText(json);
}

int runCheck(const CheckOptions& options) {
  auto mod = options.mod.load();
  if (!mod) return reportEither(mod.error(), options.json);
  auto forward = forwardMod(*mod);
  if (!forward) return reportEither(forward.error(), options.json);
  const ir::Module& module = forward->module();
  if (options.json) {
    auto json = checkJson(*mod, module, options.mod.warnings(*mod));
    if (!json) return reportEither(json.error(), options.json);
    auto status = printResult(*json);
    return status ? kDone : report(status.error());
  }
  auto note = gradients(*mod);
  if (!note) return report(note.error());
  auto grids = gridsText(*mod);
  if (!grids) return report(grids.error());
  std::string text = fmt::format("{}: ok\nfunctions   {}\n", mod->name(), functionsText(*mod)) + choicesText(*mod) +
                     masksText(*mod) + capturesText(*mod) + operationsText(module);
  text += conditions(module) + gathers(module) + *grids + *note + fmt::format("hash        {}\n", mod->hash());
  auto status = printResult(text);
  return status ? kDone : report(status.error());
}

int printLanguage() {
  auto status = printResult(kLanguage);
  return status ? kDone : report(status.error());
}

} // namespace

void addCheck(CLI::App& app, int& exitCode) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* command = app.add_subcommand("check", "Check a mod; show captures, levels, and which gathers are proven");
  options->mod.addTo(*command);
  command->add_flag("--json", options->json,
                    "One JSON object instead, for programs; of a wrong mod with its diagnostics. Wrong usage (exit "
                    "code 2)\nprints none");
  command->add_flag("--language", options->language,
                    "Print the language of mods: what it has, and what operations mean");
  command->footer(
      "Operations are counted at the outermost level where they are known: once a launch, (batch, head), q\n"
      "row, kv column, or for each score. A gather that is not proven to stay inside its tensor is clamped.\n\n"
      "Example: attnc check alibi.py -D CAUSAL=False");
  command->callback([=, &exitCode] { exitCode = options->language ? printLanguage() : runCheck(*options); });
}

} // namespace attnc::cli
