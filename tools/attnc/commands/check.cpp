// `attnc check`: prints the errors of a mod, or what attnc understood: functions, captures, levels, gathers; or proves
// claims about its mask, and holds budgets against what it costs.
#include "commands/budgets.h"
#include "commands/claims.h"
#include "commands/command.h"
#include "problem/grid_text.h"
#include "problem/mod_text.h"
#include "show/language.h"
#include "terminal.h"

#include "attnc/explain.h"
#include "support/try.h"

#include <fmt/format.h>

namespace attnc::cli {
namespace {

std::string lineText(int line) { return line ? fmt::format(" (line {})", line) : ""; }

std::string gathers(const std::vector<GatherProof>& proofs) {
  const std::string text = labelled("gathers", proofs, [](const GatherProof& proof) {
    const std::string axis = proof.rank > 1 ? fmt::format(" index {}", proof.index) : "";
    return fmt::format("{}{}{}: {}: {}", proof.capture, axis, lineText(proof.line),
                       proof.proven ? "proven inside" : "clamped where outside", proof.why);
  });
  return text.empty() ? "gathers     none\n" : text;
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
    if (!choice.others.empty() || choice.function.name != choice.kind)
      text += fmt::format("{:12}{}\n", "", choiceText(choice));
  return text;
}

struct CheckOptions : ExplainOptions {
  ClaimOptions claims;
  BudgetOptions budgets;
  bool language = false;
};

std::string checkText(const ModExplanation& all) {
  const Mod& mod = all.mod;
  return fmt::format("{}: ok\nfunctions   {}\n", mod.name(), functionsText(mod)) + choicesText(mod) + masksText(mod) +
         capturesText(mod) + operationsText(all.operations, mod) + variantsText(all.variants) +
         labelled("conditions", all.conditions,
                  [](const LaunchCondition& one) { return one.words + lineText(one.line); }) +
         gathers(all.gathers) +
         labelled("64 bits", all.wide, [](const WideOperation& one) { return one.words + lineText(one.line); }) +
         gridsText(all.grids) + gradients(all.scoreGradient) + fmt::format("hash        {}\n", mod.hash());
}

Expected<int> runCheck(const CheckOptions& options) {
  if (options.language) return exitCodeOf(printResult(kLanguage), false);
  ATTNC_TRY_AS(mod, options.mod.load());
  options.claims.check();
  if (options.claims.areAny() || !options.budgets.texts.empty()) {
    Verdicts verdicts{.text = fmt::format("{}\n", mod->name()), .json = {{"mod", mod->name()}}};
    if (options.claims.areAny()) ATTNC_TRY(options.claims.run(*mod, options.mod, verdicts));
    if (!options.budgets.texts.empty()) ATTNC_TRY(options.budgets.run(*mod, options, verdicts));
    ATTNC_TRY(printResult(options.json ? verdicts.json.dump(2) + "\n" : verdicts.text));
    return verdicts.code;
  }
  ATTNC_TRY_AS(all, explain(*mod));
  all->warnings = options.mod.warnings(*mod);
  ATTNC_TRY(printResult(options.json ? toJson(*all) : reportText(checkText(*all))));
  return kDone;
}

} // namespace

void addCheck(CLI::App& app, int& exitCode) {
  auto [command, options] = addCommand<CheckOptions>(
      app, exitCode, "check", "Check a mod; show captures, levels, and which gathers are proven", runCheck);
  options.mod.addTo(command);
  command.add_flag("--json", options.json,
                   "One JSON object instead, for programs; of a wrong mod with its diagnostics. Wrong usage (exit "
                   "code 2)\nprints none");
  options.claims.addTo(command);
  options.budgets.addTo(command, options);
  command.add_flag("--language", options.language, "Print the language of mods: what it has, and what operations mean");
  command.footer(R"(Operations are counted at the outermost level where they are known: once a launch, (batch, head), q
row, kv column, or for each score. A gather that is not proven to stay inside its tensor is clamped.

Examples:
  attnc check alibi.py -D CAUSAL=False
  attnc check document.py --never "document_id[q_idx] != document_id[kv_idx]" --every-row-lives
  attnc check causal.py --budget "h100: 1.2 ms for 2,16,16,8192,8192,128" --budget "no block mask")");
}

} // namespace attnc::cli
