#include "jit/stream_order.h"

#include "jit/driver.h"
#include "support/try.h"

namespace attnc::jit {

Status waitFor(CUstream_st* stream, CUstream_st* other) {
  if (stream == other) return {};
  ATTNC_TRY_AS(driver, Driver::get());
  const Driver& cuda = **driver;
  CUevent event = nullptr;
  ATTNC_TRY(cuda.check(cuda.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate"));
  Status done = cuda.check(cuda.cuEventRecord(event, other), "cuEventRecord");
  if (done) done = cuda.check(cuda.cuStreamWaitEvent(stream, event, 0), "cuStreamWaitEvent");
  const Status freed = cuda.check(cuda.cuEventDestroy(event), "cuEventDestroy"); // once the wait is over
  return done ? freed : done;
}

Status upload(void* device, const void* host, size_t bytes, CUstream_st* stream) {
  if (bytes == 0) return {};
  ATTNC_TRY_AS(driver, Driver::get());
  const Driver& cuda = **driver;
  return cuda.check(cuda.cuMemcpyHtoDAsync(reinterpret_cast<CUdeviceptr>(device), host, bytes, stream),
                    "cuMemcpyHtoDAsync");
}

} // namespace attnc::jit
