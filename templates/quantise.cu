// Rounds rows of 16 or 32 bits to e4m3, with one factor for each head, for each 128 rows of it, or for each row.
//
//   y = x H / sqrt(n) D,   scale = max |y| / 448,   out = e4m3(y / scale)
//
// kRotates: D is a diagonal of random signs, H the Hadamard matrix of the largest power of two n that divides the head
// dim, of which each row of D x has as many as fit. The product is orthogonal, so q k^T stays the same if q and k are
// rotated alike, and an outlier is spread over n elements. After FlashAttention-3 (arXiv:2407.08608, section 3.3).
// Otherwise y = x.
//
// attnc_quantise         with factors of blocks or rows: all of it. With factors of heads: out, by the factors that
// attnc_quantise_scales  has left. It takes their maxima over CTAs; they are 0 before.
//
// A warp takes one row after another. Lane l holds columns l + 32 i of it.
//
// Grid: blocks of 128 rows * heads * batch, in one dimension. Threads: 32 kWarps.
//
// Config: Element is the type of x; kHeadDimQk its columns, kWarps.
#include "attnc_config.cuh"

#include "params.cuh"
#include "ptx/cvt_e4m3.cuh"
#include "tile/element.cuh"

namespace attnc::quantise {

constexpr int kRows = Scales::kRowsOfScale; // of a CTA
constexpr int kColumns = kHeadDimQk, kPerLane = (kColumns + 31) / 32;
constexpr int kPower = kColumns & -kColumns; // n
constexpr float kLargest = 448.f;
/// So that a factor is above 0.
constexpr float kSmallest = 5.42101086e-20f; // 2^-64

/// A random sign for a column: a bit of the finaliser of MurmurHash3.
ATTNC_DEVICE float sign_of(unsigned seed, int column) {
  unsigned x = seed * 0x9e3779b9u + unsigned(column) + 1u;
  x = (x ^ x >> 16) * 0x85ebca6bu;
  x = (x ^ x >> 13) * 0xc2b2ae35u;
  return (x ^ x >> 16) & 1u ? -1.f : 1.f;
}

struct Place {
  int b, h, block, first, end; // rows [first, end) of a head
};

ATTNC_DEVICE Place place_of(const QuantiseParams& p) {
  const int blocks = (p.rows + kRows - 1) / kRows, head = int(blockIdx.x) / blocks, block = int(blockIdx.x) % blocks;
  return {head / p.heads, head % p.heads, block, block * kRows, min((block + 1) * kRows, p.rows)};
}

/// Loads a row, and rotates it if wanted. A warp.
ATTNC_DEVICE void load_row(float (&y)[kPerLane], const QuantiseParams& p, const Place& at, int row) {
  const int lane = threadIdx.x % 32;
  const Element* x = (const Element*)p.x + at.b * p.x_stride.batch + at.h * p.x_stride.head + row * p.x_stride.row;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) y[i] = lane + 32 * i < kColumns ? to_float(x[lane + 32 * i]) : 0.f;
  if (!p.rotates) return;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) y[i] *= sign_of(p.seed, lane + 32 * i);
#pragma unroll
  for (int distance = 1; distance < (kPower < 32 ? kPower : 32); distance *= 2)
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const float other = __shfl_xor_sync(0xffffffffu, y[i], distance);
      y[i] = lane & distance ? other - y[i] : y[i] + other;
    }
#pragma unroll
  for (int distance = 1; distance < kPower / 32; distance *= 2)
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
      if (!(i & distance)) {
        const float a = y[i], b = y[i + distance];
        y[i] = a + b, y[i + distance] = a - b;
      }
  const float factor = rsqrtf(float(kPower));
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) y[i] *= factor;
}

/// Returns the largest magnitude of a row, of which each lane has a part. A warp; all lanes get it.
ATTNC_DEVICE float largest_of_warp(const float (&y)[kPerLane]) {
  float largest = 0.f;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) largest = fmaxf(largest, fabsf(y[i]));
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
  return largest;
}

/// Returns the factor of rows whose largest magnitude is this.
ATTNC_DEVICE float scale_for(const QuantiseParams& p, float largest) {
  const unsigned scale = __float_as_uint(fmaxf(largest / kLargest, kSmallest));
  return __uint_as_float((scale + p.scale_mask) & ~p.scale_mask);
}

/// Returns the factor that the CTA's rows want. All threads get it.
ATTNC_DEVICE float scale_of_rows(const QuantiseParams& p, const Place& at) {
  __shared__ float largest_of[kWarps];
  float largest = 0.f;
  for (int row = at.first + int(threadIdx.x) / 32; row < at.end; row += kWarps) {
    float y[kPerLane];
    load_row(y, p, at, row);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) largest = fmaxf(largest, fabsf(y[i]));
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
  if (threadIdx.x % 32 == 0) largest_of[threadIdx.x / 32] = largest;
  __syncthreads();
  for (int warp = 0; warp < kWarps; ++warp) largest = fmaxf(largest, largest_of[warp]);
  return scale_for(p, largest);
}

ATTNC_DEVICE float* scale_at(const QuantiseParams& p, const Place& at) {
  return p.scales + (long long)(at.b * p.heads + at.h) * p.scale_blocks +
         (p.rows_of_scale ? at.block * kRows / p.rows_of_scale : 0);
}

extern "C" __global__ void __launch_bounds__(32 * kWarps)
    attnc_quantise_scales(const __grid_constant__ QuantiseParams p) {
  const Place at = place_of(p);
  const float scale = scale_of_rows(p, at);
  if (threadIdx.x == 0) atomicMax((int*)scale_at(p, at), __float_as_int(scale)); // positive floats compare as ints
}

extern "C" __global__ void __launch_bounds__(32 * kWarps) attnc_quantise(const __grid_constant__ QuantiseParams p) {
  const Place at = place_of(p);
  const bool by_rows = p.rows_of_scale == 1;
  float scale = 1.f;
  if (p.rows_of_scale == kRows) {
    scale = scale_of_rows(p, at);
    if (threadIdx.x == 0) *scale_at(p, at) = scale;
  } else if (!by_rows) {
    scale = *scale_at(p, at);
  }
  float inverse = 1.f / scale;
  for (int row = at.first + int(threadIdx.x) / 32; row < at.end; row += kWarps) {
    float y[kPerLane];
    load_row(y, p, at, row);
    if (by_rows) {
      scale = scale_for(p, largest_of_warp(y)), inverse = 1.f / scale;
      if (threadIdx.x % 32 == 0) scale_at(p, at)[row - at.first] = scale;
    }
    unsigned char* out =
        (unsigned char*)p.out + at.b * p.out_stride.batch + at.h * p.out_stride.head + row * p.out_stride.row;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
      if (const int column = int(threadIdx.x) % 32 + 32 * i; column < kColumns)
        out[column] = (unsigned char)ptx::cvt_rn_satfinite_e4m3x2(0.f, y[i] * inverse);
  }
}

} // namespace attnc::quantise
