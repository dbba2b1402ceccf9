// A mod with gradients of captures of every reach, for templates that run on the host. What a place gets is an integer,
// so that sums are exact in any order.
#pragma once

#include "mod/contract.cuh"

namespace attnc {

struct ModArgs {
  int q_len, kv_len;
  bool is_sparse = false; // mask() is not true for all
  int jumps = 1;          // keys that box() gives to neighbouring queries are that far apart, modulo 8
};

/// What hooks take for a token: its position, whether it comes with coordinates or not.
struct Position {
  int index;
  ATTNC_DEVICE Position(int index) : index(index) {}
  ATTNC_DEVICE Position(Token token) : index(token.index) {}
};

struct Mod {
  static constexpr bool kHasMaskMod = false;
  static constexpr bool kHasBounds = false;
  static constexpr bool kRowsAreIntervals = false;
  static constexpr bool kSharesColumns = false;
  static constexpr bool kAnyOrigin = false;
  struct Head {
    int b, h;
  };
  struct Row {
    int q_idx;
  };
  struct Col {
    int kv_idx;
  };
  using Exponents = ScoreExponents;
  ATTNC_DEVICE static Head head(const ModArgs&, int b, int h) { return {b, h}; }
  ATTNC_DEVICE static Row row(const ModArgs&, const Head&, int, int, Position q, float) { return {q.index}; }
  ATTNC_DEVICE static Col col(const ModArgs&, const Head&, int, int, Position kv, float, float) { return {kv.index}; }
  ATTNC_DEVICE static float score(const ModArgs&, const Head&, const Row&, const Col&, Coord, float s) { return s; }
  /// If is_sparse, tokens on grids of kRows x kColumns along the last axes see most of their box().
  static constexpr int kRows = 9, kColumns = 11;
  ATTNC_DEVICE static bool mask(const ModArgs& args, const Head& head, const Row& row, const Col& col, Coord) {
    if (!args.is_sparse) return true;
    const int q[] = {row.q_idx / kColumns / kRows, row.q_idx / kColumns % kRows, row.q_idx % kColumns};
    const int k[] = {col.kv_idx / kColumns / kRows, col.kv_idx / kColumns % kRows, col.kv_idx % kColumns};
    bool near = true;
    for (int axis = 0; axis < 3; ++axis) near &= k[axis] >= q[axis] - 1 && k[axis] <= q[axis] + 1;
    return near && (q[2] >= 8 || (row.q_idx + col.kv_idx + head.h + head.b) % 4 != 0);
  }
  ATTNC_DEVICE static ScoreFactors factors(const ModArgs&, const Head&) { return {1.f, 1.f, 0.f}; }
  ATTNC_DEVICE static float row_shift(const ModArgs&, const Head&, const Row&) { return 0.f; }

  static constexpr int kGridAxes = 3;
  static constexpr bool kBoxIsMask = true;
  static constexpr bool kHasBeside = true;
  static constexpr Beside kKeyBeside = Beside::All, kQueryBeside = Beside::All, kBothBeside = Beside::All;
  ATTNC_DEVICE static KeyBox box(const ModArgs& args, const Head&, int, int, Token q) {
    const auto at = [&](int axis) { return args.jumps == 1 ? q.at[axis] : q.at[axis] * args.jumps % 8; };
    return {{at(0) - 1, at(1) - 1, at(2) - 1}, {at(0) + 2, at(1) + 2, at(2) + 2}};
  }

  static constexpr int kGradients = 10;
  template <int Index, GradientReach Reach, int Rounds, bool RoundMoves> struct Gradient {
    static constexpr int kIndex = Index, kCapture = Index, kRounds = Rounds;
    static constexpr bool kRoundMoves = RoundMoves;
    static constexpr GradientReach kReach = Reach;
    ATTNC_DEVICE static float value(const ModArgs&, const Head& head, const Row& row, const Col& col, Coord at,
                                    float score, float grad, int round) {
      const bool agrees = head.b == at.b && head.h == at.h && row.q_idx == at.q_idx && col.kv_idx == at.kv_idx;
      return agrees ? grad * float(1 + at.q_idx % 3 + at.kv_idx % 5 * 2 + round) + score : 1e6f;
    }
    ATTNC_DEVICE static long long offset(const ModArgs& args, const Head& head, const Row& row, const Col& col, Coord,
                                         int round) {
      const int at = Reach == GradientReach::Head       ? 0
                     : Reach == GradientReach::Row      ? row.q_idx
                     : Reach == GradientReach::Column   ? col.kv_idx
                     : Reach == GradientReach::Diagonal ? row.q_idx - col.kv_idx + args.kv_len
                                                        : row.q_idx * args.kv_len + col.kv_idx;
      const int size = args.q_len * args.kv_len + args.q_len + args.kv_len;
      return ((long long)(head.b + head.h) * Rounds + (RoundMoves ? round : 0)) * size + at;
    }
  };
  template <class Visit> ATTNC_DEVICE static void gradients(Visit visit) {
    visit(Gradient<0, GradientReach::Head, 1, false>());
    visit(Gradient<1, GradientReach::Row, 1, false>());
    visit(Gradient<2, GradientReach::Column, 1, false>());
    visit(Gradient<3, GradientReach::Diagonal, 1, false>());
    visit(Gradient<4, GradientReach::Element, 1, false>());
    visit(Gradient<5, GradientReach::Head, 3, true>());
    visit(Gradient<6, GradientReach::Row, 3, true>());
    visit(Gradient<7, GradientReach::Column, 3, true>());
    visit(Gradient<8, GradientReach::Diagonal, 3, true>());
    visit(Gradient<9, GradientReach::Row, 3, false>());
  }
};

} // namespace attnc
