// A module with the outputs that one pass derives.
#pragma once

#include "helpers/take.h"
#include "passes/pass.h"

#include <catch2/catch.hpp>

namespace attnc::test {

inline ir::Module derivedBy(std::string_view pass, ir::Module module) {
  take(passes::findPass(pass)->run(module, {}));
  return module;
}

inline bool hasBounds(const ir::Module& module) {
  return derivedBy("derive-kv-bounds", module).output(ir::kKvBegin).has_value();
}

} // namespace attnc::test
