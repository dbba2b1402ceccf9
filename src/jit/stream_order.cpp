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

Status copyRows(RowsAt to, RowsAt from, size_t bytes, size_t rows, CUstream_st* stream) {
  if (bytes == 0 || rows == 0) return {};
  ATTNC_TRY_AS(driver, Driver::get());
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = reinterpret_cast<CUdeviceptr>(from.data), copy.dstDevice = reinterpret_cast<CUdeviceptr>(to.data);
  copy.srcPitch = from.pitch, copy.dstPitch = to.pitch;
  copy.WidthInBytes = bytes, copy.Height = rows;
  return (*driver)->check((*driver)->cuMemcpy2DAsync(&copy, stream), "cuMemcpy2DAsync");
}

} // namespace attnc::jit
