// Cases that take turns: a run of the tests does some, the run of the next commit others.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace attnc::test {

inline constexpr size_t kParts = 32;

/// Returns the number of commits of the source tree, along first parents; without git, any number.
inline size_t commits() {
  size_t count = 0;
  if (std::FILE* git = popen("git -C '" ATTNC_SOURCE_DIR "' rev-list --first-parent --count HEAD 2>/dev/null", "r")) {
    if (std::fscanf(git, "%zu", &count) != 1) count = std::random_device()();
    pclose(git);
  }
  return count;
}

/// Returns the part of the cases that this run does, below kParts, and prints it once: each commit has the next, or
/// ATTNC_TEST_KERNELS_PART says which.
inline size_t partOfRun() {
  static const size_t part = [] {
    const char* given = std::getenv("ATTNC_TEST_KERNELS_PART");
    const size_t number = (given ? size_t(std::atoi(given)) : commits()) % kParts;
    fmt::print(stderr, "part {} of the jobs; ATTNC_TEST_KERNELS_PART={} repeats it\n", number, number);
    return number;
  }();
  return part;
}

/// Returns whether the next case is this run's: one of four that follow each other, each commit another, or all if
/// ATTNC_TEST_ALL_KERNELS is set. Counts calls.
inline bool isCaseDue() {
  constexpr size_t kTurns = 4;
  static_assert(kParts % kTurns == 0);
  static size_t next = 0;
  const size_t number = next++;
  // Loops of 2, 4 or 16 cases would draw the same variant each time without the last two terms.
  const size_t turn = number + number / kTurns + number / (kTurns * kTurns);
  return std::getenv("ATTNC_TEST_ALL_KERNELS") || turn % kTurns == partOfRun() % kTurns;
}

} // namespace attnc::test
