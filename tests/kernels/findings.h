// Kernels compiled without a GPU, and what ptxas says of them.
#pragma once

#include "attnc/attnc.h"

#include <catch2/catch.hpp>

#include <string>
#include <utility>
#include <vector>

namespace attnc::test {

/// Without a cache.
const Compiler& compiler();

/// Compute capabilities that the NVRTC at hand compiles for; empty where there is none.
std::vector<int> supported();

struct Job {
  std::string name;
  Mod mod;
  KernelOptions options;
  int spillBytes = 0; ///< that a kernel may have
};

/// Mods of the library, those that go everywhere or the others.
std::vector<std::pair<std::string, Mod>> library(bool everywhere = true);

enum class Which {
  Third, ///< of the jobs, told by their names; all with ATTNC_TEST_ALL_KERNELS in the environment
  All,
};

/// Compiles jobs on all cores; one finding a line: what spilled, what ptxas advised against, what asks for more shared
/// memory than a CTA has, what failed. All of this program's take two cores more than ten minutes.
std::string findings(const std::vector<Job>& jobs, Which which = Which::Third);

} // namespace attnc::test

#define ATTNC_NEED_NVRTC()                                                                                             \
  if (attnc::test::supported().empty()) {                                                                              \
    WARN("SKIPPED: NVRTC was not found");                                                                              \
    return;                                                                                                            \
  }
