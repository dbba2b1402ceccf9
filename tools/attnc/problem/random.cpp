#include "problem/random.h"

#include "problem/capture_text.h"
#include "text.h"
#include "usage.h"

#include "tools/device/draw.h"

#include "attnc/explain.h"
#include "support/element.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace attnc::cli {
namespace {

constexpr int64_t kFreeExtent = 64;

using Pattern = LargeScores::Pattern;

std::optional<int64_t> builtinExtent(const ProblemShape& problem, const std::string& name) {
  if (name == "B") return problem.batch;
  if (name == "H") return problem.qHeads;
  if (name == "HKV") return problem.kvHeads;
  if (name == "Q_LEN") return problem.qLen;
  if (name == "KV_LEN") return problem.kvLen;
  return std::nullopt;
}

double largestFinite(DType dtype) {
  return dtype == DType::F16    ? f16ToFloat(0x7bff)
         : dtype == DType::BF16 ? bf16ToFloat(0x7f7f)
         : dtype == DType::E4M3 ? e4m3ToFloat(0x7e)
                                : std::numeric_limits<float>::max();
}

/// Returns the largest value to draw for an integer dtype.
int64_t largest(DType dtype) {
  if (dtype == DType::Bool) return 1;
  if (dtype == DType::U8) return UINT8_MAX;
  return (int64_t(1) << (8 * std::min<int64_t>(dtypeBytes(dtype), 4) - 1)) - 1;
}

} // namespace

const char* const kRandomHelp =
    "Random operands (--random): q, k, v (dout, dlse) are normal with variance 1. Captures that --set\n"
    "and --pin do not give are also drawn.\n\n"
    "Drawn tensors: floats are normal with variance 1/4; bools 0\n"
    "or 1; integers along Q_LEN or KV_LEN (their last axis) do not decrease from 0 on, like document ids. Sequences\n"
    "have the mods of a choice in turn. Scalars:\n"
    "integers 1 .. KV_LEN / 2, floats 0.5 .. 1.5, bools true.\n"
    "A free extent is 64, or what the mod asserts of it, unless --set NAME=N gives it.\n"
    "With --large q and k are -1, 0 and 1 and --scale is a power of two, so products are exact. Float tensors along\n"
    "Q_LEN or KV_LEN are SIZE by PATTERN, else 0; where the mod captures none, rows of k are as long. half: the last\n"
    "keys; first-half; rows: each third query; tiles: each other 64 keys; scattered: a tenth; mixed: any size up to\n"
    "SIZE, both signs; all. By default the seed chooses.";

LargeScores LargeScores::parse(const std::string& text) {
  constexpr const char* kHint = "e.g. --large -1e9, or --large 1e9,tiles";
  const size_t comma = std::min(text.find(','), text.size());
  const std::string size = text.substr(0, comma);
  if (std::string wrong = checkScale(size); !wrong.empty())
    throw wrongUsage("--large", wrong.substr(0, wrong.find('\n')), kHint);
  LargeScores large;
  parseNumber(size, large.size);
  if (large.size == 0) throw wrongUsage("--large", "0 is not large", kHint);
  if (comma == text.size()) return large;
  std::string name = text.substr(comma + 1);
  std::vector<Choice> choices;
  for (const char* pattern : kNames) choices.emplace_back(pattern);
  if (std::string wrong = oneOf(choices)(name); !wrong.empty()) throw wrongUsage("--large", wrong, /*hint=*/"");
  large.pattern = Pattern(std::find(std::begin(kNames), std::end(kNames), name) - std::begin(kNames));
  return large;
}

Generator::Generator(uint64_t seed, const ProblemShape& problem, int64_t mostElements, std::optional<LargeScores> given)
    : random(seed), problem(problem), elementsLeft(mostElements), large(given) {
  if (large && !large->pattern) large->pattern = Pattern(seed % std::size(LargeScores::kNames));
}

