#include "jit/device.h"

#include "jit/arch.h"
#include "jit/driver.h"

#include <fmt/format.h>

namespace attnc::jit {

namespace {

CUdeviceptr address(const void* memory, size_t offset = 0) { return reinterpret_cast<CUdeviceptr>(memory) + offset; }

Expected<DeviceInfo> describe(const Driver& driver, CUdevice device) {
  DeviceInfo info;
  info.ordinal = device;
  char name[256] = {};
  if (Status ok = driver.check(driver.cuDeviceGetName(name, sizeof name - 1, device), "cuDeviceGetName"); !ok)
    return std::move(ok).error();
  info.name = name;
  size_t memory = 0;
  if (Status ok = driver.check(driver.cuDeviceTotalMem(&memory, device), "cuDeviceTotalMem"); !ok)
    return std::move(ok).error();
  info.memoryBytes = int64_t(memory);
  int l2 = 0;
  const std::pair<CUdevice_attribute, int*> wanted[] = {
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &info.major},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &info.minor},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &info.multiprocessors},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &info.sharedBytesPerBlock},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &l2},
  };
  for (auto [attribute, value] : wanted)
    if (Status ok = driver.check(driver.cuDeviceGetAttribute(value, attribute, device), "cuDeviceGetAttribute"); !ok)
      return std::move(ok).error();
  info.l2Bytes = l2;
  info.arch = archName(info.major, info.minor);
  return info;
}

// The driver for destructors: an object of it exists, so it is open.
const Driver& opened() { return **Driver::get(); }

} // namespace

Expected<CUctx_st*> currentContext() {
  auto driver = Driver::get();
  if (!driver) return std::move(driver).error();
  CUcontext context = nullptr;
  if (Status ok = (*driver)->check((*driver)->cuCtxGetCurrent(&context), "cuCtxGetCurrent"); !ok)
    return std::move(ok).error();
  if (!context)
    return Error::environment("this thread has no current CUDA context",
                              "call cudaSetDevice or cuCtxSetCurrent first, or name the arch");
  return context;
}

Expected<DeviceInfo> currentDevice() {
  if (auto context = currentContext(); !context) return std::move(context).error();
  const Driver& cuda = opened();
  CUdevice device = 0;
  if (Status ok = cuda.check(cuda.cuCtxGetDevice(&device), "cuCtxGetDevice"); !ok) return std::move(ok).error();
  return describe(cuda, device);
}

Expected<int> deviceCount() {
  auto driver = Driver::get();
  if (!driver) return std::move(driver).error();
  int count = 0;
  if (Status ok = (*driver)->check((*driver)->cuDeviceGetCount(&count), "cuDeviceGetCount"); !ok)
    return std::move(ok).error();
  return count;
}

void DeviceContext::Release::operator()(CUctx_st*) const { opened().cuDevicePrimaryCtxRelease(device); }

Expected<DeviceContext> DeviceContext::create(int ordinal) {
  auto driver = Driver::get();
  if (!driver) return std::move(driver).error();
  const Driver& cuda = **driver;
  CUdevice device = 0;
  if (Status ok = cuda.check(cuda.cuDeviceGet(&device, ordinal), "cuDeviceGet"); !ok) return std::move(ok).error();
  CUcontext raw = nullptr;
  if (Status ok = cuda.check(cuda.cuDevicePrimaryCtxRetain(&raw, device), "cuDevicePrimaryCtxRetain"); !ok)
    return std::move(ok).error();
  DeviceContext context{std::unique_ptr<CUctx_st, Release>(raw, Release{device})};
  if (Status ok = context.makeCurrent(); !ok) return std::move(ok).error();
  auto info = describe(cuda, device);
  if (!info) return std::move(info).error();
  context.device = std::move(*info);
  return context;
}

Status DeviceContext::makeCurrent() const {
  return opened().check(opened().cuCtxSetCurrent(context.get()), "cuCtxSetCurrent");
}

void DeviceBuffer::Free::operator()(void* memory) const { opened().cuMemFree(address(memory)); }

Expected<DeviceBuffer> DeviceBuffer::allocate(size_t bytes) {
  auto driver = Driver::get();
  if (!driver) return std::move(driver).error();
  DeviceBuffer buffer;
  if (bytes == 0) return buffer;
  CUdeviceptr memory = 0;
  Status ok = (*driver)->check((*driver)->cuMemAlloc(&memory, bytes), fmt::format("cuMemAlloc({})", bytes).c_str());
  if (!ok) return std::move(ok).error();
  buffer.memory.reset(reinterpret_cast<void*>(memory));
  buffer.size = bytes;
  return buffer;
}

