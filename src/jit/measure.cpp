#include "jit/measure.h"

#include "jit/driver.h"
#include "support/try.h"

namespace attnc::jit {

Expected<std::shared_ptr<void>> allocate(size_t bytes) {
  if (bytes == 0) return std::shared_ptr<void>();
  ATTNC_TRY_AS(driver, Driver::get());
  const Driver& cuda = **driver;
  CUdeviceptr address = 0;
  ATTNC_TRY(cuda.check(cuda.cuMemAlloc(&address, bytes), "cuMemAlloc"));
  return std::shared_ptr<void>(reinterpret_cast<void*>(address), [&cuda, address](void*) { cuda.cuMemFree(address); });
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
  for (auto& owned : watch.events) {
    CUevent event = nullptr;
    ATTNC_TRY((*driver)->check((*driver)->cuEventCreate(&event, CU_EVENT_DEFAULT), "cuEventCreate"));
    owned.reset(event);
  }
  return watch;
}

void Stopwatch::Destroy::operator()(CUevent_st* event) const { (**Driver::get()).cuEventDestroy(event); }

Expected<float> Stopwatch::ms(CUstream_st* stream, int launches, const std::function<Status()>& enqueue) {
  constexpr int kStride = 32; // launches between two marks
  const Driver& cuda = **Driver::get();
  const CUevent begin = events[0].get(), end = events[1].get();
  const CUevent marks[] = {events[2].get(), events[3].get(), events[4].get()};
  const auto record = [&](CUevent event) { return cuda.check(cuda.cuEventRecord(event, stream), "cuEventRecord"); };
  const auto wait = [&](CUevent event) { return cuda.check(cuda.cuEventSynchronize(event), "cuEventSynchronize"); };
  ATTNC_TRY(record(begin));
  for (int i = 0; i < launches; ++i) {
    ATTNC_TRY(enqueue());
    if (i % kStride) continue;
    const int mark = i / kStride;
    if (mark >= 3) ATTNC_TRY(wait(marks[mark % 3]));
    ATTNC_TRY(record(marks[mark % 3]));
  }
  ATTNC_TRY(record(end));
  ATTNC_TRY(wait(end));
  float ms = 0;
  ATTNC_TRY(cuda.check(cuda.eventElapsedTime(&ms, begin, end), "cuEventElapsedTime"));
  return ms / float(launches);
}

} // namespace attnc::jit
