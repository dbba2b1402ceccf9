// Tensors in host memory that own their bytes.
#pragma once

#include "attnc/tensor.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace attnc::cli {

/// A dense row-major tensor in host memory.
struct HostTensor {
  DType dtype = DType::F32;
  std::vector<int64_t> shape; ///< at most TensorView::kMaxRank extents
  std::vector<char> bytes;    ///< empty, too, where only the shape is asked for

  /// A tensor of zeros.
  static HostTensor make(DType dtype, std::vector<int64_t> shape);
  /// The same, of the shape and dtype of a view.
  static HostTensor like(const TensorView& view);
  int64_t elements() const;
  /// Borrowed: valid as long as this tensor lives unchanged. The data may be written through the view. The view of a
  /// tensor without its bytes binds like any other, and its elements must not be read.
  TensorView view() const;
};

using NamedTensors = std::map<std::string, HostTensor, std::less<>>;

} // namespace attnc::cli
