// Plans for tests. A request that has none fails the test.
#pragma once

#include "api/mod_impl.h"
#include "helpers/plan_parts.h"

#include <catch2/catch.hpp>

namespace attnc::test {

inline plan::Plan planOf(const Mod& mod, const KernelOptions& options) {
  auto derived = derive(mod, options);
  if (!derived) FAIL(derived.error().message);
  auto plan = test::choosePlan(*derived, options);
  if (!plan) FAIL(plan.error().message);
  return *std::move(plan);
}

} // namespace attnc::test
