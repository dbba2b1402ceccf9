// The keys that one query sees, laid out on their grid: the spatial shape of a mask for an image, a video or a volume.
#pragma once

#include "attnc/captures.h"
#include "attnc/mod.h"
#include "attnc/problem.h"
#include "show/picture.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace attnc::cli {

enum class KeyCell : uint8_t {
  Unseen,
  SeenByBox, ///< another query of the box sees it
  Seen,
  Query
};

/// Tokens of a grid in ranges along its axes, half open. Missing leading axes are 0 to 1.
struct GridBox {
  std::array<int64_t, 3> begin{}, end{};
  int64_t tokens() const { return (end[0] - begin[0]) * (end[1] - begin[1]) * (end[2] - begin[2]); }
};

/// A box of queries that a kernel computes at a time, and the smallest box of keys with all that these see.
struct QueryBox {
  GridBox queries, keys;
  int64_t live = 0; ///< pairs of both boxes that live
};

struct QueryMap {
  std::string heading;            ///< "query (3, 4)"
  std::array<int64_t, 3> extents; ///< of the grid of keys; missing leading axes are 1
  std::vector<KeyCell> cells;     ///< row-major
  int64_t seen = 0;               ///< keys on the grid that the query sees
  int64_t seenBeside = 0, beside = 0;
  std::optional<QueryBox> box; ///< if one was asked for
};

/// Returns one map for each query, of one head. A query is given by its coordinates on the grid of queries, or by its
/// position. `box`: extents of the boxes of queries to show, or empty. Errors: Blame::Environment if the mod has no
/// grid of keys, the problem does not cover the grid, or the query does not exist; for boxes, also if queries and keys
/// lie on different grids, or if the query is off the grid.
Expected<std::vector<QueryMap>> queryMaps(const Mod& mod, const Captures& captures, const ProblemShape& problem,
                                          const std::vector<std::vector<int64_t>>& queries, int64_t b, int64_t h,
                                          const std::vector<int64_t>& box);

/// Draws two characters a key; slices of a volume one below the other.
std::string queryText(const std::vector<QueryMap>& maps);

/// Draws a picture; slices of a volume stand side by side.
Picture queryPicture(const std::vector<QueryMap>& maps, const std::vector<std::string>& headings);

} // namespace attnc::cli
