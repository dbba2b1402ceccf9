// Compiles kernels without a GPU, and collects what ptxas says about them.
#pragma once

#include "attnc/attnc.h"
#include "helpers/take.h"
#include "helpers/test_case.h"
#include "helpers/turns.h"

#include <catch2/catch.hpp>

#include <string>
#include <utility>
#include <vector>

namespace attnc::test {

/// Returns a compiler without a cache.
const Compiler& compiler();

/// Returns the compute capabilities that the installed NVRTC compiles for; empty without NVRTC.
std::vector<int> supported();

struct Job {
  std::string name;
  Mod mod;
  KernelOptions options;
  int spillBytes = 0;         ///< spills that a kernel may have
  std::string templates = {}; ///< part of the names of templates that are compiled; empty: all
};

/// Returns mods of the library: those that go everywhere, or the others.
std::vector<std::pair<std::string, Mod>> library(bool everywhere = true);

/// Compiles one in 32 of the jobs, chosen by their names, at least one, on all cores. Each commit has the next part, or
/// ATTNC_TEST_KERNELS_PART says which (0 .. 31). Compiles all if ATTNC_TEST_ALL_KERNELS is set, and only jobs with
/// ATTNC_TEST_KERNELS_JOBS in their names if that is set. Passes over those that ATTNC_TEST_KERNELS_DONE, a file,
/// names, and appends those in which nothing was found. Returns one finding a line: spills, ptxas advisories, more
/// shared memory than a CTA has, failures.
std::string findings(const std::vector<Job>& jobs);

} // namespace attnc::test

#define ATTNC_NEED_NVRTC()                                                                                             \
  if (attnc::test::supported().empty()) {                                                                              \
    WARN("SKIPPED: NVRTC was not found");                                                                              \
    return;                                                                                                            \
  }
#define NVRTC_TEST_CASE(...) ATTNC_TEST_CASE(ATTNC_NEED_NVRTC(), __VA_ARGS__)
