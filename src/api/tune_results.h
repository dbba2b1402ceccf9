// What launches write, brought back from the device and compared.
#pragma once

#include "attnc/kernel.h"
#include "attnc/tensor.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace attnc {

/// A tensor's elements, by offset, brought back from a device.
struct BroughtTensor {
  std::vector<char> bytes;
  int64_t first = 0; ///< least offset of an element
};

/// Tensors that a launch wrote.
struct LaunchResults {
  std::vector<std::pair<TensorView, BroughtTensor>> tensors;

  /// Brings them back after all work of the stream.
  static Expected<LaunchResults> of(const std::vector<TensorView>& views, Stream stream);
};

/// Why results of the same views are not the same up to rounding in another order; empty: they are.
std::string differenceOf(const LaunchResults& model, const LaunchResults& other, bool tf32);

} // namespace attnc
