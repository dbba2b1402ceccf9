#include "jit/measure.h"

#include "jit/driver.h"
#include "support/try.h"

#include <utility>

namespace attnc::jit {

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(address, other.address);
  return *this;
}

DeviceMemory::~DeviceMemory() {
  if (!address) return;
  if (auto driver = Driver::get()) (*driver)->cuMemFree(reinterpret_cast<CUdeviceptr>(address));
}

Expected<DeviceMemory> DeviceMemory::allocate(size_t bytes) {
  DeviceMemory memory;
  if (bytes == 0) return memory;
  ATTNC_TRY_AS(driver, Driver::get());
  CUdeviceptr address = 0;
  ATTNC_TRY((*driver)->check((*driver)->cuMemAlloc(&address, bytes), "cuMemAlloc"));
  memory.address = reinterpret_cast<void*>(address);
  return memory;
}

Status synchronize(CUstream_st* stream) {
  ATTNC_TRY_AS(driver, Driver::get());
  return (*driver)->check((*driver)->cuStreamSynchronize(stream), "cuStreamSynchronize");
}

Status bringBack(void* host, const void* device, size_t bytes, CUstream_st* stream) {
  if (Status done = synchronize(stream); !done || bytes == 0) return done;
  const Driver& cuda = **Driver::get();
  return cuda.check(cuda.cuMemcpyDtoH(host, reinterpret_cast<CUdeviceptr>(device), bytes), "cuMemcpyDtoH");
}

Expected<bool> isCaptured(CUstream_st* stream) {
  ATTNC_TRY_AS(driver, Driver::get());
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  ATTNC_TRY((*driver)->check((*driver)->cuStreamIsCapturing(stream, &status), "cuStreamIsCapturing"));
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

Expected<Stopwatch> Stopwatch::create() {
  ATTNC_TRY_AS(driver, Driver::get());
  Stopwatch watch;
  for (CUevent* event : {&watch.begin, &watch.end})
    ATTNC_TRY((*driver)->check((*driver)->cuEventCreate(event, CU_EVENT_DEFAULT), "cuEventCreate"));
  return watch;
}

Stopwatch::~Stopwatch() {
  for (CUevent event : {begin, end})
    if (event) (**Driver::get()).cuEventDestroy(event);
}

Expected<float> Stopwatch::ms(CUstream_st* stream, const std::function<Status()>& enqueue) {
  const Driver& cuda = **Driver::get();
  ATTNC_TRY(cuda.check(cuda.cuEventRecord(begin, stream), "cuEventRecord"));
  ATTNC_TRY(enqueue());
  ATTNC_TRY(cuda.check(cuda.cuEventRecord(end, stream), "cuEventRecord"));
  ATTNC_TRY(cuda.check(cuda.cuEventSynchronize(end), "cuEventSynchronize"));
  float ms = 0;
  ATTNC_TRY(cuda.check(cuda.eventElapsedTime(&ms, begin, end), "cuEventElapsedTime"));
  return ms;
}

} // namespace attnc::jit
