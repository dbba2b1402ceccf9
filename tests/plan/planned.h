// Plans for tests. A request that has none fails the test.
#pragma once

#include "api/mod_impl.h"
#include "helpers/plan_parts.h"

#include <catch2/catch.hpp>

namespace attnc::test {

inline plan::Plan planOf(const Mod& mod, const KernelOptions& options) {
  auto derived = take(derive(mod, options));
  return take(test::choosePlan(derived, options));
}

} // namespace attnc::test
