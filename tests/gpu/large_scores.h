// Problems whose scores are of any size: what GPU tests of them share.
#pragma once

#include "gpu.h"
#include "tools/attnc/random.h"

namespace attnc::gputest {

constexpr float kLargeScale = 0.125f;

/// Where scores are large, how large, and by what.
struct LargeCase {
  using Where = cli::LargeScores::Pattern;
  enum class Way {
    Element, ///< a bias of each element
    Column,  ///< of each column
    Row,     ///< of each row
    Product, ///< rows of k that are so long
  };
  Where where = Where::Half;
  Way way = Way::Element;
  double size = -1e9;

  Mod mod() const;
  std::string text() const;
};

/// All that are worth a try, of sizes from 1e4 to the largest f32.
std::vector<LargeCase> largeCases();

/// q and k of -1, 0 and 1, but for long rows of k: products are exact multiples of kLargeScale. v is normal.
HostOperands drawLarge(const LargeCase& large, const Problem& problem);

} // namespace attnc::gputest
