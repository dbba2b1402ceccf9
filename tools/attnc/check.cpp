// `attnc check`: what is wrong with a mod, or else what attnc understood: functions, captures, levels, gathers.
#include "commands.h"
#include "language.h"
#include "mod_text.h"
#include "options.h"

#include "analysis/gather_proofs.h"
#include "api/mod_impl.h"

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

/// The line that says that training would not reach q and k; empty where it does.
Expected<std::string> gradients(const Mod& mod) {
  auto gradient = scoreGradientOf(mod);
  if (!gradient) return std::move(gradient).error();
  if (*gradient == ScoreGradient::Some) return std::string();
  return fmt::format("gradients   score_mod {}: no gradient reaches q and k\n",
                     *gradient == ScoreGradient::Stopped ? "passes none to score" : "does not depend on score");
}

int runCheck(const ModOptions& options) {
  auto mod = options.load();
  if (!mod) return report(mod.error());
  auto forward = forwardMod(*mod);
  if (!forward) return report(forward.error());
  auto note = gradients(*mod);
  if (!note) return report(note.error());
  const ir::Module& module = forward->module();
  std::string text = fmt::format("{}: ok\nfunctions   {}\n", mod->name(), functionsText(*mod)) + masksText(*mod) +
                     capturesText(*mod) + operationsText(module);
  text += gathers(module) + *note + fmt::format("hash        {}\n", mod->hash());
  auto status = printResult(text);
  return status ? kDone : report(status.error());
}

int printLanguage() {
  auto status = printResult(kLanguage);
  return status ? kDone : report(status.error());
}

} // namespace

void addCheck(CLI::App& app, int& exitCode) {
  auto options = std::make_shared<ModOptions>();
  auto language = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("check", "Check a mod; show captures, levels, and which gathers are proven");
  options->addTo(*command);
  command->add_flag("--language", *language, "Print the language of mods: what it has, and what operations mean");
  command->footer(
      "Operations are counted at the outermost level where they are known: once a launch, (batch, head), q\n"
      "row, kv column, or for each score. A gather that is not proven to stay inside its tensor is clamped.\n\n"
      "Example: attnc check alibi.py -D CAUSAL=False");
  command->callback([=, &exitCode] { exitCode = *language ? printLanguage() : runCheck(*options); });
}

} // namespace attnc::cli
