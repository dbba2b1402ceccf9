// In: a verified module. Out: the module that codegen, the reference and the hash use.
#include "passes/pipeline.h"

#include "ir/printer.h"
#include "ir/verifier.h"

#include <fmt/format.h>

#include <chrono>
#include <vector>

namespace attnc::passes {
namespace {

constexpr Pass kPasses[] = {
#define PASS(function, name, summary) {name, summary, function},
#include "passes/passes.def"
#include "support/try.h"
};

Error brokenBy(std::string_view pass, const std::string& finding, const std::string& before, const ir::Module& after) {
  // A module that does not verify may not be printable; then the finding is all that can be reported.
  bool printable = finding.find("declared") == std::string::npos && finding.find("not a node") == std::string::npos &&
                   finding.find("does not come before") == std::string::npos;
  return Error::internal(fmt::format("pass {} broke the IR: {}\n--- before\n{}--- after\n{}", pass, finding, before,
                                     printable ? ir::print(after) : "(it cannot be printed)\n"));
}

Status runOne(ir::Module& module, const Pass& pass, const PipelineOptions& options) {
  std::string before = options.verify ? ir::print(module) : std::string();
  auto start = std::chrono::steady_clock::now();
  ATTNC_TRY(pass.run(module, PassContext{options.pins, options.sequences}));
  std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
  if (options.time && options.sink)
    options.sink(fmt::format("{:<16} {:8.1f} us {:6} nodes\n", pass.name, taken.count(), module.size()));
  if (options.verify)
    if (std::optional<std::string> finding = ir::verify(module)) return brokenBy(pass.name, *finding, before, module);
  if (options.sink && (options.printAfter == "all" || options.printAfter == pass.name))
    options.sink(fmt::format("; after {}\n{}", pass.name, ir::print(module)));
  return {};
}

} // namespace

llvm::ArrayRef<Pass> allPasses() { return kPasses; }

const Pass* findPass(std::string_view name) {
  for (const Pass& pass : kPasses)
    if (pass.name == name) return &pass;
  return nullptr;
}

Status runPasses(ir::Module& module, llvm::ArrayRef<Pass> passes, const PipelineOptions& options) {
  for (const Pass& pass : passes) ATTNC_TRY(runOne(module, pass, options));
  if (options.verify) return {};
  if (std::optional<std::string> finding = ir::verify(module)) {
    return Error::internal(fmt::format("the passes broke the IR: {}; verifying after each pass tells which", *finding));
  }
  return {};
}

Status runPipeline(ir::Module& module, const PipelineOptions& options) {
  if (!options.printAfter.empty() && options.printAfter != "all" && !findPass(options.printAfter))
    return Error::environment(fmt::format("there is no pass '{}'", options.printAfter));
  std::vector<Pass> order;
  for (const char* name : {
           "sequences",      // before all passes that depend on the range of q_idx
           "lower-grids",    // the other passes make the most of the divisions
           "pin",            // from here on a pinned name is a constant
           "fold-constants", // no operation has only constant operands from here on
           "gradient-stops", // they block rules of simplify
           "lift-masks",     // before all passes that simplify the mask
           "simplify",       //
           "cse",            // operands in one order: levels then sees each value once and counts its uses correctly
           "find-grids",     // numbers are folded, and divisions still have their original form
           "levels",         // may leave adjacent constants
           "gradient-stops", // simplify may have made some of them useless
           "simplify",       // keeps what levels did: no rule moves a term across a comparison or a cast
           "cse",            //
           "dce",            // the arena holds exactly what the outputs need
           "order-captures", // declarations in canonical order: the hash does not depend on the mod's text
       })
    if (llvm::StringRef(name) != (options.keepsGrids ? "lower-grids" : "find-grids")) order.push_back(*findPass(name));
  return runPasses(module, order, options);
}

} // namespace attnc::passes
