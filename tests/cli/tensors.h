// Makes and reads tensors of safetensors files by element.
#pragma once

#include "problem/safetensors.h"

#include "support/element.h"

#include <catch2/catch.hpp>

#include <functional>
#include <string>
#include <vector>

namespace attnc::test {

inline cli::HostTensor tensor(DType dtype, std::vector<int64_t> shape, const std::function<double(int64_t)>& element) {
  cli::HostTensor result = cli::HostTensor::make(dtype, std::move(shape));
  for (int64_t i = 0; i < result.elements(); ++i) writeElement(result.bytes.data(), dtype, i, element(i));
  return result;
}

inline double at(const cli::HostTensor& tensor, int64_t index) {
  return readElement(tensor.bytes.data(), tensor.dtype, index).real;
}

inline cli::NamedTensors readTensors(const std::string& path) {
  auto tensors = cli::readSafetensors(path);
  if (!tensors) FAIL(tensors.error().message);
  return tensors->tensors;
}

} // namespace attnc::test
