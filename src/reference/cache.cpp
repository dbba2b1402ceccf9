#include "reference/cache.h"

#include "support/element.h"

#include <algorithm>
#include <cstring>

namespace attnc::reference {
namespace {

int32_t integerAt(const TensorView& tensor, int64_t offset) { return static_cast<const int32_t*>(tensor.data)[offset]; }

int64_t offsetOf(const TensorView& tensor, int64_t b, int64_t h, int64_t row) {
  return b * tensor.stride[0] + h * tensor.stride[1] + row * tensor.stride[2];
}

/// Copies a row of elements. Offsets are those of the row's first element.
void copyRow(const TensorView& to, int64_t toOffset, const TensorView& from, int64_t fromOffset) {
  const auto bytes = size_t(dtypeBytes(to.dtype));
  for (int64_t column = 0; column < to.shape[3]; ++column)
    std::memcpy(static_cast<char*>(to.data) + (toOffset + column * to.stride[3]) * int64_t(bytes),
                static_cast<const char*>(from.data) + (fromOffset + column * from.stride[3]) * int64_t(bytes), bytes);
}

/// Writes a row of e4m3, of elements times `inverse`.
void roundRow(const TensorView& to, int64_t toOffset, const TensorView& from, int64_t fromOffset, float inverse) {
  for (int64_t column = 0; column < to.shape[3]; ++column) {
    const float x = float(readElement(from.data, from.dtype, fromOffset + column * from.stride[3]).real) * inverse;
    writeElement(to.data, to.dtype, toOffset + column * to.stride[3], std::clamp(x, -448.f, 448.f));
  }
}

float scaleOfHead(const TensorView* scales, int64_t b, int64_t h) {
  if (!scales) return 1;
  const bool hasBatch = scales->rank > 1;
  const int64_t offset =
      hasBatch ? (scales->shape[0] > 1 ? b * scales->stride[0] : 0) + h * scales->stride[1] : h * scales->stride[0];
  return elementAt<float>(scales->data, offset);
}

} // namespace

void eachRow(const Cache& cache, llvm::function_ref<int64_t(int64_t b, int64_t length)> begin,
             llvm::function_ref<void(int64_t offset, int64_t b, int64_t h, int64_t position)> visit) {
  const int64_t rows = cache.rows.shape[2];
  for (int64_t b = 0; b < cache.lengths.shape[0]; ++b) {
    const int64_t length = std::clamp<int64_t>(integerAt(cache.lengths, b * cache.lengths.stride[0]), 0,
                                               std::min(cache.longest, cache.kvLength()));
    for (int64_t i = std::max<int64_t>(begin(b, length), 0); i < length; ++i) {
      const int64_t entry =
          cache.table ? integerAt(*cache.table, b * cache.table->stride[0] + i / rows * cache.table->stride[1]) : b;
      for (int64_t h = 0; h < cache.rows.shape[1]; ++h) visit(offsetOf(cache.rows, entry, h, i % rows), b, h, i);
    }
  }
}

void gatherRows(const Cache& cache, const TensorView& to) {
  eachRow(
      cache, [](int64_t, int64_t) { return 0; },
      [&](int64_t offset, int64_t b, int64_t h, int64_t position) {
        copyRow(to, offsetOf(to, b, h, position), cache.rows, offset);
      });
}

void appendRows(const Cache& cache, const TensorView& fresh, int64_t qLen, const TensorView* cuSeqlensQ,
                const TensorView* scales) {
  const auto startOf = [&](int64_t b) -> int64_t {
    return cuSeqlensQ ? integerAt(*cuSeqlensQ, b * cuSeqlensQ->stride[0]) : 0;
  };
  int64_t first = 0; // position of the current sequence's first new row
  eachRow(
      cache,
      [&](int64_t b, int64_t length) {
        return first = length - (cuSeqlensQ ? std::clamp<int64_t>(startOf(b + 1) - startOf(b), 0, qLen) : qLen);
      },
      [&](int64_t offset, int64_t b, int64_t h, int64_t position) {
        const int64_t from = offsetOf(fresh, cuSeqlensQ ? 0 : b, h, startOf(b) + position - first);
        if (fresh.dtype == cache.rows.dtype)
          copyRow(cache.rows, offset, fresh, from);
        else
          roundRow(cache.rows, offset, fresh, from, 1 / scaleOfHead(scales, b, h));
      });
}

} // namespace attnc::reference
