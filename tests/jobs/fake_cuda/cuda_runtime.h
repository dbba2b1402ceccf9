// What launchers take from CUDA's runtime. Calls go to the test that loads the launcher.
#pragma once

#include <cstddef>

using cudaStream_t = struct CUstream_st*;
enum { cudaErrorInvalidValue = 1, cudaErrorInvalidDevice = 101, cudaErrorMisalignedAddress = 716 };
enum { cudaDevAttrMultiProcessorCount = 16 };
enum { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
struct dim3 {
  unsigned x;
  explicit dim3(unsigned x) : x(x) {}
};

extern "C" {
int fakeMultiprocessors;
unsigned long long* fakeZero;
void (*fakeLaunch)(unsigned grid, unsigned block, size_t sharedBytes, void** arguments);
void (*fakeZeros)(void* memory, size_t bytes);
}

inline int cudaGetDevice(int* device) { return *device = 0; }
inline int cudaDeviceGetAttribute(int* value, int, int) {
  *value = fakeMultiprocessors;
  return 0;
}
inline int cudaFuncSetAttribute(const void*, int, int) { return 0; }
inline int cudaGetSymbolAddress(void** address, const unsigned long long&) {
  *address = fakeZero;
  return 0;
}
inline int cudaMemsetAsync(void* memory, int, size_t bytes, cudaStream_t) {
  fakeZeros(memory, bytes);
  return 0;
}
inline int cudaLaunchKernel(const void*, dim3 grid, dim3 block, void** arguments, size_t sharedBytes, cudaStream_t) {
  fakeLaunch(grid.x, block.x, sharedBytes, arguments);
  return 0;
}
