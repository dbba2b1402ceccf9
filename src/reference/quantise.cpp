#include "reference/quantise.h"

#include "attnc/operands.h"
#include "support/element.h"
#include "support/parallel.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

namespace attnc::reference {
namespace {

constexpr float kLargest = 448.f, kSmallest = 0x1p-64f;

/// Returns a positive number rounded up to some significant bits; 0: all.
float upToBits(float x, int bits) {
  const uint32_t mask = bits ? (1u << (24 - bits)) - 1 : 0;
  return std::bit_cast<float>((std::bit_cast<uint32_t>(x) + mask) & ~mask);
}

/// A random sign for a column, as sign_of() of the kernel.
float signOf(uint32_t seed, uint32_t column) {
  uint32_t x = seed * 0x9e3779b9u + column + 1u;
  x = (x ^ x >> 16) * 0x85ebca6bu;
  x = (x ^ x >> 13) * 0xc2b2ae35u;
  return (x ^ x >> 16) & 1u ? -1.f : 1.f;
}

/// Applies the rotary embedding to row `row` of batch entry `b`, as embed_rows() of the kernel.
void embed(float* y, const QuantiseOptions& options, int64_t b, int64_t row) {
  const TensorView& table = *options.cosSin;
  int64_t position = row;
  if (options.positions) {
    const TensorView& given = *options.positions;
    const int64_t place = b * given.stride[0] + row * given.stride[1];
    position = given.dtype == DType::I64 ? int32_t(static_cast<const int64_t*>(given.data)[place])
                                         : static_cast<const int32_t*>(given.data)[place];
  }
  const int64_t at = std::clamp<int64_t>(position, 0, table.shape[0] - 1) * table.stride[0];
  const int64_t pairs = table.shape[1] / 2;
  for (int64_t pair = 0; pair < pairs; ++pair) {
    const auto cos = float(readElement(table.data, table.dtype, at + pair).real),
               sin = float(readElement(table.data, table.dtype, at + pairs + pair).real);
    float& first = y[options.interleaved ? 2 * pair : pair];
    float& second = y[options.interleaved ? 2 * pair + 1 : pairs + pair];
    const float a = first, other = second;
    first = a * cos - other * sin, second = other * cos + a * sin;
  }
}

void rotate(float* row, int64_t columns, uint32_t seed) {
  const int64_t power = columns & -columns;
  for (int64_t i = 0; i < columns; ++i) row[i] *= signOf(seed, uint32_t(i));
  for (int64_t distance = 1; distance < power; distance *= 2)
    for (int64_t i = 0; i < columns; ++i)
      if (!(i & distance)) {
        const float a = row[i], b = row[i + distance];
        row[i] = a + b, row[i + distance] = a - b;
      }
  const float factor = 1.f / std::sqrt(float(power));
  for (int64_t i = 0; i < columns; ++i) row[i] *= factor;
}

} // namespace

void quantise(const TensorView& x, const TensorView& out, const TensorView& scales, const QuantiseOptions& options) {
  const int64_t rows = x.shape[2], columns = x.shape[3];
  const int64_t span = scales.rank != 3 ? std::max<int64_t>(rows, 1) : scalesAreOfRows(scales, rows) ? 1 : kRowsOfScale;
  const int64_t spans = scales.rank == 3 ? scales.shape[2] : 1; // of a head
  parallelForEach(x.shape[0] * x.shape[1] * spans, [&](int64_t i) {
    const int64_t head = i / spans, first = i % spans * span, end = std::min(first + span, rows);
    const auto at = [&](const TensorView& tensor, int64_t row) {
      return head / x.shape[1] * tensor.stride[0] + head % x.shape[1] * tensor.stride[1] + row * tensor.stride[2];
    };
    std::vector<float> values(size_t(std::max<int64_t>(end - first, 0) * columns));
    float largest = 0;
    for (int64_t row = first; row < end; ++row) {
      float* const y = values.data() + (row - first) * columns;
      for (int64_t column = 0; column < columns; ++column)
        y[column] = float(readElement(x.data, x.dtype, at(x, row) + column).real);
      if (options.cosSin) embed(y, options, head / x.shape[1], row);
      if (options.rotates) rotate(y, columns, options.seed);
      for (int64_t column = 0; column < columns; ++column) largest = std::max(largest, std::fabs(y[column]));
    }
    float scale = 0;
    if (options.readsScales) {
      const int64_t place = head / x.shape[1] * scales.stride[0] + head % x.shape[1] * scales.stride[1];
      scale = float(readElement(scales.data, DType::F32, place).real);
    } else {
      if (rows) scale = upToBits(std::max(largest / kLargest, kSmallest), options.scaleBits);
      writeElement(scales.data, DType::F32, i, scale);
    }
    const float inverse = 1.f / scale;
    for (int64_t row = first; row < end; ++row)
      for (int64_t column = 0; column < columns; ++column)
        writeElement(out.data, DType::E4M3, at(out, row) + column,
                     std::clamp(values[size_t((row - first) * columns + column)] * inverse, -kLargest, kLargest));
  });
}

} // namespace attnc::reference
