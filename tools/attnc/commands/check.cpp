// `attnc check`: prints the errors of a mod, or what attnc understood: functions, captures, levels, gathers; or proves
// claims about its mask.
#include "claims.h"
#include "commands.h"
#include "problem/grid_text.h"
#include "problem/mod_text.h"
#include "problem/options.h"
#include "show/json_report.h"
#include "show/language.h"
#include "terminal.h"

#include "attnc/explain.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <memory>

namespace attnc::cli {
namespace {

/// "bias index 1 (line 14)"
std::string place(const GatherProof& proof) {
  std::string axis = proof.rank > 1 ? fmt::format(" index {}", proof.index) : "";
  std::string line = proof.line ? fmt::format(" (line {})", proof.line) : "";
  return proof.capture + axis + line;
}

std::string gathers(const std::vector<GatherProof>& proofs) {
  std::string text;
  for (const GatherProof& proof : proofs)
    text += fmt::format("{:12}{}: {}: {}\n", text.empty() ? "gathers" : "", place(proof),
                        proof.proven ? "proven inside" : "clamped where outside", proof.why);
  return text.empty() ? "gathers     none\n" : text;
}

/// Returns the conditions that every launch must meet.
std::string conditions(const std::vector<LaunchCondition>& all) {
  std::string text;
  for (const LaunchCondition& condition : all)
    text += fmt::format("{:12}{}{}\n", text.empty() ? "conditions" : "", condition.words,
                        condition.line ? fmt::format(" (line {})", condition.line) : "");
  return text;
}

/// Returns the operations that are computed in 64 bits, with an example of each.
std::string wide(const std::vector<WideOperation>& all) {
  std::string text;
  for (const WideOperation& one : all)
    text += fmt::format("{:12}{}{}\n", text.empty() ? "64 bits" : "", one.words,
                        one.line ? fmt::format(" (line {})", one.line) : "");
  return text;
}

/// Returns the line that says that gradients would not reach q and k; empty if they do.
std::string gradients(ScoreGradient gradient) {
  if (gradient == ScoreGradient::Some) return "";
  return fmt::format("gradients   score_mod {}: no gradient reaches q and k\n",
                     gradient == ScoreGradient::Stopped ? "passes none to score" : "does not depend on score");
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
  ClaimOptions claims;
  bool language = false, json = false;
};

std::string checkText(const ModExplanation& all) {
  const Mod& mod = all.mod;
  return fmt::format("{}: ok\nfunctions   {}\n", mod.name(), functionsText(mod)) + choicesText(mod) + masksText(mod) +
         capturesText(mod) + operationsText(all.operations) + conditions(all.conditions) + gathers(all.gathers) +
         wide(all.wide) + gridsText(all.grids) + gradients(all.scoreGradient) +
         fmt::format("hash        {}\n", mod.hash());
}

int runCheck(const CheckOptions& options) {
  auto mod = options.mod.load();
  if (!mod) return reportEither(mod.error(), options.json);
  options.claims.check();
  if (options.claims.areAny()) return options.claims.run(*mod, options.mod, options.json);
  auto all = explain(*mod);
  if (!all) return reportEither(all.error(), options.json);
  all->warnings = options.mod.warnings(*mod);
  auto status = printResult(options.json ? toJson(*all) : reportText(checkText(*all)));
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
  options->claims.addTo(*command);
  command->add_flag("--language", options->language,
                    "Print the language of mods: what it has, and what operations mean");
  command->footer(
      "Operations are counted at the outermost level where they are known: once a launch, (batch, head), q\n"
      "row, kv column, or for each score. A gather that is not proven to stay inside its tensor is clamped.\n\n"
      "Examples:\n"
      "  attnc check alibi.py -D CAUSAL=False\n"
      "  attnc check document.py --never \"document_id[q_idx] != document_id[kv_idx]\" --every-row-lives");
  command->callback([=, &exitCode] { exitCode = options->language ? printLanguage() : runCheck(*options); });
}

} // namespace attnc::cli
