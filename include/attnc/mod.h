// Mods: text in, checked program out.
#pragma once

#include "attnc/error.h"
#include "attnc/tensor.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace attnc {

namespace ir {
class Module;
}

/// What a mod needs at launch.
struct CaptureInfo {
  enum class Kind { Tensor, Int, Float, Bool };
  std::string name;
  Kind kind = Kind::Tensor;
  DType dtype = DType::F32;        ///< of a tensor
  std::vector<std::string> extent; ///< of a tensor: "4", "H", "KV_LEN", or a free name
};

/// A function of a text that could be a mod.
struct ModFunction {
  std::string name; ///< as the text has it: "causal", "and_masks(causal, document)", "a lambda"
  int line = 0;     ///< of its definition, or of the call that it is given in; 0: it stands beside the text
};

/// A mod, and why it is that function.
struct ModChoice {
  bool isScore = false; ///< score_mod, else mask_mod
  ModFunction function;
  std::string why;                 ///< "given to `create_block_mask` in line 24", "its name", ...
  std::vector<ModFunction> others; ///< functions of the text that take as many arguments
};

/// How a mod's text is read.
struct ParseOptions {
  /// Name of the text in messages; usually the path.
  std::string name = "<mod>";
  /// `-D NAME=VALUE`: overrides of the mod's constants (`NAME = literal`). The value is the text of a literal.
  std::map<std::string, std::string> defines;
  /// `--mod EXPR`: expressions that yield the mods, evaluated after the text: "make_mask(offsets)", "soft_cap", or a
  /// pair of both functions. A function that is no mod itself is called, with the captures that its parameters name or
  /// are annotated as. Empty: the text says which functions are the mods.
  std::vector<std::string> mods;
  /// `--capture DECLARATION`: "offsets: i32[N]", as the text may declare it. It wins over what the text assigns.
  std::vector<std::string> captures;
  /// Captures that are taken where the mod needs a name that the text does not have, or cannot evaluate. Extents as in
  /// CaptureInfo; those that nothing needs are ignored.
  std::vector<CaptureInfo> available;
};

/// A parsed, traced and simplified mod file. Immutable; copies share; any thread may use it.
class Mod {
public:
  /// Reads a mod: a Python-subset file with `score_mod` and/or `mask_mod`, or a bare expression ("q_idx >= kv_idx",
  /// "score * 0.5"). dsl/SPEC.md is the language. Nothing of the text is executed outside the tracer. Errors:
  /// Blame::Mod with diagnostics; Blame::Environment where no thread can be made, for parsing runs on one of its own (8
  /// MiB of stack). Cost: well under a millisecond for usual mods; no disk, no GPU.
  static Expected<Mod> parse(std::string_view text, const ParseOptions& options = {});

  /// The same for a file; a file that cannot be read is Blame::Environment. `options.name` is replaced by the path. A
  /// file *.ir is read as IR text.
  static Expected<Mod> load(const std::string& path, ParseOptions options = {});

  /// Reads IR text, as irText() writes it. `name` is the text's name in messages. Errors: Blame::Mod with diagnostics.
  static Expected<Mod> parseIr(std::string_view text, std::string_view name = "<ir>");

  /// The mod that changes nothing.
  static Mod identity();

  /// This mod with extents ("KV_LEN", free names of dims) and scalars folded as constants, to look at or to build block
  /// masks of; they are declared all the same. Kernels are pinned by KernelOptions::pins or PrepareOptions::pins: then
  /// each launch is held to the values. Errors (environment): a name that the mod does not have, a value that does not
  /// fit. Runs the passes again; no disk, no GPU.
  Expected<Mod> pinned(const std::map<std::string, int64_t>& pins) const;

  const std::string& name() const;
  bool hasScoreMod() const;
  bool hasMaskMod() const;
  const std::vector<CaptureInfo>& captures() const;
  /// Names of the text that ParseOptions::defines may override, sorted. Empty for IR.
  const std::vector<std::string>& constants() const;

  /// Which functions of the text were taken, and what was passed over. Empty for IR.
  const std::vector<ModChoice>& choices() const;
  /// What the text says that is legal, and probably not meant (dsl/warnings.def), in order of place. Empty for IR.
  const std::vector<Diagnostic>& warnings() const;

  /// The stages as text. ast: as parsed; empty for a mod that was read as IR. ir: after all passes; load() reads it
  /// back from a file *.ir.
  std::string astText() const;
  std::string irText() const;

  /// SHA-256 (hex) of the canonical IR: equal for mods that differ only in names, spacing and order of definition.
  const std::string& hash() const;

  /// The program itself, for attnc's own layers.
  const ir::Module& module() const;

private:
  friend struct ModAccess; // src/api: makes mods from mods
  struct Impl;
  explicit Mod(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl;
};

/// Ids of all warnings, in the order of dsl/warnings.def.
const std::vector<std::string>& warningIds();

} // namespace attnc
