// Compares results with expected values: for tests, benchmarks and `attnc run --verify`.
//
//   Comparison comparison({.absolute = 1e-3});
//   for (size_t i = 0; i < got.size(); ++i) comparison.add(got[i], want[i]);
//   if (!comparison.holds()) report(comparison.firstBadText());
//
// An infinity matches an equal infinity, and NaN matches NaN. Any other pair that is not finite on both sides fails,
// whatever the tolerance and whatever follows. These pairs do not count in errors and RMSE.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace attnc::reference {

/// A finite element may be off by `absolute + relative * |expected|`.
struct Tolerance {
  double absolute = 0, relative = 0;
};

class Comparison {
public:
  struct Element {
    int64_t index; ///< counted by add()
    double actual, expected;
  };

  explicit Comparison(Tolerance tolerance) : tolerance(tolerance) {}

  /// Compares one element. `more`: additional tolerance for this element; if infinite, it only needs to be finite where
  /// `expected` is. `counts`: whether its error counts in maxError() and rmse().
  void add(double actual, double expected, double more = 0, bool counts = true);

  bool holds() const { return !bad; }
  /// Returns the first element that is beyond the tolerance, or finite on only one side.
  const std::optional<Element>& firstBad() const { return bad; }
  /// Returns "element 7 is nan, should be 2"; empty if all hold.
  std::string firstBadText() const;

  int64_t count() const { return added; }
  /// Returns the number of elements with NaN or an infinity on one side and something else on the other.
  int64_t misplaced() const { return misplacedCount; }
  /// Return the largest error, and the root of the mean squared error, over the elements that are finite on both sides.
  double maxError() const { return largest; }
  /// Returns the largest error as a share of what its element may be off by.
  double largestShare() const { return share; }
  double rmse() const;

private:
  Tolerance tolerance;
  std::optional<Element> bad;
  int64_t added = 0, finite = 0, misplacedCount = 0;
  double largest = 0, share = 0, squares = 0;
};

} // namespace attnc::reference
