// Tensors on the host, for stages that run there.
#pragma once

#include "attnc/tensor.h"
#include "support/element.h"

#include <cstdint>
#include <initializer_list>
#include <random>
#include <vector>

namespace attnc::test {

/// A tensor with room between its rows.
struct Tensor {
  std::vector<char> bytes;
  TensorView view;

  Tensor(DType dtype, std::vector<int64_t> shape, std::mt19937& random, int64_t rowStride = 0) {
    int64_t stride = 1;
    view.dtype = dtype, view.rank = int(shape.size());
    for (size_t axis = shape.size(); axis-- > 0;) {
      view.shape[axis] = shape[axis], view.stride[axis] = stride;
      stride *= axis + 1 == shape.size() && rowStride ? rowStride : shape[axis];
    }
    bytes.resize(size_t(stride * dtypeBytes(dtype)) + 64);
    view.data = bytes.data() + (64 - reinterpret_cast<uintptr_t>(bytes.data()) % 64) % 64;
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < stride; ++i) writeElement(static_cast<char*>(view.data), dtype, i, normal(random));
  }
  int64_t offset(std::initializer_list<int64_t> at) const {
    int64_t all = 0, axis = 0;
    for (int64_t index : at) all += index * view.stride[size_t(axis++)];
    return all;
  }
  double at(std::initializer_list<int64_t> index) const {
    return readElement(static_cast<const char*>(view.data), view.dtype, offset(index)).real;
  }
  void set(std::initializer_list<int64_t> index, double value) {
    writeElement(static_cast<char*>(view.data), view.dtype, offset(index), value);
  }
};

} // namespace attnc::test
