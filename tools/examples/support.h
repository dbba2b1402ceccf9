// What the examples in C share: checks that end the program, and tensors.
#pragma once

#include <attnc/c.h>

#include "device.h"

#include <stdio.h>

static inline void check(attnc_status status) {
  if (status == ATTNC_OK) return;
  fprintf(stderr, "%s\n%s\n", attnc_last_error(), attnc_last_remedy());
  exit(status);
}

static inline void check_cuda(int result) {
  if (result == 0) return;
  fprintf(stderr, "CUDA error %d\n", result);
  exit(ATTNC_ERROR_ENVIRONMENT);
}

static inline attnc_tensor tensor(attnc_dtype dtype, int32_t rank, const int64_t* shape) {
  attnc_tensor view = {.struct_size = sizeof view, .dtype = dtype, .rank = rank};
  for (int32_t axis = 0; axis < rank; ++axis) view.shape[axis] = shape[axis];
  check(attnc_tensor_make_dense(&view));
  return view;
}

/// Returns a copy of host memory where attention is computed.
static inline void* upload(const device* gpu, const void* host, size_t bytes) {
  uint64_t address;
  check_cuda(gpu->alloc(&address, bytes));
  check_cuda(gpu->upload(address, host, bytes));
  return (void*)address;
}

/// Returns device memory for a workspace. Null if it needs none.
static inline void* workspace_of(const device* gpu, const attnc_prepared* attention) {
  size_t bytes;
  uint64_t address = 0;
  check(attnc_prepared_workspace_bytes(attention, &bytes));
  if (bytes) check_cuda(gpu->alloc(&address, bytes));
  return (void*)address;
}
