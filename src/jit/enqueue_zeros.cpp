#include "jit/enqueue_zeros.h"

#include "jit/driver.h"

namespace attnc::jit {

Status enqueueZeros(void* memory, size_t bytes, CUstream_st* stream) {
  if (bytes == 0) return {};
  auto driver = Driver::get();
  if (!driver) return std::move(driver).error();
  const auto address = reinterpret_cast<CUdeviceptr>(memory);
  return (*driver)->check((*driver)->cuMemsetD8Async(address, 0, bytes, stream), "cuMemsetD8Async");
}

} // namespace attnc::jit
