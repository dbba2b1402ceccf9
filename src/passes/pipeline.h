// The pipeline: the passes in the order in which a mod goes through them, and the runner that watches over them.
#pragma once

#include "passes/pass.h"

#include <llvm/ADT/ArrayRef.h>

#include <functional>
#include <string>
#include <string_view>

namespace attnc::passes {

struct PipelineOptions {
#ifdef NDEBUG
  bool verify = false; ///< after each pass; on in Debug builds. The result is verified always
#else
  bool verify = true;
#endif
  bool time = false;                          ///< a line of time and size per pass goes to `sink`
  std::string printAfter;                     ///< "all", or the name of a pass: the IR after it goes to `sink`
  std::function<void(std::string_view)> sink; ///< gets whole lines of text; called on the calling thread
  bool keepsGrids = false; ///< coordinates are values of their own, which most kernels cannot be written from; grids are found
  Pins pins;
  SequenceForm sequences = {};
};

/// Runs all passes on a verified module. Errors: a pin that does not fit (Blame::Environment), an unknown name in
/// `printAfter` (Blame::Environment), or a pass that broke the module (Blame::Internal: the pass's name, what the
/// verifier says, and the IR before and after). After an error the module is unspecified.
Status runPipeline(ir::Module& module, const PipelineOptions& options = {});

/// The same with passes of one's own, in their order.
Status runPasses(ir::Module& module, llvm::ArrayRef<Pass> passes, const PipelineOptions& options);

} // namespace attnc::passes
