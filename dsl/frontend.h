// The front end: the text of a mod in, raw IR out.
#pragma once

#include "attnc/error.h"
#include "attnc/mod.h"
#include "ir/ir.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace attnc::dsl {

struct FrontendOptions {
  /// Name of the text in messages, and Module::sourceName.
  std::string name = "<mod>";
  /// Overrides of the mod's constants: name -> text of a literal.
  std::map<std::string, std::string> defines;
  /// Expressions that yield the mods, evaluated after the text: `make_mask(offsets)`. Empty: the text says which.
  std::vector<std::string> mods;
  /// Declarations of captures, as the text may hold them: `offsets: i32[N]`. They win over what the text assigns.
  std::vector<std::string> captures;
  /// Captures that are there if the mod needs a name that the text does not have, or cannot evaluate.
  std::vector<CaptureInfo> available;
};

/// What is told of a text beside its module.
struct Notes {
  std::vector<Diagnostic> warnings; ///< in order of place
  std::vector<ModChoice> choices;
  std::vector<std::string> constants; ///< that defines may override, sorted
};

/// The module of a mod's text, verified in its typing but not simplified; Node::line is set. dsl/SPEC.md is the
/// language. Any bytes are accepted as text; nothing of it is executed outside the tracer, and time and memory are
/// bounded (limits.h). Errors: Blame::Mod with all diagnostics found. Thread-safe.
Expected<ir::Module> trace(std::string_view text, const FrontendOptions& options = {}, Notes* notes = nullptr);

/// The syntax tree as readable s-expressions, one statement a line. Errors as above; names and types are not checked.
Expected<std::string> astText(std::string_view text, const FrontendOptions& options = {});

} // namespace attnc::dsl
