// Captures for any mod, drawn at random in host memory, so that tests can loop over the library mods.
#pragma once

#include "attnc/captures.h"
#include "attnc/mod.h"
#include "attnc/problem.h"
#include "helpers/take.h"

#include <list>
#include <random>
#include <string>
#include <vector>

namespace attnc::test {

/// Owns the memory that its captures borrow.
class DrawnCaptures {
public:
  /// Draws integers in [0, `most`]. Along an axis of the sequence they do not decrease, like document ids.
  DrawnCaptures(const Mod& mod, const ProblemShape& problem, int most, uint32_t seed);
  Captures captures;

private:
  std::list<std::vector<char>> memory;
};

/// Returns the paths of dsl/mods/*.py, sorted.
std::vector<std::string> libraryMods();

} // namespace attnc::test
