#include "random.h"

#include "text.h"

#include "tools/device/draw.h"

#include "ir/conditions.h"
#include "ir/element.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace attnc::cli {
namespace {

constexpr int64_t kFreeExtent = 64;

std::optional<int64_t> builtinExtent(const ProblemShape& problem, const std::string& name) {
  if (name == "B") return problem.batch;
  if (name == "H") return problem.qHeads;
  if (name == "HKV") return problem.kvHeads;
  if (name == "Q_LEN") return problem.qLen;
  if (name == "KV_LEN") return problem.kvLen;
  return std::nullopt;
}

/// Largest value of an integer dtype that is worth drawing.
int64_t largest(DType dtype) {
  switch (dtype) {
  case DType::Bool: return 1;
  case DType::I8: return INT8_MAX;
  case DType::U8: return UINT8_MAX;
  case DType::I16: return INT16_MAX;
  case DType::I32:
  case DType::I64:
  case DType::F16:
  case DType::BF16:
  case DType::F32:
  case DType::E4M3: return INT32_MAX;
  }
  return INT32_MAX;
}

} // namespace

const char* const kRandomHelp =
    "Random operands (--random): q, k, v (dout, dlse) are normal with variance 1. Captures that --set and --pin "
    "do not\ngive are drawn, too:\n"
    "float tensors normal with variance 1/4; bool tensors 0 or 1; integer tensors along Q_LEN or KV_LEN (their last\n"
    "axis) non-decreasing from 0, like document ids; other integers 1 .. KV_LEN / 2, floats 0.5 .. 1.5, bools true.\n"
    "A free extent is 64, or what the mod asserts of it, unless --set NAME=N gives it.";

HostTensor Generator::normal(DType dtype, std::vector<int64_t> shape) {
  HostTensor tensor = HostTensor::make(dtype, std::move(shape));
  draw(std::normal_distribution<double>(), tensor);
  return tensor;
}

template <class Distribution> void Generator::draw(const Distribution& distribution, HostTensor& tensor) {
  device::drawOnAllCores(random, tensor.elements(), distribution, [&](int64_t i, auto number) {
    ir::writeElement(tensor.bytes.data(), tensor.dtype, i, double(number));
  });
}

HostTensor Generator::positions(int64_t most) {
  HostTensor tensor = HostTensor::make(DType::I32, {problem.batch});
  for (int64_t b = 0; b < problem.batch; ++b)
    ir::writeElement(tensor.bytes.data(), DType::I32, b, double(uniform(0, most)));
  return tensor;
}

void Generator::fillIntegers(const CaptureInfo& capture, HostTensor& tensor) {
  bool alongSequence =
      !capture.extent.empty() && (capture.extent.back() == "Q_LEN" || capture.extent.back() == "KV_LEN");
  int64_t most = std::min(std::max<int64_t>(1, problem.kvLen / 2), largest(capture.dtype));
  int64_t row = alongSequence ? tensor.shape.back() : 1;
  // A document starts at about every eighth of a sequence.
  int64_t meanLength = std::max<int64_t>(1, row / 8);
  for (int64_t i = 0, id = 0, count = tensor.elements(); i < count; ++i) {
    if (alongSequence && i % row == 0)
      id = 0;
    else if (alongSequence && id < largest(capture.dtype))
      id += uniform(1, meanLength) == 1;
    ir::writeElement(tensor.bytes.data(), capture.dtype, i, double(alongSequence ? id : uniform(1, most)));
  }
}

void Generator::chooseDims(const ir::Module& module, std::map<std::string, int64_t>& freeDims) const {
  llvm::SmallVector<int64_t, 16> dims;
  std::vector<bool> isFree;
  for (const std::string& name : module.dims) {
    const auto given = freeDims.find(name);
    const std::optional<int64_t> builtin = builtinExtent(problem, name);
    isFree.push_back(!builtin && given == freeDims.end());
    dims.push_back(builtin ? *builtin : isFree.back() ? kFreeExtent : given->second);
  }
  ir::meetConditions(ir::conditionsAlone(module), dims, isFree); // bind() tells of those that do not hold
  for (size_t dim = 0; dim < dims.size(); ++dim)
    if (isFree[dim]) freeDims[module.dims[dim]] = dims[dim];
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
  switch (capture.dtype) {
  case DType::Bool: draw(std::uniform_int_distribution<int64_t>(0, 1), tensor); return {};
  case DType::U8:
  case DType::I8:
  case DType::I16:
  case DType::I32:
  case DType::I64: fillIntegers(capture, tensor); return {};
  case DType::F16:
  case DType::BF16:
  case DType::F32:
  case DType::E4M3: break;
  }
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
