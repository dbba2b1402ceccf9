#include "commands/digest.h"

#include "text.h"

#include "support/element.h"

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
    double value = readElement(tensor.bytes.data(), tensor.dtype, i).real;
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

/// Returns the line of out or of a gradient.
std::string tensorText(const std::string& name, const HostTensor& tensor) {
  const Statistics all = statisticsOf(tensor);
  std::string text = fmt::format("{:11} {} {}: ", name, shapeText(tensor.shape), dtypeName(tensor.dtype));
  if (all.finite == 0)
    text += "no finite element";
  else
    text +=
        fmt::format("mean {:.4g}, rms {:.4g}, largest magnitude {:.4g}", all.sum / double(all.finite),
                    std::sqrt(all.squares / double(all.finite)), std::max(std::abs(all.least), std::abs(all.greatest)));
  return text + counted(all.nan, "NaN") + counted(all.above + all.below, "infinite") + "\n";
}

} // namespace

JsonReport digestJson(const RunResult& result) {
  JsonReport all = JsonReport::object();
  const auto add = [&](const std::string& name, const HostTensor& tensor) {
    const Statistics of = statisticsOf(tensor);
    JsonReport one{{"shape", tensor.shape}, {"dtype", dtypeName(tensor.dtype)}};
    if (of.finite) {
      one["mean"] = of.sum / double(of.finite);
      one["rms"] = std::sqrt(of.squares / double(of.finite));
      one["least"] = of.least;
      one["greatest"] = of.greatest;
    }
    for (const auto& [word, count] : {std::pair("nan", of.nan), {"inf", of.above}, {"minusInf", of.below}})
      if (count) one[word] = count;
    all[name] = std::move(one);
  };
  add("out", result.out);
  if (result.hasSoftmax) add("lse", result.lse);
  for (const auto& [name, gradient] : result.gradients) add(name, gradient);
  return all;
}

std::string digestText(const RunResult& result) {
  std::string text = tensorText("out", result.out);
  if (result.hasSoftmax) {
    const Statistics lse = statisticsOf(result.lse);
    text += fmt::format("lse         {} f32: ", shapeText(result.lse.shape));
    text += lse.finite == 0 ? "no finite element" : fmt::format("{:.4g} to {:.4g}", lse.least, lse.greatest);
    text += counted(lse.below, "rows masked whole (-inf)") + counted(lse.above, "inf") + counted(lse.nan, "NaN") + "\n";
  }
  for (const auto& [name, gradient] : result.gradients) text += tensorText(name, gradient);
  return text;
}

} // namespace attnc::cli
