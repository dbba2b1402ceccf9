// Types that stand for those of attnc in launchers of kernels with tensor maps.
//
// Host code, only as text in the launcher of an emitted kernel.
#pragma once

namespace attnc::jit {

enum class L2Promotion { Bytes128, Bytes256 };

/// A tensor, innermost axis first, with the 128-byte swizzle and zero fill.
struct TensorMapRequest {
  void* data = nullptr;
  DType dtype = DType::BF16;
  std::array<uint64_t, 5> extent{};
  std::array<uint64_t, 4> strideBytes{};
  std::array<uint32_t, 5> box{};
  L2Promotion promotion = L2Promotion::Bytes256;
};

} // namespace attnc::jit

namespace attnc::plan {

/// Where a map and the step of its batch coordinate go, and what they are of.
struct MapPlace {
  const char* name;
  const TensorView* tensor;
  int boxRows;
  TensorMap* map;
  int* batchStep;
  jit::L2Promotion promotion = jit::L2Promotion::Bytes256;
};

} // namespace attnc::plan
