#include "problem/capture_text.h"

#include "text.h"

#include "support/element.h"

#include <fmt/format.h>

#include <cstring>

namespace attnc::cli {
namespace {

std::optional<bool> parseBool(const std::string& text) {
  if (text == "true" || text == "True" || text == "1") return true;
  if (text == "false" || text == "False" || text == "0") return false;
  return std::nullopt;
}

} // namespace

std::string declaration(const CaptureInfo& capture) {
  switch (capture.kind) {
  case CaptureInfo::Kind::Int: return capture.name + ": int";
  case CaptureInfo::Kind::Float: return capture.name + ": float";
  case CaptureInfo::Kind::Bool: return capture.name + ": bool";
  case CaptureInfo::Kind::Tensor: break;
  }
  std::string dims = capture.extent.empty() ? "" : fmt::format("[{}]", fmt::join(capture.extent, ", "));
  return fmt::format("{}: {}{}", capture.name, dtypeName(capture.dtype), dims);
}

std::optional<Captures::Item> parseScalar(const CaptureInfo& capture, const std::string& text, std::string& expected) {
  switch (capture.kind) {
  case CaptureInfo::Kind::Int: {
    int64_t value = 0;
    expected = "a 32-bit integer";
    if (parseInteger(text, value) && value == int32_t(value)) return value;
    return std::nullopt;
  }
  case CaptureInfo::Kind::Float: {
    double value = 0;
    expected = "a number";
    if (parseNumber(text, value)) return value;
    return std::nullopt;
  }
  case CaptureInfo::Kind::Bool:
    expected = "true or false";
    if (auto value = parseBool(text)) return *value;
    return std::nullopt;
  case CaptureInfo::Kind::Tensor: break;
  }
  return std::nullopt;
}

std::optional<HostTensor> parseElement(DType dtype, const std::string& text) {
  HostTensor tensor = HostTensor::make(dtype, {});
  if (isFloat(dtype)) {
    double value = 0;
    if (!parseNumber(text, value)) return std::nullopt;
    writeElement(tensor.bytes.data(), dtype, 0, value);
    return tensor;
  }
  int64_t value = 0;
  if (dtype == DType::Bool) {
    auto parsed = parseBool(text);
    if (!parsed) return std::nullopt;
    value = *parsed;
  } else if (!parseInteger(text, value)) {
    return std::nullopt;
  }
  // The low bytes of a little-endian integer are the narrower integer, if it fits.
  std::memcpy(tensor.bytes.data(), &value, tensor.bytes.size());
  if (readElement(tensor.bytes.data(), dtype, 0).integer != value) return std::nullopt;
  return tensor;
}

} // namespace attnc::cli
