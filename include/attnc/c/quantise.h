/// Rounding of q, k and v to E4M3 (quantise.h).
#pragma once

#include "attnc/c/compiler.h"
#include "attnc/c/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/// What rounding does besides (QuantiseOptions).
typedef struct attnc_quantise_options {
  size_t struct_size; ///< sizeof(attnc_quantise_options).
  int32_t rotates;    ///< 0 or 1: whether rows are multiplied by random signs and a Hadamard matrix first.
  uint32_t seed;      ///< Seed of the signs.
  int64_t scale_bits; ///< Significant bits of scales, 1 to 24, which are rounded up. Default: 0, all.
  /// 0 or 1: whether scales [B, H] are given. Launches then read `scales`, whose strides may be 0.
  int64_t reads_scales;
  /// [positions, columns]: cosines, then sines, of a rotary embedding, which comes before signs and Hadamard matrix
  /// (QuantiseOptions::cosSin). NULL: none.
  const attnc_tensor* cos_sin;
  const attnc_tensor* positions; ///< i32 or i64 [B, L]: rows of cos_sin, clamped to it. NULL: the index of a row.
  int64_t interleaved;           ///< 0 or 1: whether pairs are neighbouring columns. Default: halves.
} attnc_quantise_options;

/// Kernels that round tensors on the GPU (Quantiser). It is immutable.
typedef struct attnc_quantiser attnc_quantiser;

/// Compiles and loads the kernels for a dtype and a head dim (Quantiser::load). Errors: those of Quantiser::load.
/// `*quantiser` is then unchanged.
ATTNC_API attnc_status attnc_quantiser_create(const attnc_compiler* compiler, attnc_dtype dtype, int32_t head_dim,
                                              attnc_quantiser** quantiser);
/// Destroys a quantiser. Enqueued launches must have finished. NULL does nothing.
ATTNC_API void attnc_quantiser_destroy(attnc_quantiser* quantiser);
/// Enqueues out = e4m3(x / scale) on a stream, and fills `scales` unless they are given (Quantiser::launch). Tensors
/// are in device memory. `options` may be NULL.
ATTNC_API attnc_status attnc_quantiser_launch(const attnc_quantiser* quantiser, const attnc_tensor* x,
                                              const attnc_tensor* out, const attnc_tensor* scales,
                                              const attnc_quantise_options* options, attnc_stream stream);
/// Computes the same in host memory (quantiseOnCpu).
ATTNC_API attnc_status attnc_quantise_on_cpu(const attnc_tensor* x, const attnc_tensor* out, const attnc_tensor* scales,
                                             const attnc_quantise_options* options);

#ifdef __cplusplus
}
#endif
