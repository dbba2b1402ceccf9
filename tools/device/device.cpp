#include "tools/device/device.h"

#include "support/try.h"
#include "tools/device/functions.h"

#include <fmt/format.h>

namespace attnc::device {

namespace {

CUdeviceptr address(const void* memory, size_t offset = 0) { return reinterpret_cast<CUdeviceptr>(memory) + offset; }

// Returns the driver's functions. Objects that call it exist only once the driver is open.
const Functions& opened() { return **Functions::get(); }

} // namespace

Expected<int> count() {
  ATTNC_TRY_AS(driver, Functions::get());
  int number = 0;
  ATTNC_TRY((*driver)->check((*driver)->cuDeviceGetCount(&number), "cuDeviceGetCount"));
  return number;
}

Expected<int> driverVersion() {
  ATTNC_TRY_AS(driver, Functions::get());
  int version = 0;
  ATTNC_TRY((*driver)->check((*driver)->cuDriverGetVersion(&version), "cuDriverGetVersion"));
  return version;
}

void Context::Leave::operator()(CUctx_st*) const { opened().cuDevicePrimaryCtxRelease(device); }

Expected<Context> Context::create(int ordinal) {
  ATTNC_TRY_AS(driver, Functions::get());
  const Functions& cuda = **driver;
  CUdevice device = 0;
  ATTNC_TRY(cuda.check(cuda.cuDeviceGet(&device, ordinal), "cuDeviceGet"));
  CUcontext raw = nullptr;
  ATTNC_TRY(cuda.check(cuda.cuDevicePrimaryCtxRetain(&raw, device), "cuDevicePrimaryCtxRetain"));
  Context context{std::unique_ptr<CUctx_st, Leave>(raw, Leave{device})};
  ATTNC_TRY(context.makeCurrent());
  ATTNC_TRY_AS(info, jit::currentDevice());
  context.device = std::move(*info);
  return context;
}

Status Context::makeCurrent() const {
  return opened().check(opened().cuCtxSetCurrent(context.get()), "cuCtxSetCurrent");
}

void Release::operator()(void* memory) const { opened().cuMemFree(address(memory)); }

Expected<Buffer> Buffer::allocate(size_t bytes) {
  ATTNC_TRY_AS(driver, Functions::get());
  Buffer buffer;
  if (bytes == 0) return buffer;
  CUdeviceptr memory = 0;
  Status ok = (*driver)->check((*driver)->cuMemAlloc(&memory, bytes), fmt::format("cuMemAlloc({})", bytes).c_str());
  if (!ok) return std::move(ok).error();
  buffer.memory.reset(reinterpret_cast<void*>(memory));
  buffer.size = bytes;
  return buffer;
}

Status Buffer::checkRange(size_t bytes, size_t offset) const {
  if (offset <= size && bytes <= size - offset) return {};
  return Error::internal(fmt::format("a copy of {} bytes at {} leaves a device buffer of {}", bytes, offset, size));
}

Status Buffer::upload(const void* host, size_t bytes, size_t offset) {
  if (Status ok = checkRange(bytes, offset); !ok || bytes == 0) return ok;
  const Functions& cuda = opened();
  ATTNC_TRY(cuda.check(cuda.cuMemcpyHtoD(address(data(), offset), host, bytes), "cuMemcpyHtoD"));
  // A copy from pageable memory returns once the host memory has been read, before the device memory is written.
  return cuda.check(cuda.cuCtxSynchronize(), "cuCtxSynchronize");
}

Status Buffer::download(void* host, size_t bytes, size_t offset) const {
  if (Status ok = checkRange(bytes, offset); !ok || bytes == 0) return ok;
  return opened().check(opened().cuMemcpyDtoH(host, address(data(), offset), bytes), "cuMemcpyDtoH");
}

Status Buffer::fill(uint8_t value) {
  if (size == 0) return {};
  const Functions& cuda = opened();
  ATTNC_TRY(cuda.check(cuda.cuMemsetD8(address(data()), value, size), "cuMemsetD8"));
  return cuda.check(cuda.cuCtxSynchronize(), "cuCtxSynchronize");
}

Status Buffer::fillAsync(uint8_t value, CUstream_st* stream) {
  if (size == 0) return {};
  return opened().check(opened().cuMemsetD8Async(address(data()), value, size, stream), "cuMemsetD8Async");
}

Status Buffer::copyAsync(const Buffer& from, CUstream_st* stream) {
  if (Status ok = checkRange(from.bytes(), 0); !ok || from.bytes() == 0) return ok;
  const Functions& cuda = opened();
  return cuda.check(cuda.cuMemcpyDtoDAsync(address(data()), address(from.data()), from.bytes(), stream),
                    "cuMemcpyDtoDAsync");
}

void Release::operator()(CUgraphExec_st* graph) const { opened().cuGraphExecDestroy(graph); }

Status Graph::launch(CUstream_st* stream) const {
  return opened().check(opened().cuGraphLaunch(graph.get(), stream), "cuGraphLaunch");
}

void Release::operator()(CUstream_st* stream) const { opened().cuStreamDestroy(stream); }

Expected<Stream> Stream::create() {
  ATTNC_TRY_AS(driver, Functions::get());
  CUstream raw = nullptr;
  ATTNC_TRY((*driver)->check((*driver)->cuStreamCreate(&raw, CU_STREAM_NON_BLOCKING), "cuStreamCreate"));
  Stream stream;
  stream.stream.reset(raw);
  return stream;
}

Status Stream::synchronize() const {
  return opened().check(opened().cuStreamSynchronize(get()), "cuStreamSynchronize");
}

Status Stream::beginCapture() const {
  return opened().check(opened().cuStreamBeginCapture(get(), CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
}

Expected<Graph> Stream::endCapture() const {
  const Functions& cuda = opened();
  CUgraph captured = nullptr;
  ATTNC_TRY(cuda.check(cuda.cuStreamEndCapture(get(), &captured), "cuStreamEndCapture"));
  CUgraphExec raw = nullptr;
  Status ok = cuda.check(cuda.cuGraphInstantiate(&raw, captured, 0), "cuGraphInstantiate");
  cuda.cuGraphDestroy(captured);
  if (!ok) return std::move(ok).error();
  Graph graph;
  graph.graph.reset(raw);
  return graph;
}

void Release::operator()(CUevent_st* event) const { opened().cuEventDestroy(event); }

Expected<Event> Event::create() {
  ATTNC_TRY_AS(driver, Functions::get());
  CUevent raw = nullptr;
  ATTNC_TRY((*driver)->check((*driver)->cuEventCreate(&raw, CU_EVENT_DEFAULT), "cuEventCreate"));
  Event event;
  event.event.reset(raw);
  return event;
}

Status Event::record(CUstream_st* stream) const {
  return opened().check(opened().cuEventRecord(event.get(), stream), "cuEventRecord");
}

Status Event::synchronize() const {
  return opened().check(opened().cuEventSynchronize(event.get()), "cuEventSynchronize");
}

Expected<float> Event::msSince(const Event& begin) const {
  float ms = 0;
  CUresult result = opened().eventElapsedTime(&ms, begin.event.get(), event.get());
  ATTNC_TRY(opened().check(result, "cuEventElapsedTime"));
  return ms;
}

} // namespace attnc::device
