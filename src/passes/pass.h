// Passes: what rewrites a module into one that means the same. One pass, one file, one row of passes.def.
#pragma once

#include "attnc/error.h"
#include "attnc/problem.h"
#include "ir/ir.h"
#include "ir/pins.h"

#include <string>
#include <string_view>

namespace attnc::passes {

using ir::Pins;

/// What is known of the sequences of a batch one by one.
struct SequenceForm {
  bool lengths = false; ///< each has a KV length of its own
  QueryOffsets offsets = QueryOffsets::None;
  bool ragged = false; ///< they lie one behind the other in q, k and v, each with lengths of its own
  bool isPlain() const { return !lengths && offsets == QueryOffsets::None && !ragged; }
};

struct PassContext {
  Pins pins;
  SequenceForm sequences = {};
};

/// A pass takes a verified module and leaves a verified one with the same declarations (`sequences` adds some,
/// order-captures permutes them). By Blame::Environment `pin` can fail, for a pin that names nothing or does not fit,
/// and `sequences`, for a name that is taken.
struct Pass {
  std::string_view name;    ///< as users type it: "fold-constants"
  std::string_view summary; ///< one sentence
  Status (*run)(ir::Module& module, const PassContext& context);
};

#define PASS(function, name, summary) Status function(ir::Module& module, const PassContext& context);
#include "passes/passes.def"

/// The pass of this name; null if there is none.
const Pass* findPass(std::string_view name);

} // namespace attnc::passes
