// `attnc check`: what is wrong with a mod, or else what attnc understood: functions, captures, levels, gathers.
#include "capture_text.h"
#include "commands.h"
#include "options.h"

#include "ir/ir.h"
#include "passes/gather_proofs.h"

#include <fmt/format.h>

#include <array>
#include <iterator>
#include <memory>

namespace attnc::cli {
namespace {

const char* functions(const Mod& mod) {
  if (mod.hasScoreMod()) return mod.hasMaskMod() ? "score_mod, mask_mod" : "score_mod";
  return mod.hasMaskMod() ? "mask_mod" : "none (the identity)";
}

std::string captures(const Mod& mod) {
  std::string text;
  for (const CaptureInfo& capture : mod.captures())
    text += fmt::format("{:12}{}\n", text.empty() ? "captures" : "", declaration(capture));
  return text.empty() ? "captures    none\n" : text;
}

/// Operations at each level, for what one function returns.
std::string levelsOf(const ir::Module& module, const char* function, ir::Value root) {
  constexpr ir::Level kLevels[] = {ir::Level::Launch, ir::Level::Head, ir::Level::Row, ir::Level::Column,
                                   ir::Level::Element};
  std::array<int, std::size(kLevels)> count{};
  std::vector<ir::Level> level = ir::levels(module);
  std::vector<bool> needed(root.id + 1, false);
  needed[root.id] = true;
  for (uint32_t id = root.id + 1; id-- > 0;) {
    if (!needed[id]) continue;
    const ir::Node& node = module[{id}];
    if (ir::info(node.op).rule != ir::TypeRule::Leaf) ++count[size_t(level[id])];
    for (ir::Value operand : node.operands) needed[operand.id] = true;
  }
  std::string text;
  for (ir::Level each : kLevels)
    if (count[size_t(each)]) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count[size_t(each)], name(each));
  return fmt::format("operations  {}: {}\n", function, text.empty() ? "none" : text);
}

/// "bias[.., axis 1], line 14"
std::string place(const ir::Module& module, const passes::GatherProof& proof) {
  const ir::Node& load = module[proof.load];
  const ir::TensorCapture& tensor = module.tensors[size_t(load.attr)];
  std::string axis = tensor.shape.size() > 1 ? fmt::format(" index {}", proof.axis) : "";
  std::string line = load.line ? fmt::format(" (line {})", load.line) : "";
  return tensor.name + axis + line;
}

std::string gathers(const ir::Module& module) {
  std::string text;
  for (const passes::GatherProof& proof : passes::proveGathers(module))
    text += fmt::format("{:12}{}: {}: {}\n", text.empty() ? "gathers" : "", place(module, proof),
                        proof.proven ? "proven inside" : "clamped", proof.why);
  return text.empty() ? "gathers     none\n" : text;
}

int runCheck(const ModOptions& options) {
  auto mod = options.load();
  if (!mod) return report(mod.error());
  const ir::Module& module = mod->module();
  std::string text = fmt::format("{}: ok\nfunctions   {}\n", mod->name(), functions(*mod)) + captures(*mod);
  if (module.scoreMod) text += levelsOf(module, "score_mod", *module.scoreMod);
  if (module.maskMod) text += levelsOf(module, "mask_mod", *module.maskMod);
  text += gathers(module) + fmt::format("hash        {}\n", mod->hash());
  auto status = printResult(text);
  return status ? kDone : report(status.error());
}

} // namespace

void addCheck(CLI::App& app, int& exitCode) {
  auto options = std::make_shared<ModOptions>();
  CLI::App* command = app.add_subcommand("check", "Check a mod; show captures, levels, and which gathers are proven");
  options->addTo(*command);
  command->footer(
      "Operations are counted at the outermost level where they are known: once a launch, (batch, head), q\n"
      "row, kv column, or for each score. A gather that is not proven to stay inside its tensor is clamped.\n\n"
      "Example: attnc check alibi.py -D CAUSAL=False");
  command->callback([options, &exitCode] { exitCode = runCheck(*options); });
}

} // namespace attnc::cli
