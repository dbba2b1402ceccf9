// Stands for libcuda.so.1 where there is no GPU: tensor maps are encoded as launchers' are, and all else does nothing.
#include "encode.h"

extern "C" {
int cuTensorMapEncodeTiled(void* map, int type, unsigned rank, void* data, const unsigned long long* extent,
                           const unsigned long long* stride, const unsigned* box, const unsigned* step, int interleave,
                           int swizzle, int promotion, int fill) {
  return fakeEncode(map, type, rank, data, extent, stride, box, step, interleave, swizzle, promotion, fill);
}
#define NOTHING(function)                                                                                              \
  int function() { return 0; }
NOTHING(cuInit)
NOTHING(cuGetErrorName)
NOTHING(cuGetErrorString)
NOTHING(cuDeviceGetName)
NOTHING(cuDeviceGetAttribute)
NOTHING(cuDeviceTotalMem_v2)
NOTHING(cuCtxGetCurrent)
NOTHING(cuCtxGetDevice)
NOTHING(cuLibraryLoadData)
NOTHING(cuLibraryUnload)
NOTHING(cuLibraryGetKernel)
NOTHING(cuLibraryGetGlobal)
NOTHING(cuKernelGetFunction)
NOTHING(cuFuncGetAttribute)
NOTHING(cuFuncSetAttribute)
NOTHING(cuFuncLoad)
NOTHING(cuLaunchKernelEx)
NOTHING(cuMemsetD8Async)
NOTHING(cuMemAlloc_v2)
NOTHING(cuMemFree_v2)
NOTHING(cuMemcpyDtoH_v2)
NOTHING(cuMemcpyHtoDAsync_v2)
NOTHING(cuMemcpy2DAsync_v2)
NOTHING(cuStreamIsCapturing)
NOTHING(cuStreamSynchronize)
NOTHING(cuStreamWaitEvent)
NOTHING(cuEventCreate)
NOTHING(cuEventDestroy_v2)
NOTHING(cuEventRecord)
NOTHING(cuEventSynchronize)
NOTHING(cuEventElapsedTime)
}