HostTensor Generator::normal(DType dtype, std::vector<int64_t> shape) {
  HostTensor tensor = HostTensor::make(dtype, std::move(shape));
  draw(std::normal_distribution<double>(), tensor);
  return tensor;
}

HostTensor Generator::scales(std::vector<int64_t> shape) {
  HostTensor tensor = HostTensor::make(DType::F32, std::move(shape));
  draw(std::uniform_real_distribution<double>(0.5, 1.5), tensor);
  return tensor;
}

HostTensor Generator::signs(DType dtype, std::vector<int64_t> shape) {
  HostTensor tensor = HostTensor::make(dtype, std::move(shape));
  draw(std::uniform_int_distribution<int>(-1, 1), tensor);
  return tensor;
}

bool Generator::isLarge(const CaptureInfo& capture) {
  return capture.kind == CaptureInfo::Kind::Tensor && isFloat(capture.dtype) &&
         std::any_of(capture.extent.begin(), capture.extent.end(),
                     [](const std::string& extent) { return extent == "Q_LEN" || extent == "KV_LEN"; });
}

double Generator::largeAt(int64_t q, int64_t kv, int64_t kvLen, double unit) const {
  const double size = large->size;
  switch (*large->pattern) {
  case Pattern::Half: return kv >= kvLen / 2 ? size : 0;
  case Pattern::FirstHalf: return kv < kvLen / 2 ? size : 0;
  case Pattern::Rows: return q % 3 == 1 ? size : 0;
  case Pattern::Tiles: return kv / 64 % 2 ? size : 0;
  case Pattern::Scattered: return unit < 0.1 ? size : 0;
  case Pattern::Mixed: return std::copysign(std::pow(std::fabs(size), std::fabs(2 * unit - 1)), unit - 0.5);
  case Pattern::All: break;
  }
  return size;
}

void Generator::fillLarge(const CaptureInfo& capture, HostTensor& tensor) {
  struct Axis {
    int64_t stride = 0, extent = 1;
    int64_t of(int64_t i) const { return stride ? i / stride % extent : 0; }
  };
  std::optional<Axis> q, kv;
  for (int64_t axis = int64_t(tensor.shape.size()) - 1, stride = 1; axis >= 0; --axis) {
    const Axis here{stride, tensor.shape[size_t(axis)]};
    if (capture.extent[size_t(axis)] == "Q_LEN" && !q) q = here;
    if (capture.extent[size_t(axis)] == "KV_LEN" && !kv) kv = here;
    stride *= here.extent;
  }
  // With one axis only, patterns of both axes follow that one.
  const Axis queries = q ? *q : *kv, keys = kv ? *kv : *q;
  const double most = largestFinite(tensor.dtype);
  device::drawOnAllCores(random, tensor.elements(), std::uniform_real_distribution<double>(),
                         [&](int64_t i, double unit) {
                           const double value = largeAt(queries.of(i), keys.of(i), keys.extent, unit);
                           writeElement(tensor.bytes.data(), tensor.dtype, i, std::clamp(value, -most, most));
                         });
}

void Generator::lengthenKeys(HostTensor& q, HostTensor& k, double scale) {
  const int64_t width = k.shape.back(), kvLen = k.shape[2];
  for (int64_t i = 0; i < q.elements(); i += width) writeElement(q.bytes.data(), q.dtype, i, 1);
  const double most = std::exp2(std::ilogb(largestFinite(k.dtype)));
  // Long rows are multiples of the first element, which is 1 in q. So their scores are exact, and have one sign.
  device::drawOnAllCores(random, k.elements() / width, std::uniform_real_distribution<double>(),
                         [&](int64_t row, double unit) {
                           const double value = largeAt(row % kvLen, row % kvLen, kvLen, unit);
                           if (value == 0) return;
                           const double length = std::exp2(std::round(std::log2(std::fabs(value / scale))));
                           for (int64_t i = 0; i < width; ++i)
                             writeElement(k.bytes.data(), k.dtype, row * width + i,
                                          i == 0 ? std::copysign(std::min(length, most), value) : 0);
                         });
}

