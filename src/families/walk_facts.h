// What the choice of a tile depends on, besides the request.
#pragma once

#include <cstdint>

namespace attnc::plan {

/// What a launch tells of its walks.
struct WalkFacts {
  int64_t rows = 0;      ///< of q
  int64_t columns = 0;   ///< that the row in the middle of q sees
  bool isWindow = false; ///< whether it does not see the first column
  int64_t group = 1;     ///< query heads that share a KV head
};

} // namespace attnc::plan
