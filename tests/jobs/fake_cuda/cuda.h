// What launchers take from cuda.h, for the test that compiles them without CUDA.
#pragma once

#include "encode.h"

#include <cstdint>

using cuuint32_t = uint32_t;
using cuuint64_t = unsigned long long;
struct alignas(64) CUtensorMap {
  unsigned long long words[16];
};
// As numbered in cuda.h.
enum CUtensorMapDataType {
  CU_TENSOR_MAP_DATA_TYPE_UINT8 = 0,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT16 = 6,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT32 = 7,
  CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9
};
enum { CU_TENSOR_MAP_INTERLEAVE_NONE = 0, CU_TENSOR_MAP_SWIZZLE_128B = 3, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0 };
enum CUtensorMapL2promotion { CU_TENSOR_MAP_L2_PROMOTION_L2_128B = 2, CU_TENSOR_MAP_L2_PROMOTION_L2_256B = 3 };

inline int cuTensorMapEncodeTiled(CUtensorMap* map, int type, unsigned rank, void* data, const cuuint64_t* extent,
                                  const cuuint64_t* stride, const cuuint32_t* box, const cuuint32_t* step,
                                  int interleave, int swizzle, int promotion, int fill) {
  return fakeEncode(map, type, rank, data, extent, stride, box, step, interleave, swizzle, promotion, fill);
}
