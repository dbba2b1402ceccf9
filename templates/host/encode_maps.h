// Encodes tensor maps with the CUDA driver.
//
// Host code, only as text in the launcher of an emitted kernel.
#pragma once

namespace attnc::plan {

template <size_t count> int encodeMaps(const std::array<MapPlace, count>& places, const LaunchOperands& operands) {
  for (const MapPlace& place : places) {
    *place.batchStep = batchStepOf(*place.tensor);
    const jit::TensorMapRequest request =
        requestOf(*place.tensor, place.boxRows, somewhereIn(operands), place.promotion);
    const cuuint32_t step[] = {1, 1, 1, 1};
    cuuint64_t extent[4], stride[3];
    std::copy_n(request.extent.begin(), 4, extent);
    std::copy_n(request.strideBytes.begin(), 3, stride);
    CUtensorMap map;
    const int error = cuTensorMapEncodeTiled(
        &map, request.dtype == DType::F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4,
        request.data, extent, stride, request.box.data(), step, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_128B,
        request.promotion == jit::L2Promotion::Bytes128 ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B
                                                        : CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (error) return error;
    static_assert(sizeof map == sizeof *place.map);
    std::memcpy(place.map, &map, sizeof map);
  }
  return 0;
}

} // namespace attnc::plan
