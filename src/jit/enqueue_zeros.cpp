#include "jit/enqueue_zeros.h"

#include "jit/driver.h"
#include "support/try.h"

namespace attnc::jit {

Status enqueueZeros(void* memory, size_t bytes, CUstream_st* stream) {
  if (bytes == 0) return {};
  ATTNC_TRY_AS(driver, Driver::get());
  const auto address = reinterpret_cast<CUdeviceptr>(memory);
  return (*driver)->check((*driver)->cuMemsetD8Async(address, 0, bytes, stream), "cuMemsetD8Async");
}

} // namespace attnc::jit
