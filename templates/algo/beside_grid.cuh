// Tokens beside a grid: a run of those before it, and one of those behind it.
//
// Where a box has the coordinates of its first token as an origin, tokens of a run in a row have {-1 - run, 0, the
// first one's place in the run}. Mods that mean no tokens beside their grids have no such origins, and their kernels
// nothing of all this.
#pragma once

#include "attnc_mod.cuh"

namespace attnc {

/// Those of a launch, by run.
struct TokensBeside {
  int q[2], kv[2];
};

/// None where the parameters say nothing of them.
template <class Params> ATTNC_DEVICE TokensBeside beside_of(const Params& p) {
  if constexpr (requires { p.q_beside, p.kv_beside; })
    return {{p.q_beside[0], p.q_beside[1]}, {p.kv_beside[0], p.kv_beside[1]}};
  else
    return {};
}

ATTNC_DEVICE bool is_beside(const int (&origin)[3]) { return Mod::kHasBeside && origin[0] < 0; }
ATTNC_DEVICE int run_of(const int (&origin)[3]) { return -1 - origin[0]; }

/// Tiles of `each` tokens that the runs before and behind a grid take.
ATTNC_DEVICE int tiles_beside(const int (&tokens)[2], int each) {
  return (tokens[0] + each - 1) / each + (tokens[1] + each - 1) / each;
}
/// The origin of one of them: those of the run before the grid come first.
ATTNC_DEVICE void origin_beside(int (&origin)[3], int tile, const int (&tokens)[2], int each) {
  const int before = (tokens[0] + each - 1) / each, run = tile >= before;
  origin[0] = -1 - run, origin[1] = 0, origin[2] = (run ? tile - before : tile) * each;
}

/// Tokens of its run from a tile on.
ATTNC_DEVICE int left_of_run(const int (&origin)[3], const int (&tokens)[2]) {
  return (run_of(origin) ? tokens[1] : tokens[0]) - origin[2];
}

/// Rounded down; the divisor is positive.
ATTNC_DEVICE int floor_quotient(int x, int by) { return x / by - (x % by < 0); }

/// Token `place` of a run.
ATTNC_DEVICE Token token_beside(int run, int place, const int (&extent)[3], int before) {
  Token token;
  int distance = run ? extent[0] * extent[1] * extent[2] + place : place - before; // from the first one on the grid
  token.index = before + distance;
  token.on_grid = false;
#pragma unroll
  for (int i = Mod::kGridAxes - 1; i > 0; --i) {
    const int along = extent[i + 3 - Mod::kGridAxes], quotient = floor_quotient(distance, along);
    token.at[i] = distance - quotient * along;
    distance = quotient;
  }
  token.at[0] = distance;
  return token;
}

} // namespace attnc
