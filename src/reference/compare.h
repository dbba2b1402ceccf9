// Compares results with expected values: for tests, benchmarks and `attnc run --verify`.
//
//   Comparison comparison({.absolute = 1e-3});
//   for (size_t i = 0; i < got.size(); ++i) comparison.add(got[i], want[i]);
//   if (!comparison.holds()) report(comparison.firstBadText());
//
// An infinity matches an equal infinity, and NaN matches NaN. Any other pair that is not finite on both sides fails,
// whatever the tolerance and whatever follows. Such pairs take no part in errors and RMSE.
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
    int64_t index; ///< as counted by add()
    double actual, expected;
  };

  explicit Comparison(Tolerance tolerance) : tolerance(tolerance) {}

  /// `more`: by which this element may be off besides. Infinite: it need only be as finite, and takes no part in
  /// errors.
  void add(double actual, double expected, double more = 0);

  bool holds() const { return !bad; }
  /// The first element that is beyond the tolerance or not finite where it should be, or the other way round.
  const std::optional<Element>& firstBad() const { return bad; }
  /// "element 7 is nan, should be 2"; empty if all hold.
  std::string firstBadText() const;

  int64_t count() const { return added; }
  /// Elements of which one side is NaN or infinite and the other is not the same.
  int64_t misplaced() const { return misplacedCount; }
  /// The largest error, and the root of the mean squared error, over the elements that are finite on both sides.
  double maxError() const { return largest; }
  double rmse() const;

private:
  Tolerance tolerance;
  std::optional<Element> bad;
  int64_t added = 0, finite = 0, misplacedCount = 0;
  double largest = 0, squares = 0;
};

} // namespace attnc::reference
