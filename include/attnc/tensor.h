// Borrowed views of tensors, in host or device memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace attnc {

/// Element types of tensors. q, k, v: f16, bf16, f32; k and v of decode kernels also e4m3 (fp8 of 4 bits of exponent, 3 of
/// fraction, without infinities). Captured tensors: all but that.
enum class DType : uint8_t { Bool, U8, I8, I16, I32, I64, F16, BF16, F32, E4M3 };

/// Bytes of one element.
constexpr int64_t dtypeBytes(DType dtype) {
  switch (dtype) {
  case DType::Bool:
  case DType::U8:
  case DType::I8:
  case DType::E4M3: return 1;
  case DType::I16:
  case DType::F16:
  case DType::BF16: return 2;
  case DType::I32:
  case DType::F32: return 4;
  case DType::I64: return 8;
  }
  return 0;
}

/// The spelling used in mods, on the command line and in messages: "bool", "u8", "i32", "bf16", ...
constexpr std::string_view dtypeName(DType dtype) {
  switch (dtype) {
  case DType::Bool: return "bool";
  case DType::U8: return "u8";
  case DType::I8: return "i8";
  case DType::I16: return "i16";
  case DType::I32: return "i32";
  case DType::I64: return "i64";
  case DType::F16: return "f16";
  case DType::BF16: return "bf16";
  case DType::F32: return "f32";
  case DType::E4M3: return "e4m3";
  }
  return "?";
}

/// A strided view of memory that somebody else owns. Strides are in elements and may be 0 or negative.
struct TensorView {
  static constexpr int kMaxRank = 6;

  void* data = nullptr; ///< host or device address of element (0, ..., 0)
  DType dtype = DType::F32;
  int rank = 0;
  std::array<int64_t, kMaxRank> shape{};
  std::array<int64_t, kMaxRank> stride{};

  /// A row-major, densely packed view.
  static TensorView contiguous(void* data, DType dtype, std::initializer_list<int64_t> shape) {
    TensorView view;
    view.data = data;
    view.dtype = dtype;
    for (int64_t extent : shape) view.shape[view.rank++] = extent;
    int64_t step = 1;
    for (int axis = view.rank - 1; axis >= 0; --axis) {
      view.stride[axis] = step;
      step *= view.shape[axis];
    }
    return view;
  }

  /// Number of elements; 1 for a 0-d tensor.
  int64_t elements() const {
    int64_t count = 1;
    for (int axis = 0; axis < rank; ++axis) count *= shape[axis];
    return count;
  }
};

} // namespace attnc
