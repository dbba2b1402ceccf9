// Stands for libcuda.so.1 where there is no GPU: one device of compute capability 8.0, whose context is current in the
// thread that loads this library, as cudaSetDevice() makes it in its caller's thread. Tensor maps are encoded as
// launchers' are. Memory has addresses and no contents, kernels do nothing, and each takes a millisecond of events. To
// wait for one takes a little real time, in which other threads may look at counters.
#include "encode.h"

#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>

namespace {

const std::thread::id kCaller = std::this_thread::get_id();
char something; // what handles point to
double now = 0; // in milliseconds

} // namespace

extern "C" {
int cuTensorMapEncodeTiled(void* map, int type, unsigned rank, void* data, const unsigned long long* extent,
                           const unsigned long long* stride, const unsigned* box, const unsigned* step, int interleave,
                           int swizzle, int promotion, int fill) {
  return fakeEncode(map, type, rank, data, extent, stride, box, step, interleave, swizzle, promotion, fill);
}

int cuCtxGetCurrent(void** context) {
  *context = std::this_thread::get_id() == kCaller ? &something : nullptr;
  return 0;
}

int cuDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {
  case 75: *value = 8; break;        // the compute capability's first number
  case 76: *value = 0; break;        // and its second
  case 16: *value = 108; break;      // multiprocessors
  case 97: *value = 166912; break;   // bytes of shared memory of a block
  case 38: *value = 40 << 20; break; // bytes of L2
  default: *value = 0;
  }
  return 0;
}

int cuMemAlloc_v2(unsigned long long* address, size_t bytes) {
  static unsigned long long next = 1ull << 56;
  *address = next, next += (bytes + 255) / 256 * 256;
  return 0;
}

// Memory from 2^40 to 2^41 holds ones, other memory zeros.
int cuMemcpyDtoH_v2(void* to, unsigned long long from, size_t bytes) {
  std::memset(to, from >> 40 == 1, bytes);
  return 0;
}

int cuStreamIsCapturing(void* stream, int* status) {
  *status = stream == reinterpret_cast<void*>(1);
  return 0;
}

int cuLaunchKernelEx() {
  ++now;
  return 0;
}

int cuEventCreate(void** event, unsigned) {
  *event = new double(0);
  return 0;
}

int cuEventDestroy_v2(void* event) {
  delete static_cast<double*>(event);
  return 0;
}

int cuEventRecord(void* event, void*) {
  *static_cast<double*>(event) = now;
  return 0;
}

int cuEventSynchronize(void*) {
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return 0;
}

int cuDeviceGetCount(int* count) {
  *count = 1;
  return 0;
}

int cuDeviceGetName(char* name, int, int) {
  std::strcpy(name, "a fake");
  return 0;
}

int cuDeviceGetUuid_v2(void* uuid, int) {
  std::memcpy(uuid, "0123456789abcdef", 16);
  return 0;
}

int cuDevicePrimaryCtxRetain(void** context, int) {
  *context = &something;
  return 0;
}

int cuEventElapsedTime(float* ms, void* begin, void* end) {
  const double passed = *static_cast<double*>(end) - *static_cast<double*>(begin);
  *ms = passed > 0 ? float(passed) : 1;
  return 0;
}

int cuFuncGetAttribute(int* value, int, void*) {
  *value = 0;
  return 0;
}

#define NOTHING(function)                                                                                              \
  int function() { return 0; }
NOTHING(cuInit)
NOTHING(cuGetErrorName)
NOTHING(cuGetErrorString)
NOTHING(cuDeviceTotalMem_v2)
NOTHING(cuCtxGetDevice)
NOTHING(cuLibraryLoadData)
NOTHING(cuLibraryUnload)
NOTHING(cuLibraryGetKernel)
NOTHING(cuLibraryGetGlobal)
NOTHING(cuKernelGetFunction)
NOTHING(cuFuncSetAttribute)
NOTHING(cuFuncLoad)
NOTHING(cuMemsetD8Async)
NOTHING(cuMemFree_v2)
NOTHING(cuMemcpyHtoDAsync_v2)
NOTHING(cuMemcpy2DAsync_v2)
NOTHING(cuStreamSynchronize)
NOTHING(cuStreamWaitEvent)
NOTHING(cuDriverGetVersion)
NOTHING(cuDeviceGet)
NOTHING(cuDevicePrimaryCtxRelease_v2)
NOTHING(cuCtxSetCurrent)
NOTHING(cuCtxSynchronize)
NOTHING(cuMemcpyHtoD_v2)
NOTHING(cuMemcpyDtoDAsync_v2)
NOTHING(cuMemsetD8_v2)
NOTHING(cuStreamCreate)
NOTHING(cuStreamDestroy_v2)
NOTHING(cuStreamBeginCapture_v2)
NOTHING(cuStreamEndCapture)
NOTHING(cuGraphInstantiateWithFlags)
NOTHING(cuGraphDestroy)
NOTHING(cuGraphExecDestroy)
NOTHING(cuGraphLaunch)
}
