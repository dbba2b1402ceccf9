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
  /// Expressions that yield the mods, evaluated after the text: `make_mask(offsets)`. If empty, the text decides.
  std::vector<std::string> mods;
  /// Declarations of captures, spelled as in the text: `offsets: i32[N]`. They win over assignments in the text.
  std::vector<std::string> captures;
  /// Captures to use if the mod needs a name that the text does not define or cannot evaluate.
  std::vector<CaptureInfo> available;
};

/// What tracing reports besides the module.
struct Notes {
  std::vector<Diagnostic> warnings; ///< in order of place
  std::vector<ModChoice> choices;
  std::vector<std::string> constants; ///< constants that defines may override, sorted
};

/// Traces the text of a mod. Returns its module, whose types are verified but which is not simplified; Node::line is
/// set. dsl/SPEC.md is the language. Any bytes are accepted as text. Nothing of it is executed outside the tracer; time
/// and memory are bounded (limits.h). Errors: Blame::Mod with all diagnostics found. Thread-safe.
Expected<ir::Module> trace(std::string_view text, const FrontendOptions& options = {}, Notes* notes = nullptr);

/// Returns the syntax tree as readable s-expressions, one statement a line. Errors as for trace(); names and types are
/// not checked.
Expected<std::string> astText(std::string_view text, const FrontendOptions& options = {});

} // namespace attnc::dsl
