// What the reference reads of operands: dense copies of tensors in double, and factors of their elements.
#pragma once

#include "attnc/operands.h"
#include "attnc/tensor.h"
#include "support/element.h"

#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace attnc::reference {

/// The features that the reference takes. Caches are gathered before (reference/cache.h).
inline constexpr Features kTakes = {Feature::Lengths, Feature::Offsets, Feature::Ragged,
                                    Feature::Fp8Kv,   Feature::Fp8Q,    Feature::BlockMask,
                                    Feature::BoxMask, Feature::F32,     Feature::RowScales};

/// The rows of a tensor, by index in [batch, heads, rows].
struct Dense {
  int64_t columns;
  std::vector<double> values;

  explicit Dense(const TensorView& tensor) : columns(tensor.shape[3]) {
    values.reserve(size_t(tensor.elements()));
    for (int64_t b = 0; b < tensor.shape[0]; ++b)
      for (int64_t h = 0; h < tensor.shape[1]; ++h)
        for (int64_t row = 0; row < tensor.shape[2]; ++row)
          for (int64_t column = 0; column < columns; ++column)
            values.push_back(readElement(tensor.data, tensor.dtype,
                                         b * tensor.stride[0] + h * tensor.stride[1] + row * tensor.stride[2] +
                                             column * tensor.stride[3])
                                 .real);
  }
  const double* row(int64_t index) const { return &values[size_t(index * columns)]; }
};

/// Returns the factor of the elements of a row of q, k or v, of sequences of `length` rows. Scales are of heads, of
/// blocks or of rows. `rowOfTensor`: the row's index among those of the tensor, which a ragged batch shares.
inline float scaleOf(const std::optional<TensorView>& scales, int64_t b, int64_t head, int64_t row, int64_t length,
                     int64_t rowOfTensor) {
  if (!scales) return 1;
  const auto& [shape, stride] = std::pair(scales->shape, scales->stride);
  int64_t offset = scales->rank == 1 ? head * stride[0] : (shape[0] > 1 ? b * stride[0] : 0) + head * stride[1];
  if (scales->rank > 2) offset += (scalesAreOfRows(*scales, length) ? rowOfTensor : row / kRowsOfScale) * stride[2];
  return elementAt<float>(scales->data, offset);
}

/// Returns the factor of q k^T.
inline double scaleOf(const Operands& args) {
  return args.scale ? *args.scale : 1 / std::sqrt(double(args.q.shape[3]));
}

/// Returns the factor of the products of a row of q, without those of k's elements. Arguments are as above.
inline double scaleOfRow(const Operands& args, int64_t b, int64_t h, int64_t row, int64_t length, int64_t rowOfTensor) {
  return scaleOf(args) * scaleOf(args.qScales, b, h, row, length, rowOfTensor);
}

} // namespace attnc::reference
