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
  std::vector<char> bytes;    ///< also empty if only the shape is needed

  /// Returns a tensor of zeros.
  static HostTensor make(DType dtype, std::vector<int64_t> shape);
  /// Returns a tensor of zeros with the shape and dtype of a view.
  static HostTensor like(const TensorView& view);
  int64_t elements() const;
  /// Returns a borrowed view: valid as long as this tensor lives unchanged. The data may be written through it. A
  /// tensor without bytes binds like any other, but its elements must not be read.
  TensorView view() const;
};

using NamedTensors = std::map<std::string, HostTensor, std::less<>>;

} // namespace attnc::cli
