// The results of launches, copied back from the device and compared.
#pragma once

#include "attnc/kernel.h"
#include "attnc/tensor.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace attnc {

/// A tensor's elements, by offset, copied back from a device.
struct BroughtTensor {
  std::vector<char> bytes;
  int64_t first = 0; ///< least offset of an element
};

/// Tensors that a launch wrote.
struct LaunchResults {
  std::vector<std::pair<TensorView, BroughtTensor>> tensors;

  /// Copies them back after all work of the stream.
  static Expected<LaunchResults> of(const std::vector<TensorView>& views, Stream stream);
};

/// Returns why results of the same views differ by more than rounding in another order. Empty if they do not.
std::string differenceOf(const LaunchResults& model, const LaunchResults& other, bool tf32);

} // namespace attnc
