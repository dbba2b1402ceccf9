// Tensor maps: descriptors with which the copy engine of Hopper and later (TMA) finds tiles of a tensor.
//
// In: a strided tensor and the box that a copy moves. Out: the 128 bytes that a kernel takes as a parameter. Pure host
// work of the driver: nothing is enqueued or allocated.
#pragma once

#include "attnc/error.h"
#include "attnc/tensor.h"

#include <array>
#include <cstdint>

namespace attnc::jit {

/// How many bytes around a copy's source are prefetched into L2.
enum class L2Promotion { Bytes128, Bytes256 };

/// A 4-D or 5-D tensor in device memory, innermost axis first, with the 128-byte swizzle and zero fill.
struct TensorMapRequest {
  void* data = nullptr;      ///< 16-byte aligned
  DType dtype = DType::BF16; ///< BF16, F16 or F32
  uint32_t rank = 4;
  std::array<uint64_t, 5> extent{};      ///< elements; each at least 1
  std::array<uint64_t, 4> strideBytes{}; ///< of axes 1, 2, ...: multiples of 16, below 2^40
  std::array<uint32_t, 5> box{};         ///< elements per copy; at most 128 bytes of axis 0
  L2Promotion promotion = L2Promotion::Bytes256;
};

/// Encodes a tensor map. Blame::Environment: no driver, or a request that it refuses.
Expected<std::array<uint64_t, 16>> encodeTensorMap(const TensorMapRequest& request);

} // namespace attnc::jit
