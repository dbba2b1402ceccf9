// Problems with scores of any size, for GPU tests.
#pragma once

#include "gpu.h"
#include "tools/attnc/problem/random.h"

namespace attnc::gputest {

constexpr float kLargeScale = 0.125f;

/// Which scores are large, how large, and what makes them so.
struct LargeCase {
  using Where = cli::LargeScores::Pattern;
  enum class Way {
    Element, ///< a bias of each element
    Column,  ///< a bias of each column
    Row,     ///< a bias of each row
    Product, ///< long rows of k
  };
  Where where = Where::Half;
  Way way = Way::Element;
  double size = -1e9;

  Mod mod() const;
  std::string text() const;
};

/// Returns all cases worth testing, with sizes from 1e4 to the largest f32.
std::vector<LargeCase> largeCases();

/// Draws q and k of -1, 0 and 1, except for long rows of k, so that products are exact multiples of kLargeScale. v is
/// normal.
HostOperands drawLarge(const LargeCase& large, const Problem& problem);

} // namespace attnc::gputest
