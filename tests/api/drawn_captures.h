// Captures for any mod, drawn at random in host memory, so that the library mods can be tried in a loop.
#pragma once

#include "attnc/captures.h"
#include "attnc/mod.h"
#include "attnc/problem.h"

#include <list>
#include <random>
#include <string>
#include <vector>

namespace attnc::test {

/// Owns the memory that its captures borrow.
class DrawnCaptures {
public:
  /// Integers lie in [0, `most`]; along an axis of the sequence they do not decrease, as document ids.
  DrawnCaptures(const Mod& mod, const ProblemShape& problem, int most, uint32_t seed);
  Captures captures;

private:
  std::list<std::vector<char>> memory;
};

/// Paths of dsl/mods/*.py, sorted.
std::vector<std::string> libraryMods();

} // namespace attnc::test
