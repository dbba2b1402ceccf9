// The pipeline: the passes in the order in which they run on a mod, and the runner that checks them.
#pragma once

#include "passes/pass.h"

#include <llvm/ADT/ArrayRef.h>

#include <functional>
#include <string>
#include <string_view>

namespace attnc::passes {

struct PipelineOptions {
#ifdef NDEBUG
  bool verify = false; ///< after each pass; default: only in Debug builds. The result is always verified
#else
  bool verify = true;
#endif
  bool time = false;                          ///< writes a line of time and size per pass to `sink`
  std::string printAfter;                     ///< "all", or the name of a pass: writes the IR after it to `sink`
  std::function<void(std::string_view)> sink; ///< receives whole lines of text, on the calling thread
  bool keepsGrids = false; ///< keeps coordinates as values of their own, and finds grids. Most kernels cannot be
                           ///< written from the result
  Pins pins;
  SequenceForm sequences = {};
};

/// Returns all passes, in alphabetical order.
llvm::ArrayRef<Pass> allPasses();

/// Runs all passes on a verified module. Errors: a pin that does not fit (Blame::Environment); an unknown name in
/// `printAfter` (Blame::Environment); a pass that broke the module (Blame::Internal, with the pass's name, the
/// verifier's finding, and the IR before and after). After an error the module is unspecified.
Status runPipeline(ir::Module& module, const PipelineOptions& options = {});

/// Runs the given passes in order, like runPipeline().
Status runPasses(ir::Module& module, llvm::ArrayRef<Pass> passes, const PipelineOptions& options);

} // namespace attnc::passes
