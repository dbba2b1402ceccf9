// Interval arithmetic of mask_mod: what a kernel knows of a block of scores before it evaluates any of them. The host's
// counterpart is src/analysis/tile_verdict.h.
//
// The generated Mod::judge() is mask() over these types. An operation without a counterpart here gives any().
#pragma once

#include "mod/ops.cuh"

namespace attnc::mod {

ATTNC_DEVICE constexpr bool least(bool) { return false; }
ATTNC_DEVICE constexpr bool most(bool) { return true; }
ATTNC_DEVICE constexpr int least(int) { return -2147483647 - 1; }
ATTNC_DEVICE constexpr int most(int) { return 2147483647; }
ATTNC_DEVICE constexpr long long least(long long) { return -9223372036854775807ll - 1; }
ATTNC_DEVICE constexpr long long most(long long) { return 9223372036854775807ll; }
ATTNC_DEVICE float least(float) { return f32_bits(0xff800000u); }
ATTNC_DEVICE float most(float) { return f32_bits(0x7f800000u); }

template <class T> constexpr bool kIsFloat = false;
template <> inline constexpr bool kIsFloat<float> = true;

/// What the values of a block's elements depend on.
enum Of { kLaunch = 0, kRow = 1, kColumn = 2, kElement = 3 };

/// All values between two bounds, both inclusive. T: bool, int, long long or float.
template <class T> struct Range {
  T lo, hi;
  bool is_tight; // some element has the value lo, some has hi, and none is NaN. Floats that are not may be anything
  unsigned char of;

  Range() = default; // not initialized, for shared memory
  ATTNC_DEVICE Range(T value) : lo(value), hi(value), is_tight(value == value), of(kLaunch) {}
  ATTNC_DEVICE Range(T lo, T hi, bool is_tight, int of) : lo(lo), hi(hi), is_tight(is_tight), of((unsigned char)of) {}
  ATTNC_DEVICE static Range any() { return Range(least(T()), most(T()), false, kElement); }

  ATTNC_DEVICE bool is_single() const { return lo == hi; }
  ATTNC_DEVICE void add(T value) {
    is_tight = is_tight && value == value;
    lo = value < lo ? value : lo;
    hi = hi < value ? value : hi;
  }

  /// The result of a function that grows, or falls, in each argument: tight if any two of their values meet in some
  /// element.
  ATTNC_DEVICE friend bool meet(const Range& a, const Range& b) {
    return a.is_tight && b.is_tight && (!(a.of & b.of) || a.is_single() || b.is_single());
  }
  ATTNC_DEVICE static Range<bool> test(const Range& a, const Range& b, bool lo, bool hi, bool is_tight) {
    if (kIsFloat<T> && !(a.is_tight && b.is_tight)) return Range<bool>::any();
    return Range<bool>(lo, hi, lo == hi || is_tight, a.of | b.of);
  }
  ATTNC_DEVICE friend Range<bool> operator<(const Range& a, const Range& b) {
    return test(a, b, a.hi < b.lo, a.lo < b.hi, meet(a, b));
  }
  ATTNC_DEVICE friend Range<bool> operator<=(const Range& a, const Range& b) {
    return test(a, b, a.hi <= b.lo, a.lo <= b.hi, meet(a, b));
  }
  ATTNC_DEVICE friend Range<bool> operator==(const Range& a, const Range& b) {
    const bool overlap = a.lo <= b.hi && b.lo <= a.hi,
               share = a.lo == b.lo || a.hi == b.hi || a.lo == b.hi || a.hi == b.lo;
    return test(a, b, a.is_single() && b.is_single() && a.lo == b.lo, overlap, share && meet(a, b));
  }
  ATTNC_DEVICE friend Range<bool> operator!=(const Range& a, const Range& b) { return !(a == b); }

  ATTNC_DEVICE static Range wide(long long lo, long long hi, bool is_tight, int of) {
    return lo < least(T()) || hi > most(T()) ? any() : Range(T(lo), T(hi), is_tight, of);
  }
  ATTNC_DEVICE bool is_small() const { return !kIsFloat<T> && -(1ll << 61) <= lo && hi <= 1ll << 61; }
  ATTNC_DEVICE friend Range operator+(const Range& a, const Range& b) {
    if (!a.is_small() || !b.is_small()) return any();
    return wide((long long)a.lo + (long long)b.lo, (long long)a.hi + (long long)b.hi, meet(a, b), a.of | b.of);
  }
  ATTNC_DEVICE friend Range operator-(const Range& a, const Range& b) {
    if (!a.is_small() || !b.is_small()) return any();
    return wide((long long)a.lo - (long long)b.hi, (long long)a.hi - (long long)b.lo, meet(a, b), a.of | b.of);
  }
  ATTNC_DEVICE friend Range wrap_add(const Range& a, const Range& b) { return a + b; }
  ATTNC_DEVICE friend Range wrap_sub(const Range& a, const Range& b) { return a - b; }
  ATTNC_DEVICE friend Range abs_of(const Range& a) {
    if (kIsFloat<T> || a.lo == least(T())) return any();
    if (a.lo >= T(0)) return a;
    const T below = T(-a.lo);
    return a.hi <= T(0) ? Range(T(-a.hi), below, a.is_tight, a.of)
                        : Range(T(0), below < a.hi ? a.hi : below, false, a.of);
  }
  ATTNC_DEVICE friend Range min_of(const Range& a, const Range& b) {
    if (kIsFloat<T> && !(a.is_tight && b.is_tight)) return any();
    return Range(b.lo < a.lo ? b.lo : a.lo, b.hi < a.hi ? b.hi : a.hi, meet(a, b), a.of | b.of);
  }
  ATTNC_DEVICE friend Range max_of(const Range& a, const Range& b) {
    if (kIsFloat<T> && !(a.is_tight && b.is_tight)) return any();
    return Range(a.lo < b.lo ? b.lo : a.lo, a.hi < b.hi ? b.hi : a.hi, meet(a, b), a.of | b.of);
  }
  /// Returns condition ? yes : no.
  ATTNC_DEVICE static Range choose(const Range<bool>& condition, const Range& yes, const Range& no) {
    if (condition.is_single()) return condition.lo ? yes : no;
    if (kIsFloat<T>) return any();
    return Range(no.lo < yes.lo ? no.lo : yes.lo, yes.hi < no.hi ? no.hi : yes.hi, false, kElement);
  }
};

// Bits of integers are left open.
ATTNC_DEVICE Range<bool> operator&(const Range<bool>& a, const Range<bool>& b) {
  return Range<bool>(a.lo & b.lo, a.hi & b.hi, meet(a, b), a.of | b.of);
}
ATTNC_DEVICE Range<bool> operator|(const Range<bool>& a, const Range<bool>& b) {
  return Range<bool>(a.lo | b.lo, a.hi | b.hi, meet(a, b), a.of | b.of);
}
ATTNC_DEVICE Range<bool> operator!(const Range<bool>& a) { return Range<bool>(!a.hi, !a.lo, a.is_tight, a.of); }
template <class T> ATTNC_DEVICE Range<long long> i64_of(const Range<T>& a) {
  return Range<long long>(a.lo, a.hi, a.is_tight, a.of);
}

/// Functions of a value of a row or column and its range; Mod::each() passes them all.
template <int kOf> struct BeginRange {
  template <class T> ATTNC_DEVICE void operator()(Range<T>& range, T value) const {
    range = Range<T>(value);
    range.of = kOf;
  }
};
struct AddToRange {
  template <class T> ATTNC_DEVICE void operator()(Range<T>& range, T value) const { range.add(value); }
};

/// Coordinates of the scores of a block.
struct CoordRange {
  int b, h;
  Range<int> q_idx, kv_idx;
};

} // namespace attnc::mod
