#include "jit/measure.h"

#include "jit/driver.h"

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
  auto driver = Driver::get();
  if (!driver) return std::move(driver).error();
  CUdeviceptr address = 0;
  if (Status ok = (*driver)->check((*driver)->cuMemAlloc(&address, bytes), "cuMemAlloc"); !ok)
    return std::move(ok).error();
  memory.address = reinterpret_cast<void*>(address);
  return memory;
}

Status synchronize(CUstream_st* stream) {
  auto driver = Driver::get();
  if (!driver) return std::move(driver).error();
  return (*driver)->check((*driver)->cuStreamSynchronize(stream), "cuStreamSynchronize");
}

Status bringBack(void* host, const void* device, size_t bytes, CUstream_st* stream) {
  if (Status done = synchronize(stream); !done || bytes == 0) return done;
  const Driver& cuda = **Driver::get();
  return cuda.check(cuda.cuMemcpyDtoH(host, reinterpret_cast<CUdeviceptr>(device), bytes), "cuMemcpyDtoH");
}

Expected<Stopwatch> Stopwatch::create() {
  auto driver = Driver::get();
  if (!driver) return std::move(driver).error();
  Stopwatch watch;
  for (CUevent* event : {&watch.begin, &watch.end})
    if (Status ok = (*driver)->check((*driver)->cuEventCreate(event, CU_EVENT_DEFAULT), "cuEventCreate"); !ok)
      return std::move(ok).error();
  return watch;
}

Stopwatch::~Stopwatch() {
  for (CUevent event : {begin, end})
    if (event) (**Driver::get()).cuEventDestroy(event);
}

Expected<float> Stopwatch::ms(CUstream_st* stream, const std::function<Status()>& enqueue) {
  const Driver& cuda = **Driver::get();
  if (Status ok = cuda.check(cuda.cuEventRecord(begin, stream), "cuEventRecord"); !ok) return std::move(ok).error();
  if (Status ok = enqueue(); !ok) return std::move(ok).error();
  if (Status ok = cuda.check(cuda.cuEventRecord(end, stream), "cuEventRecord"); !ok) return std::move(ok).error();
  if (Status ok = cuda.check(cuda.cuEventSynchronize(end), "cuEventSynchronize"); !ok) return std::move(ok).error();
  float ms = 0;
  if (Status ok = cuda.check(cuda.eventElapsedTime(&ms, begin, end), "cuEventElapsedTime"); !ok)
    return std::move(ok).error();
  return ms;
}

} // namespace attnc::jit
