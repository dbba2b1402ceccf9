// Modules of mod texts, as analyses take them.
#pragma once

#include "dsl/frontend.h"
#include "helpers/take.h"
#include "passes/pipeline.h"

#include <catch2/catch.hpp>

#include <string>

namespace attnc::test {

/// Returns the module of a text after the passes.
inline ir::Module piped(const std::string& text, const passes::PipelineOptions& options = {},
                        const dsl::FrontendOptions& given = {}) {
  INFO(text);
  auto module = take(dsl::trace(text, given));
  take(passes::runPipeline(module, options));
  return module;
}

/// Returns the module of a score_mod that returns `score`. `declarations`: the captures before it.
inline ir::Module scoreMod(const std::string& declarations, const std::string& score) {
  return piped("import torch\n" + declarations + "\ndef score_mod(score, b, h, q_idx, kv_idx):\n    return " + score +
               "\n");
}

/// The same for a mask_mod.
inline ir::Module maskMod(const std::string& declarations, const std::string& mask) {
  return piped("import torch\n" + declarations + "\ndef mask_mod(b, h, q_idx, kv_idx):\n    return " + mask + "\n");
}

} // namespace attnc::test