template <class Distribution> void Generator::draw(const Distribution& distribution, HostTensor& tensor) {
  device::drawOnAllCores(random, tensor.elements(), distribution, [&](int64_t i, auto number) {
    writeElement(tensor.bytes.data(), tensor.dtype, i, double(number));
  });
}

HostTensor Generator::positions(int64_t most) {
  HostTensor tensor = HostTensor::make(DType::I32, {problem.batch});
  for (int64_t b = 0; b < problem.batch; ++b)
    writeElement(tensor.bytes.data(), DType::I32, b, double(uniform(0, most)));
  return tensor;
}

void Generator::fillIntegers(const CaptureInfo& capture, HostTensor& tensor) {
  bool alongSequence =
      !capture.extent.empty() && (capture.extent.back() == "Q_LEN" || capture.extent.back() == "KV_LEN");
  int64_t most = std::min(std::max<int64_t>(1, problem.kvLen / 2), largest(capture.dtype));
  int64_t row = alongSequence ? tensor.shape.back() : 1;
  if (capture.choices) { // each mod comes in turn
    for (int64_t i = 0; i < tensor.elements(); ++i)
      writeElement(tensor.bytes.data(), capture.dtype, i, double(i % capture.choices));
    return;
  }
  // A document starts at about every eighth of a sequence.
  int64_t meanLength = std::max<int64_t>(1, row / 8);
  for (int64_t i = 0, id = 0, count = tensor.elements(); i < count; ++i) {
    if (alongSequence && i % row == 0)
      id = 0;
    else if (alongSequence && id < largest(capture.dtype))
      id += uniform(1, meanLength) == 1;
    writeElement(tensor.bytes.data(), capture.dtype, i, double(alongSequence ? id : uniform(1, most)));
  }
}

void Generator::chooseDims(const Mod& mod, std::map<std::string, int64_t>& freeDims) const {
  chooseExtents(mod, problem, kFreeExtent, freeDims);
}

std::vector<int64_t> Generator::shapeOf(const CaptureInfo& capture,
                                        const std::map<std::string, int64_t>& freeDims) const {
  std::vector<int64_t> shape;
  for (const std::string& extent : capture.extent) {
    int64_t value = 0;
    if (auto builtin = builtinExtent(problem, extent))
      value = *builtin;
    else if (!parseInteger(extent, value))
      value = freeDims.at(extent);
    shape.push_back(value);
  }
  return shape;
}

Status Generator::fill(const CaptureInfo& capture, HostTensor& tensor) {
  bool isEmpty = std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end();
  int64_t elements = isEmpty ? 0 : 1;
  for (int64_t extent : tensor.shape) {
    if (!isEmpty && elements > elementsLeft / extent)
      return Error::environment(
          fmt::format("capture {} of shape {} is too large to draw", inQuotes(capture.name), shapeText(tensor.shape)),
          "make the problem smaller, or give the tensor in a file");
    elements *= extent;
  }
  elementsLeft -= elements;
  tensor.bytes.resize(size_t(elements * dtypeBytes(tensor.dtype)));
  if (capture.dtype == DType::Bool)
    draw(std::uniform_int_distribution<int64_t>(0, 1), tensor);
  else if (isInteger(capture.dtype))
    fillIntegers(capture, tensor);
  else if (large && isLarge(capture))
    fillLarge(capture, tensor);
  else
    draw(std::normal_distribution<double>(0, 0.5), tensor);
  return {};
}

Captures::Item Generator::scalar(const CaptureInfo& capture) {
  switch (capture.kind) {
  case CaptureInfo::Kind::Int: return uniform(1, std::max<int64_t>(1, problem.kvLen / 2));
  case CaptureInfo::Kind::Float: return std::uniform_real_distribution<double>(0.5, 1.5)(random);
  case CaptureInfo::Kind::Bool:
  case CaptureInfo::Kind::Tensor: break;
  }
  return true;
}

} // namespace attnc::cli
