// The keys that one query sees, laid out on their grid: the spatial shape of a mask for an image, a video or a volume.
#pragma once

#include "attnc/captures.h"
#include "attnc/mod.h"
#include "attnc/problem.h"
#include "picture.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace attnc::cli {

enum class KeyCell : uint8_t { Unseen, Seen, Query };

struct QueryMap {
  std::string heading;            ///< "query (3, 4)"
  std::array<int64_t, 3> extents; ///< of the grid of keys; missing leading axes are 1
  std::vector<KeyCell> cells;     ///< row-major
  int64_t seen = 0;               ///< keys on the grid that the query sees
  int64_t seenBeside = 0, beside = 0;
};

/// Returns one map for each query, of one head. A query is given by its coordinates on the grid of queries, or by its
/// position. Errors: Blame::Environment if the mod has no grid of keys, the problem does not cover the grid, or the
/// query does not exist.
Expected<std::vector<QueryMap>> queryMaps(const Mod& mod, const Captures& captures, const ProblemShape& problem,
                                          const std::vector<std::vector<int64_t>>& queries, int64_t b, int64_t h);

/// Draws two characters a key; slices of a volume one below the other.
std::string queryText(const std::vector<QueryMap>& maps);

/// Draws a picture; slices of a volume stand side by side.
Picture queryPicture(const std::vector<QueryMap>& maps, const std::vector<std::string>& headings);

} // namespace attnc::cli
