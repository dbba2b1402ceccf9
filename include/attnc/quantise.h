// Rounding of q, k and v to E4M3, for forward kernels that take it.
#pragma once

#include "attnc/compiler.h"
#include "attnc/error.h"
#include "attnc/kernel.h"
#include "attnc/tensor.h"

#include <cstdint>
#include <memory>
#include <optional>

namespace attnc {

/// What a launch of a Quantiser does beyond rounding.
struct QuantiseOptions {
  /// Whether rows are multiplied by random signs and a Hadamard matrix first, which spreads outliers over a row
  /// (arXiv:2407.08608, section 3.3). Products q k^T stay the same if q and k are rotated with the same seed. v must
  /// not be rotated. The matrix has the size of the largest power of two that divides the head dim.
  bool rotates = false;
  uint32_t seed = 0; ///< Seed of the signs.
  /// Significant bits of scales, 1 to 24, which are rounded up to that. Default: 0, all. With up to 4, an element of
  /// `out` times its scale is exact in BF16; with 1, scales are powers of two.
  int scaleBits = 0;
  /// Whether scales of heads are given: launches read `scales`, and do not write them. Scales are 2^-64 or more.
  bool readsScales = false;
  /// [positions, columns]: cosines of pairs of columns, then sines, for a rotary embedding (arXiv:2104.09864, section
  /// 3.4.2) of the first columns of each row. It is the `cos_sin_cache` of vLLM, SGLang and FlashInfer. F32 or the
  /// dtype of x, last stride 1. The number of columns is a multiple of 8, or of 16 if the head dim is above 128. On a
  /// GPU, rows are aligned to 16 bytes. Default: none.
  ///
  /// The embedding comes before signs and Hadamard matrix. It is in f32, and only the result is rounded. v must not be
  /// embedded.
  std::optional<TensorView> cosSin = {};
  /// I32 or I64 [B, L], any strides, such as 0: rows of cosSin, read on the GPU. They are clamped to the table, after
  /// I64 was cut to 32 bits. Default: the index of a row in L.
  std::optional<TensorView> positions = {};
  /// Whether pairs are columns 2 i and 2 i + 1, as in GPT-J. Default: columns i and i + half of cosSin's columns, as in
  /// GPT-NeoX and Llama.
  bool interleaved = false;
};

/// Rounds tensors to E4M3 on the GPU, for operands of forward kernels (Operands::qScales). Loaded on one device. It is
/// immutable, copies share it, and any number of threads may launch it.
class Quantiser {
public:
  /// Compiles the kernels, or takes them from packs, memory or disk. Loads them into the current CUDA context. Tensors
  /// that are rounded have this dtype: F32, F16 or BF16. Their last extent is `headDim`, a multiple of 8 in 8 .. 256.
  ///
  /// Errors (environment): another dtype or head dim; no GPU or one before sm_89; NVRTC missing if it is needed.
  static Expected<Quantiser> load(const Compiler& compiler, DType dtype, int headDim);

  /// Enqueues out = e4m3(x / scale) on `stream`, rounded to nearest even. May be captured into a CUDA graph. Tensors
  /// are in device memory.
  ///
  /// `x`: [B, H, L, D], last stride 1, finite. `out`: E4M3 of the same shape, last stride 1; written. `scales`: f32,
  /// dense; written. It is [B, H] for a scale of each head, or [B, H, blocks] for one of each kRowsOfScale rows. For
  /// one of each row it is [B, H, L]. A scale is the largest magnitude of its rows, divided by 448, at least 2^-64
  /// (QuantiseOptions::scaleBits).
  ///
  /// With QuantiseOptions::readsScales, `scales` is [B, H] with any strides, such as 0, and is read on the GPU.
  /// Quotients beyond 448 become 448.
  ///
  /// A quotient is x times the f32 reciprocal of the scale. It is exact if the scale is a power of two. Else it may be
  /// off in its last bit, and `out` by a step where the quotient lies between two.
  ///
  /// Errors (environment), with nothing enqueued: tensors that do not fit each other; other scaleBits, or
  /// scaleBits of given scales; positions or interleaved without cosSin.
  Status launch(const TensorView& x, const TensorView& out, const TensorView& scales, const QuantiseOptions& options,
                Stream stream) const;

private:
  struct Impl;
  explicit Quantiser(std::shared_ptr<const Impl> impl) : impl(std::move(impl)) {}
  std::shared_ptr<const Impl> impl;
};

/// Computes what Quantiser::launch() writes, in host memory, for any head dim. `x` is F32, F16 or BF16. Elements may
/// differ by one step of E4M3 where a rotated value lies between two. Uses all cores, and returns when it is done.
///
/// Errors: those of Quantiser::launch().
Status quantiseOnCpu(const TensorView& x, const TensorView& out, const TensorView& scales,
                     const QuantiseOptions& options);

} // namespace attnc
