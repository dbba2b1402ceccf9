// Claims and assumptions as text.
#include "api/mod_impl.h"
#include "attnc/prove.h"
#include "support/try.h"

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/StringRef.h>

namespace attnc {

Expected<Mod> propertyOf(const Mod& mod, std::string_view expression, const std::string& name) {
  if (llvm::StringRef(expression).trim().empty())
    return Error::environment(fmt::format("{} is empty", name), "write an expression, such as \"kv_idx <= q_idx\"");
  const ModSource& source = sourceOf(mod);
  const ParseOptions parse{.name = name,
                           .defines = source.defines,
                           .mods = {fmt::format("lambda b, h, q_idx, kv_idx: ({}\n)", expression)},
                           .captures = source.declared,
                           .available = mod.captures()};
  auto property = Mod::parse(mod.text(), parse);
  if (property) return property;
  Error error = property.error(); // the front end knows expressions as those of --mod
  const auto rename = [&](std::string& text) {
    constexpr std::string_view kMods = "<--mod>";
    for (size_t at = 0; (at = text.find(kMods, at)) != std::string::npos; at += name.size())
      text.replace(at, kMods.size(), name);
  };
  rename(error.message);
  for (Diagnostic& found : error.diagnostics) rename(found.file), rename(found.rendered);
  return error;
}

Status addAssumptions(const Mod& mod, std::string_view text, ProofOptions& options, const std::string& name) {
  llvm::SmallVector<llvm::StringRef, 4> parts;
  llvm::StringRef(text).split(parts, ';');
  for (llvm::StringRef part : parts) {
    llvm::StringRef sorted = part.trim();
    if (sorted.empty()) continue;
    if (!sorted.consume_back(" does not decrease")) {
      auto assumption = propertyOf(mod, part, name);
      if (!assumption) {
        Error error = std::move(assumption).error();
        if (error.blame == Blame::Mod)
          error.message += "note: an assumption is an expression, or \"NAME does not decrease\"\n";
        return error;
      }
      options.assumptions.push_back(*std::move(assumption));
      continue;
    }
    const std::string capture = sorted.trim().str();
    if (llvm::none_of(mod.captures(),
                      [&](const CaptureInfo& known) { return known.name == capture && !known.extent.empty(); }))
      return Error::environment(fmt::format("the mod captures no tensor `{}` with an axis", capture));
    options.nondecreasing.push_back(capture);
  }
  return {};
}

} // namespace attnc
