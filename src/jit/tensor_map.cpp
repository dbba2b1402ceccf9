#include "jit/tensor_map.h"

#include "jit/driver.h"
#include "support/try.h"

#include <algorithm>
#include <cstring>

namespace attnc::jit {

Expected<std::array<uint64_t, 16>> encodeTensorMap(const TensorMapRequest& request) {
  ATTNC_TRY_AS(driver, Driver::get());
  const CUtensorMapDataType type = request.dtype == DType::F32    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                                   : request.dtype == DType::F16  ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                   : request.dtype == DType::E4M3 ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                                                  : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  const CUtensorMapL2promotion promotion = request.promotion == L2Promotion::Bytes128
                                               ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B
                                               : CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
  const cuuint32_t step[5] = {1, 1, 1, 1, 1};
  cuuint64_t extent[5], stride[4];
  std::copy(request.extent.begin(), request.extent.end(), extent);
  std::copy(request.strideBytes.begin(), request.strideBytes.end(), stride);
  CUtensorMap map;
  const CUresult result = (*driver)->cuTensorMapEncodeTiled(
      &map, type, request.rank, request.data, extent, stride, request.box.data(), step, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  ATTNC_TRY((*driver)->check(result, "cuTensorMapEncodeTiled"));
  std::array<uint64_t, 16> bytes;
  static_assert(sizeof map == sizeof bytes);
  std::memcpy(bytes.data(), &map, sizeof map);
  return bytes;
}

} // namespace attnc::jit
