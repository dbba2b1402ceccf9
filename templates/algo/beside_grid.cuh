// Off-grid tokens: a run before the grid, and a run after it.
//
// For boxes, an origin is the coordinates of the first token. For off-grid tokens in a row it is {-1 - run, 0, place of
// the first one in the run}. Mods without off-grid tokens have no negative origins, and their kernels none of this
// code.
#pragma once

#include "attnc_mod.cuh"

namespace attnc {

/// Off-grid tokens of a launch, by run.
struct TokensBeside {
  int q[2], kv[2];
};

/// Returns none if the parameters have no off-grid tokens.
template <class Params> ATTNC_DEVICE TokensBeside beside_of(const Params& p) {
  if constexpr (requires { p.q_beside, p.kv_beside; })
    return {{p.q_beside[0], p.q_beside[1]}, {p.kv_beside[0], p.kv_beside[1]}};
  else
    return {};
}

ATTNC_DEVICE bool is_beside(const int (&origin)[3]) { return Mod::kHasBeside && origin[0] < 0; }
ATTNC_DEVICE int run_of(const int (&origin)[3]) { return -1 - origin[0]; }

/// Returns how many tiles of `each` tokens the runs before and after a grid take.
ATTNC_DEVICE int tiles_beside(const int (&tokens)[2], int each) {
  return (tokens[0] + each - 1) / each + (tokens[1] + each - 1) / each;
}
/// Sets the origin of one of these tiles. The run before the grid comes first.
ATTNC_DEVICE void origin_beside(int (&origin)[3], int tile, const int (&tokens)[2], int each) {
  const int before = (tokens[0] + each - 1) / each, run = tile >= before;
  origin[0] = -1 - run, origin[1] = 0, origin[2] = (run ? tile - before : tile) * each;
}

/// Returns how many tokens of the run lie at or behind a tile's origin.
ATTNC_DEVICE int left_of_run(const int (&origin)[3], const int (&tokens)[2]) {
  return (run_of(origin) ? tokens[1] : tokens[0]) - origin[2];
}

/// Returns x / by, rounded down. `by` is positive.
ATTNC_DEVICE int floor_quotient(int x, int by) { return x / by - (x % by < 0); }

/// Returns token `place` of a run.
ATTNC_DEVICE Token token_beside(int run, int place, const int (&extent)[3], int before) {
  Token token;
  int distance = run ? extent[0] * extent[1] * extent[2] + place : place - before; // from the first token on the grid
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
