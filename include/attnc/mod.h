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

/// A capture that a mod needs at launch.
struct CaptureInfo {
  /// Kind of a captured value.
  enum class Kind {
    Tensor, ///< A tensor.
    Int,    ///< An i32.
    Float,  ///< An f32.
    Bool,   ///< A bool.
  };
  std::string name;                ///< Name of the capture.
  Kind kind = Kind::Tensor;        ///< Kind of its value.
  DType dtype = DType::F32;        ///< For a tensor: its dtype.
  std::vector<std::string> extent; ///< For a tensor: its extents, each "4", "H", "KV_LEN", or a free name.
  int64_t choices = 0;             ///< Number of mods that its elements choose between, 0 to that less one. 0: none.
  bool isSum = false;              ///< For an output of the mod: whether it is a sum, and no maximum.
};

/// A function in a text that could be a mod.
struct ModFunction {
  std::string name; ///< Name as in the text: "causal", "and_masks(causal, document)", "a lambda".
  int line = 0;     ///< Line of its definition, or of the call that passes it. 0: it was given outside the text.
};

/// A chosen mod function, and why it was chosen.
struct ModChoice {
  std::string kind;                ///< "score_mod", "mask_mod", "prob_mod" or "sink_mod".
  ModFunction function;            ///< The chosen function.
  std::string why;                 ///< Why it was chosen: "given to `create_block_mask` in line 24", "its name", ...
  std::vector<ModFunction> others; ///< Other functions of the text that take as many arguments.
};

/// How a mod's text is read.
struct ParseOptions {
  /// Name of the text in messages, usually its path.
  std::string name = "<mod>";
  /// Overrides of the mod's constants (`NAME = literal`), by name; `-D NAME=VALUE` of the command. A value is the text
  /// of a literal.
  std::map<std::string, std::string> defines = {};
  /// Expressions that yield the mods, evaluated after the text; `--mod EXPR` of the command. Examples:
  /// "make_mask(offsets)", "soft_cap", or a pair of both functions. A function that is no mod itself is called; its
  /// parameters' names or annotations say which captures it gets. Empty: the text says which functions are the mods.
  std::vector<std::string> mods = {};
  /// Declarations of captures, as in the text: "offsets: i32[N]"; `--capture DECLARATION` of the command. A declaration
  /// wins over an assignment in the text.
  std::vector<std::string> captures = {};
  /// Captures to use if the mod needs a name that the text does not define or cannot evaluate. Extents as in
  /// CaptureInfo. Unneeded ones are ignored.
  std::vector<CaptureInfo> available = {};
};

/// A parsed, traced and simplified mod. It is immutable, copies share it, and any thread may use it.
class Mod {
public:
  /// Parses a mod: a Python-subset text with `score_mod` and/or `mask_mod`, or a bare expression ("q_idx >= kv_idx",
  /// "score * 0.5"). The language is specified in dsl/SPEC.md. Nothing in the text is executed outside the tracer.
  ///
  /// Parsing takes well under a millisecond for usual mods. It runs on its own thread with 8 MiB of stack. It needs no
  /// disk and no GPU. Errors: Blame::Mod with diagnostics; Blame::Environment if no thread can be created.
  static Expected<Mod> parse(std::string_view text, const ParseOptions& options = {});

  /// Reads a mod from a file, as parse() does; a *.ir file as parseIr() does. The path replaces `options.name`. Errors:
  /// those of parse(); Blame::Environment if the file cannot be read, or if options for text are given for IR.
  static Expected<Mod> load(const std::string& path, ParseOptions options = {});

  /// Parses IR text as written by irText(). `name` is the text's name in messages. Errors: Blame::Mod with diagnostics.
  static Expected<Mod> parseIr(std::string_view text, std::string_view name = "<ir>");

  /// Returns the mod that changes nothing.
  static Mod identity();

