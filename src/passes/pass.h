// Passes: each rewrites a module into one with the same meaning. One pass, one file, one row of passes.def.
#pragma once

#include "attnc/error.h"
#include "attnc/problem.h"
#include "ir/ir.h"
#include "ir/pins.h"

#include <string>
#include <string_view>

namespace attnc::passes {

using ir::Pins;

/// How the sequences of a batch differ from each other.
struct SequenceForm {
  bool lengths = false; ///< whether each has its own KV length
  QueryOffsets offsets = QueryOffsets::None;
  bool ragged = false; ///< whether they are concatenated in q, k and v, each with its own lengths
  bool pages = false;  ///< ragged: whether k and v lie in pages instead, so that rows of each sequence count from 0
  bool isPlain() const { return !lengths && offsets == QueryOffsets::None && !ragged; }
};

struct PassContext {
  Pins pins;
  SequenceForm sequences = {};
};

/// A pass takes a verified module and leaves a verified one with the same declarations; but `sequences` adds some and
/// order-captures permutes them. Errors (Blame::Environment): `pin`, if a pin names nothing or does not fit;
/// `sequences`, if the mod has already used one of its names.
struct Pass {
  std::string_view name;    ///< as users type it: "fold-constants"
  std::string_view summary; ///< one sentence
  Status (*run)(ir::Module& module, const PassContext& context);
};

#define PASS(function, name, summary) Status function(ir::Module& module, const PassContext& context);
#include "passes/passes.def"

/// Returns the pass of this name; null if it does not exist.
const Pass* findPass(std::string_view name);

} // namespace attnc::passes
