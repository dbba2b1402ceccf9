#include "problem/host_tensor.h"

namespace attnc::cli {

HostTensor HostTensor::make(DType dtype, std::vector<int64_t> shape) {
  HostTensor tensor{dtype, std::move(shape), {}};
  tensor.bytes.resize(size_t(tensor.elements() * dtypeBytes(dtype)));
  return tensor;
}

HostTensor HostTensor::like(const TensorView& view) {
  return make(view.dtype, {view.shape.begin(), view.shape.begin() + view.rank});
}

int64_t HostTensor::elements() const {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  return count;
}

TensorView HostTensor::view() const {
  static char nothing; // a null pointer would mean a tensor that was never filled
  TensorView view;
  view.data = bytes.empty() ? &nothing : const_cast<char*>(bytes.data());
  view.dtype = dtype;
  view.rank = int(shape.size());
  int64_t step = 1;
  for (int axis = view.rank - 1; axis >= 0; --axis) {
    view.shape[axis] = shape[axis];
    view.stride[axis] = step;
    step *= shape[axis];
  }
  return view;
}

} // namespace attnc::cli