  /// Returns the mod in which sequence b has mods[which[b]]. `which` declares the capture that says so: "which:
  /// i32[B]". A value that names no mod is an error on the CPU, and masks all scores of the sequence on a GPU.
  ///
  /// Its captures are those of all mods; equal names are one capture. A mod without a mask masks nothing, and one
  /// without a score_mod changes no score, and one without a sink_mod has no sink. Errors: Blame::Mod for another
  /// declaration of `which`; Blame::Environment for no mods, or for two declarations of a name that differ.
  static Expected<Mod> choice(const std::vector<Mod>& mods, std::string_view which);

  /// Returns this mod with extents ("KV_LEN", free names of dims) and scalars folded as constants. Pinned names stay
  /// declared. Use it to inspect a mod or to build its block masks. Pin kernels with KernelOptions::pins or
  /// PrepareOptions::pins instead, so that each launch is checked against the values.
  ///
  /// Runs the passes again; needs no disk and no GPU. Errors (environment): a name that the mod does not have; a value
  /// that does not fit.
  Expected<Mod> pinned(const std::map<std::string, int64_t>& pins) const;

  /// Returns the name of the mod's text: ParseOptions::name, or the path.
  const std::string& name() const;
  /// Returns whether the mod changes scores.
  bool hasScoreMod() const;
  /// Returns whether the mod masks scores by a mask_mod.
  bool hasMaskMod() const;
  /// Returns whether a prob_mod changes the weights of the softmax that multiply v.
  bool hasProbMod() const;
  /// Returns whether this prob_mod is not proved to be `prob` times a factor that does not depend on it. Forward passes
  /// then take two walks: one finds lse, the other computes weights and out.
  bool walksTwice() const;
  /// Returns whether a sink_mod adds a term to the denominators of rows.
  bool hasSinkMod() const;
  /// Returns whether the mod computes the weights of v by a weight_mod, in place of the softmax. It then also changes
  /// scores (hasScoreMod).
  bool hasWeightMod() const;
  /// Returns whether score_mod masks scores by -inf. mask_mod then includes these masks.
  bool masksLifted() const;
  /// Returns whether the mod declares grids on which tokens lie.
  bool declaresGrids() const;
  /// Returns the captures that the mod needs at launch.
  const std::vector<CaptureInfo>& captures() const;
  /// Returns the outputs that the mod declares, which a launch may ask for (Outputs::reductions): f32 tensors.
  const std::vector<CaptureInfo>& reductions() const;
  /// Returns the captures that hold gradients of the sums among these outputs in a backward launch (BackwardOperands).
  const std::vector<CaptureInfo>& reductionGradients() const;
  /// Returns the names in the text that ParseOptions::defines may override, sorted. Empty for IR.
  const std::vector<std::string>& constants() const;

  /// Returns the functions of the text that were chosen, with the alternatives. Empty for IR.
  const std::vector<ModChoice>& choices() const;
  /// Returns warnings about legal text that is probably not meant (dsl/warnings.def), in text order. Empty for IR.
  const std::vector<Diagnostic>& warnings() const;

  /// Returns the text that was parsed. Empty for a mod that was read as IR.
  const std::string& text() const;
  /// Returns the syntax tree as text. Empty for a mod that was read as IR.
  std::string astText() const;
  /// Returns the IR after all passes as text, with coordinates on declared grids as operations. load() reads it back
  /// from a *.ir file.
  std::string irText() const;

  /// Returns the SHA-256 of the canonical IR, in hex. It is equal for mods that differ only in names, spacing and order
  /// of definition.
  const std::string& hash() const;

  /// Returns the program itself, for attnc's own layers.
  const ir::Module& module() const;

private:
  friend struct ModAccess; // src/api: makes mods from mods
  struct Impl;
  explicit Mod(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl;
};

/// Returns the ids of all warnings, in the order of dsl/warnings.def.
const std::vector<std::string>& warningIds();

} // namespace attnc
