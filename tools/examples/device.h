// Memory and graphs of the first GPU, for programs that have neither the CUDA runtime nor its headers: the functions of
// libcuda are looked up at run time. Without a GPU the same functions work on host memory. A program that uses CUDA
// anyway does not need this.
#pragma once

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct device {
  int (*alloc)(uint64_t* address, size_t bytes);
  int (*upload)(uint64_t to, const void* from, size_t bytes);
  int (*download)(void* to, uint64_t from, size_t bytes);
  int (*release)(uint64_t address);
  int (*synchronize)(void);
  // Streams and graphs; null without a GPU.
  int (*create_stream)(void** stream, unsigned flags);
  int (*begin_capture)(void* stream, int mode);
  int (*end_capture)(void* stream, void** graph);
  int (*instantiate)(void** executable, void* graph, unsigned long long flags);
  int (*launch_graph)(void* executable, void* stream);
} device;

static inline int host_alloc(uint64_t* address, size_t bytes) {
  void* memory = malloc(bytes);
  *address = (uint64_t)memory;
  return memory ? 0 : 2;
}
static inline int host_upload(uint64_t to, const void* from, size_t bytes) {
  memcpy((void*)to, from, bytes);
  return 0;
}
static inline int host_download(void* to, uint64_t from, size_t bytes) {
  memcpy(to, (const void*)from, bytes);
  return 0;
}
static inline int host_release(uint64_t address) {
  free((void*)address);
  return 0;
}
static inline int host_synchronize(void) { return 0; }

/// Makes the GPU's context current in this thread. Returns 0 if there is no GPU; the memory is then that of the host.
static inline int device_open(device* gpu) {
  const device host = {host_alloc, host_upload, host_download, host_release, host_synchronize, 0, 0, 0, 0, 0};
  *gpu = host;
  device found = host;
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
      {"cuMemAlloc_v2", &found.alloc},
      {"cuMemcpyHtoD_v2", &found.upload},
      {"cuMemcpyDtoH_v2", &found.download},
      {"cuMemFree_v2", &found.release},
      {"cuCtxSynchronize", &found.synchronize},
      {"cuStreamCreate", &found.create_stream},
      {"cuStreamBeginCapture_v2", &found.begin_capture},
      {"cuStreamEndCapture", &found.end_capture},
      {"cuGraphInstantiateWithFlags", &found.instantiate},
      {"cuGraphLaunch", &found.launch_graph},
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
  if (init(0) || get(&ordinal, 0) || retain(&context, ordinal) || set_current(context)) return 0;
  *gpu = found;
  return 1;
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

/// Returns a number in -1 .. 1 that looks random; `state` is any number at first.
static inline float draw(uint32_t* state) {
  *state = *state * 1664525u + 1013904223u;
  return (float)(*state >> 8) / (float)(1 << 23) - 1;
}
