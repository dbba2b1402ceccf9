// Counts the visits of some work (src/ir/visits.h), to test that it grows linearly with a mod even on a busy machine.
//
//   CHECK(attnc::test::visitsOf(twice) < 2.5 * attnc::test::visitsOf(once)); // linear, or a logarithm more
#pragma once

#include "ir/visits.h"

namespace attnc::test {

template <class Work> double visitsOf(Work work) {
  const uint64_t before = ir::visits;
  work();
  return double(ir::visits - before);
}

} // namespace attnc::test