Status DeviceBuffer::checkRange(size_t bytes, size_t offset) const {
  if (offset <= size && bytes <= size - offset) return {};
  return Error::internal(fmt::format("a copy of {} bytes at {} leaves a device buffer of {}", bytes, offset, size));
}

Status DeviceBuffer::upload(const void* host, size_t bytes, size_t offset) {
  if (Status ok = checkRange(bytes, offset); !ok || bytes == 0) return ok;
  const Driver& cuda = opened();
  if (Status ok = cuda.check(cuda.cuMemcpyHtoD(address(data(), offset), host, bytes), "cuMemcpyHtoD"); !ok) return ok;
  // A copy from pageable memory returns when the host memory has been read, not when the device memory is written.
  return cuda.check(cuda.cuCtxSynchronize(), "cuCtxSynchronize");
}

Status DeviceBuffer::download(void* host, size_t bytes, size_t offset) const {
  if (Status ok = checkRange(bytes, offset); !ok || bytes == 0) return ok;
  return opened().check(opened().cuMemcpyDtoH(host, address(data(), offset), bytes), "cuMemcpyDtoH");
}

Status DeviceBuffer::fill(uint8_t value) {
  if (size == 0) return {};
  const Driver& cuda = opened();
  if (Status ok = cuda.check(cuda.cuMemsetD8(address(data()), value, size), "cuMemsetD8"); !ok) return ok;
  return cuda.check(cuda.cuCtxSynchronize(), "cuCtxSynchronize");
}

Status DeviceBuffer::fillAsync(uint8_t value, CUstream_st* stream) {
  if (size == 0) return {};
  return opened().check(opened().cuMemsetD8Async(address(data()), value, size, stream), "cuMemsetD8Async");
}

void DeviceGraph::Destroy::operator()(CUgraphExec_st* graph) const { opened().cuGraphExecDestroy(graph); }

Status DeviceGraph::launch(CUstream_st* stream) const {
  return opened().check(opened().cuGraphLaunch(graph.get(), stream), "cuGraphLaunch");
}

void DeviceStream::Destroy::operator()(CUstream_st* stream) const { opened().cuStreamDestroy(stream); }

Expected<DeviceStream> DeviceStream::create() {
  auto driver = Driver::get();
  if (!driver) return std::move(driver).error();
  CUstream raw = nullptr;
  if (Status ok = (*driver)->check((*driver)->cuStreamCreate(&raw, CU_STREAM_NON_BLOCKING), "cuStreamCreate"); !ok)
    return std::move(ok).error();
  DeviceStream stream;
  stream.stream.reset(raw);
  return stream;
}

Status DeviceStream::synchronize() const {
  return opened().check(opened().cuStreamSynchronize(get()), "cuStreamSynchronize");
}

Status DeviceStream::beginCapture() const {
  return opened().check(opened().cuStreamBeginCapture(get(), CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
}

Expected<DeviceGraph> DeviceStream::endCapture() const {
  const Driver& cuda = opened();
  CUgraph captured = nullptr;
  if (Status ok = cuda.check(cuda.cuStreamEndCapture(get(), &captured), "cuStreamEndCapture"); !ok)
    return std::move(ok).error();
  CUgraphExec raw = nullptr;
  Status ok = cuda.check(cuda.cuGraphInstantiate(&raw, captured, 0), "cuGraphInstantiate");
  cuda.cuGraphDestroy(captured);
  if (!ok) return std::move(ok).error();
  DeviceGraph graph;
  graph.graph.reset(raw);
  return graph;
}

void DeviceEvent::Destroy::operator()(CUevent_st* event) const { opened().cuEventDestroy(event); }

Expected<DeviceEvent> DeviceEvent::create() {
  auto driver = Driver::get();
  if (!driver) return std::move(driver).error();
  CUevent raw = nullptr;
  if (Status ok = (*driver)->check((*driver)->cuEventCreate(&raw, CU_EVENT_DEFAULT), "cuEventCreate"); !ok)
    return std::move(ok).error();
  DeviceEvent event;
  event.event.reset(raw);
  return event;
}

Status DeviceEvent::record(CUstream_st* stream) const {
  return opened().check(opened().cuEventRecord(event.get(), stream), "cuEventRecord");
}

Status DeviceEvent::synchronize() const {
  return opened().check(opened().cuEventSynchronize(event.get()), "cuEventSynchronize");
}

Expected<float> DeviceEvent::msSince(const DeviceEvent& begin) const {
  float ms = 0;
  CUresult result = opened().eventElapsedTime(&ms, begin.event.get(), event.get());
  if (Status ok = opened().check(result, "cuEventElapsedTime"); !ok) return std::move(ok).error();
  return ms;
}

} // namespace attnc::jit
