// The identity mod: plain softmax attention. Replaces the generated header when a template is compiled by itself.
#pragma once

#include "mod/contract.cuh"
#include "mod/ranges.cuh"

namespace attnc {

struct ModArgs {
  long long unused;
};

struct Mod {
  static constexpr bool kHasMaskMod = false;
  static constexpr bool kHasBounds = false;
  static constexpr bool kRowsAreIntervals = false;
  static constexpr bool kSharesColumns = false;
  static constexpr bool kAnyOrigin = false;
  struct Head {};
  struct Row {};
  struct Col {};
  using Exponents = ProductExponents;
  ATTNC_DEVICE static Head head(const ModArgs&, int, int) { return {}; }
  ATTNC_DEVICE static Row row(const ModArgs&, const Head&, int, int, int, float) { return {}; }
  ATTNC_DEVICE static Col col(const ModArgs&, const Head&, int, int, int, float, float) { return {}; }
  ATTNC_DEVICE static float score(const ModArgs&, const Head&, const Row&, const Col&, Coord, float s) { return s; }
  ATTNC_DEVICE static bool mask(const ModArgs&, const Head&, const Row&, const Col&, Coord) { return true; }
  struct RowRange {};
  struct ColRange {};
  template <class Range, class Values, class Visit> ATTNC_DEVICE static void each(Range&, const Values&, Visit) {}
  ATTNC_DEVICE static mod::Range<bool> judge(const ModArgs&, const Head&, const RowRange&, const ColRange&,
                                             const mod::CoordRange&) {
    return true;
  }
  ATTNC_DEVICE static ScoreFactors factors(const ModArgs&, const Head&) { return {1.f, 1.f, 0.f}; }
  ATTNC_DEVICE static float row_shift(const ModArgs&, const Head&, const Row&) { return 0.f; }
};

} // namespace attnc
