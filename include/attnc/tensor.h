// Borrowed views of tensors, in host or device memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <string_view>

namespace attnc {

/// Element types of tensors. Tensors q, k and v are F16, BF16 or F32. In forward kernels, they may also be E4M3; in
/// decode kernels, k and v may. Captured tensors have any type but E4M3.
enum class DType : uint8_t {
  Bool, ///< One byte: 0 is false, anything else is true.
  U8,   ///< Unsigned, 8 bits.
  I8,   ///< Signed, 8 bits.
  I16,  ///< Signed, 16 bits.
  I32,  ///< Signed, 32 bits.
  I64,  ///< Signed, 64 bits.
  F16,  ///< IEEE half precision.
  BF16, ///< bfloat16: 8 bits of exponent, 7 of mantissa.
  F32,  ///< IEEE single precision.
  E4M3, ///< fp8 with 4 bits of exponent, 3 of mantissa, and no infinities.
};

namespace detail {

struct DTypeRow {
  std::string_view name;
  int64_t bytes;
};
constexpr DTypeRow kDTypes[] = {{"bool", 1}, {"u8", 1},  {"i8", 1},   {"i16", 2}, {"i32", 4},
                                {"i64", 8},  {"f16", 2}, {"bf16", 2}, {"f32", 4}, {"e4m3", 1}};
static_assert(std::size(kDTypes) == size_t(DType::E4M3) + 1);

} // namespace detail

/// Returns the bytes of one element.
constexpr int64_t dtypeBytes(DType dtype) { return detail::kDTypes[size_t(dtype)].bytes; }

/// Returns the spelling used in mods, on the command line and in messages: "bool", "u8", "i32", "bf16", ...
constexpr std::string_view dtypeName(DType dtype) { return detail::kDTypes[size_t(dtype)].name; }

/// A strided view of memory that somebody else owns. Strides are in elements, and may be 0 or negative.
struct TensorView {
  static constexpr int kMaxRank = 6; ///< Most axes of a tensor.

  void* data = nullptr;                   ///< Host or device address of element (0, ..., 0).
  DType dtype = DType::F32;               ///< Type of the elements.
  int rank = 0;                           ///< Number of axes, 0 .. kMaxRank.
  std::array<int64_t, kMaxRank> shape{};  ///< Extents of the first `rank` axes.
  std::array<int64_t, kMaxRank> stride{}; ///< Strides of the first `rank` axes, in elements.

  /// Returns a row-major, dense view. `data` stays owned by the caller. Precondition: at most kMaxRank axes.
  static TensorView contiguous(void* data, DType dtype, std::initializer_list<int64_t> shape) {
    TensorView view;
    view.data = data;
    view.dtype = dtype;
    for (int64_t extent : shape) view.shape[view.rank++] = extent;
    uint64_t step = 1; // wraps for more elements than memory has: kernels refuse these by their extents
    for (int axis = view.rank - 1; axis >= 0; --axis) {
      view.stride[axis] = int64_t(step);
      step *= uint64_t(view.shape[axis]);
    }
    return view;
  }

  /// Returns the number of elements; 1 for a tensor of rank 0.
  int64_t elements() const {
    uint64_t count = 1; // may wrap, as above
    for (int axis = 0; axis < rank; ++axis) count *= uint64_t(shape[axis]);
    return int64_t(count);
  }
};

} // namespace attnc
