// Memory of the first GPU, for programs that have neither the CUDA runtime nor its headers: the functions of libcuda
// are looked up at run time. A program that uses CUDA anyway does not need this.
#pragma once

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

typedef struct device {
  int (*alloc)(uint64_t* address, size_t bytes);
  int (*upload)(uint64_t to, const void* from, size_t bytes);
  int (*download)(void* to, uint64_t from, size_t bytes);
  int (*release)(uint64_t address);
  int (*synchronize)(void);
} device;

/// Makes the GPU's context current in this thread. Returns 0 if there is no GPU.
static inline int device_open(device* gpu) {
  int (*init)(unsigned);
  int (*get)(int*, int);
  int (*retain)(void**, int);
  int (*set_current)(void*);
  const struct {
    const char* name;
    void* function; // target of its address
  } functions[] = {
      {"cuInit", &init},
      {"cuDeviceGet", &get},
      {"cuDevicePrimaryCtxRetain", &retain},
      {"cuCtxSetCurrent", &set_current},
      {"cuMemAlloc_v2", &gpu->alloc},
      {"cuMemcpyHtoD_v2", &gpu->upload},
      {"cuMemcpyDtoH_v2", &gpu->download},
      {"cuMemFree_v2", &gpu->release},
      {"cuCtxSynchronize", &gpu->synchronize},
  };
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) return 0;
  for (size_t i = 0; i < sizeof functions / sizeof *functions; ++i) {
    void* address = dlsym(library, functions[i].name);
    if (!address) return 0;
    *(void**)functions[i].function = address;
  }
  int ordinal = 0;
  void* context = NULL;
  return init(0) == 0 && get(&ordinal, 0) == 0 && retain(&context, ordinal) == 0 && set_current(context) == 0;
}

/// bf16 numbers: the upper half of a float.
static inline uint16_t to_bf16(float value) {
  union {
    float real;
    uint32_t bits;
  } both;
  both.real = value;
  return (uint16_t)(both.bits >> 16);
}
static inline float from_bf16(uint16_t value) {
  union {
    float real;
    uint32_t bits;
  } both;
  both.bits = (uint32_t)value << 16;
  return both.real;
}
