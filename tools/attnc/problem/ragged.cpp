#include "problem/ragged.h"

#include "text.h"

#include "support/element.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace attnc::cli {
namespace {

/// Transposes rows and heads. `inner`: bytes of a row of one head.
void swapAxes(const char* from, char* to, int64_t outer, int64_t middle, size_t inner) {
  for (int64_t i = 0; i < outer; ++i)
    for (int64_t j = 0; j < middle; ++j)
      std::memcpy(to + size_t(j * outer + i) * inner, from + size_t(i * middle + j) * inner, inner);
}

int64_t numberAt(const HostTensor& tensor, int64_t i) {
  return readElement(tensor.bytes.data(), tensor.dtype, i).integer;
}

} // namespace

Status fromPacked(std::string_view name, HostTensor& tensor) {
  if (tensor.shape.size() == 2 && name == "dlse") {
    tensor.shape.insert(tensor.shape.begin(), 1);
    return {};
  }
  if (tensor.shape.size() != 3)
    return Error::environment(fmt::format("{} is {}, expected [{}] beside cu_seqlens_q", name, shapeText(tensor.shape),
                                          name == "dlse" ? "heads, total" : "total, heads, head_dim"));
  const int64_t rows = tensor.shape[0], heads = tensor.shape[1], columns = tensor.shape[2];
  HostTensor turned{.dtype = tensor.dtype, .shape = {1, heads, rows, columns}, .bytes = {}};
  turned.bytes.resize(tensor.bytes.size()); // empty if only the shape is needed
  if (!tensor.bytes.empty())
    swapAxes(tensor.bytes.data(), turned.bytes.data(), rows, heads, size_t(columns * dtypeBytes(tensor.dtype)));
  tensor = std::move(turned);
  return {};
}

HostTensor toPacked(const HostTensor& tensor) {
  const int64_t heads = tensor.shape[1], rows = tensor.shape[2];
  HostTensor turned = tensor;
  turned.shape.erase(turned.shape.begin());
  if (turned.shape.size() == 2) return turned;
  turned.shape = {rows, heads, tensor.shape[3]};
  swapAxes(tensor.bytes.data(), turned.bytes.data(), heads, rows, size_t(tensor.shape[3] * dtypeBytes(tensor.dtype)));
  return turned;
}

HostTensor cumulative(const HostTensor& lengths) {
  HostTensor sums = HostTensor::make(DType::I32, {lengths.shape[0] + 1});
  int64_t sum = 0;
  for (int64_t b = 0; b < lengths.shape[0]; ++b) {
    sum += numberAt(lengths, b);
    writeElement(sums.bytes.data(), DType::I32, b + 1, double(sum));
  }
  return sums;
}

int64_t longestOf(const HostTensor& cumulative) {
  int64_t longest = 0;
  for (int64_t b = 1; b < cumulative.shape[0]; ++b)
    longest = std::max(longest, numberAt(cumulative, b) - numberAt(cumulative, b - 1));
  return longest;
}

} // namespace attnc::cli
