// What `attnc explain` and `attnc serve` are asked, and what they find.
#pragma once

#include "attnc/explain.h"
#include "problem/problem_options.h"

#include <optional>
#include <string>

namespace attnc::cli {

struct ExplainOptions : ProblemOptions {
  ShapeText given;                 ///< as --shape says it
  const CLI::App* owner = nullptr; ///< the command
  std::string html;                ///< a file for the page; empty: none
  std::string newer;               ///< a file of a mod that is compared; empty: none

  bool isBackward() const { return kernelKind.kind == "backward"; }
};

/// Adds --kernel, --shape and the target of a kernel.
void addKernel(CLI::App& command, ExplainOptions& options);

/// The target of a kernel.
struct Target {
  std::string arch;
  std::string device; ///< device whose measured tiles count; empty if there is no GPU of the arch
};

/// Returns the requested arch, else that of the first GPU, else sm_90a.
Target targetFor(const std::string& asked);

/// Settles, compiles and explains the kernel of a mod that has its pins folded in. Throws CLI::Error for options that
/// do not fit each other or the mod.
Expected<Explanation> explanationOf(const Mod& mod, const ExplainOptions& options, const Target& target);

} // namespace attnc::cli
