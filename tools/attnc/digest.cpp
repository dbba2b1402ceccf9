#include "digest.h"

#include "text.h"

#include "ir/element.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace attnc::cli {
namespace {

struct Statistics {
  int64_t finite = 0, nan = 0, above = 0, below = 0; // above: +inf, below: -inf
  double sum = 0, squares = 0;
  double least = std::numeric_limits<double>::infinity(), greatest = -std::numeric_limits<double>::infinity();
};

Statistics statisticsOf(const HostTensor& tensor) {
  Statistics all;
  for (int64_t i = 0, count = tensor.elements(); i < count; ++i) {
    double value = ir::readElement(tensor.bytes.data(), tensor.dtype, i).real;
    if (!std::isfinite(value)) {
      ++(std::isnan(value) ? all.nan : value > 0 ? all.above : all.below);
      continue;
    }
    ++all.finite;
    all.sum += value;
    all.squares += value * value;
    all.least = std::min(all.least, value);
    all.greatest = std::max(all.greatest, value);
  }
  return all;
}

std::string counted(int64_t count, const char* what) { return count ? fmt::format(", {} {}", count, what) : ""; }

} // namespace

std::string digestText(const RunResult& result) {
  const Statistics out = statisticsOf(result.out), lse = statisticsOf(result.lse);
  std::string text = fmt::format("out         {} {}: ", shapeText(result.out.shape), dtypeName(result.out.dtype));
  if (out.finite == 0)
    text += "no finite element";
  else
    text += fmt::format("mean {:.4g}, rms {:.4g}, largest magnitude {:.4g}", out.sum / double(out.finite),
                        std::sqrt(out.squares / double(out.finite)),
                        std::max(std::abs(out.least), std::abs(out.greatest)));
  text += counted(out.nan, "NaN") + counted(out.above + out.below, "infinite");
  text += fmt::format("\nlse         {} f32: ", shapeText(result.lse.shape));
  text += lse.finite == 0 ? "no finite element" : fmt::format("{:.4g} to {:.4g}", lse.least, lse.greatest);
  return text + counted(lse.below, "rows masked whole (-inf)") + counted(lse.above, "inf") + counted(lse.nan, "NaN") +
         "\n";
}

} // namespace attnc::cli
