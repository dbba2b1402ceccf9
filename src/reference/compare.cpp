#include "reference/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace attnc::reference {

void Comparison::add(double actual, double expected, double more, bool counts) {
  bool isGood = true;
  if (std::isfinite(actual) && std::isfinite(expected)) {
    double error = std::fabs(actual - expected);
    const double limit = tolerance.absolute + more + tolerance.relative * std::fabs(expected);
    isGood = error <= limit;
    if (error > 0) share = std::max(share, error / limit);
    if (counts) {
      largest = std::max(largest, error);
      squares += error * error;
      ++finite;
    }
  } else {
    isGood = actual == expected || (std::isnan(actual) && std::isnan(expected));
    misplacedCount += !isGood;
  }
  if (!isGood && !bad) bad = Element{added, actual, expected};
  ++added;
}

double Comparison::rmse() const { return finite ? std::sqrt(squares / double(finite)) : 0; }

std::string Comparison::firstBadText() const {
  if (!bad) return {};
  return fmt::format("element {} is {:.9g}, should be {:.9g}", bad->index, bad->actual, bad->expected);
}

} // namespace attnc::reference
