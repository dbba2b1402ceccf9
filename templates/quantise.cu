// Rounds rows of 16 or 32 bits to e4m3, with one factor for each head, for each 128 rows of it, or for each row.
//
//   y = R x H / sqrt(n) D,   scale = max |y| / 448,   out = e4m3(y / scale)
//
// If kEmbeds, R is a rotary embedding (arXiv:2104.09864, section 3.4.2): it turns pairs of columns (a, b) of a row to
// (a cos - b sin, b cos + a sin), by the cosines and sines of the row's position. It is in f32. Otherwise R x = x.
//
// If p.rotates, D is a diagonal of random signs. H is the Hadamard matrix of size n, the largest power of two that
// divides the head dim, and multiplies each n columns of a row. The product is orthogonal, so q k^T stays the same if
// q and k are rotated alike, and an outlier is spread over n elements. After FlashAttention-3 (arXiv:2407.08608,
// section 3.3). Otherwise y = R x.
//
// attnc_quantise         with factors of blocks or rows: factors and out. With factors of heads: out, by factors that
// the
//                        caller gives or the other kernel has left.
// attnc_quantise_scales  factors of heads, as maxima over CTAs. Runs first; the host zeroes the factors.
//
// A warp takes batches of rows, so that many loads are under way at once. Lane l holds kPerLane neighbouring columns of
// each, from l kPerLane on. Rows of a block stay in registers between its maximum and its rounding, if they fit;
// else they come from the L1 cache. kEmbeds is static, since rotary embedding takes registers that other launches use
// for loads under way.
//
// Grid: blocks of 128 rows * heads * batch, in one dimension. Threads: 32 kWarps.
//
// Config: Element is the type of x; kHeadDimQk its columns; kEmbeds, kWarps.
#include "attnc_config.cuh"

#include "params.cuh"
#include "ptx/cvt_e4m3.cuh"
#include "tile/element.cuh"

namespace attnc::quantise {

constexpr int kRows = Scales::kRowsOfScale; // of a CTA
constexpr int kColumns = kHeadDimQk;
constexpr int kPower = kColumns & -kColumns; // n
constexpr int columns_of_lane() {
  int columns = 1;
  while (32 * columns < kColumns) columns *= 2;
  return columns;
}
constexpr int kPerLane = columns_of_lane(), kRowsOfWarp = kRows / kWarps;
constexpr int kRegisters = kEmbeds ? 32 : 64; // of a batch; cosines and sines need the others
constexpr int kBatch = kRegisters / kPerLane < kRowsOfWarp ? kRegisters / kPerLane : kRowsOfWarp;
static_assert(kPerLane <= 16 && kColumns % kPerLane == 0 && kRowsOfWarp % kBatch == 0);
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

/// Neighbours that are loaded or stored at once.
template <class T> constexpr int kAtOnce = kPerLane* int(sizeof(T)) < 16 ? kPerLane : 16 / int(sizeof(T));
template <class T> struct alignas(kAtOnce<T> * sizeof(T)) Together { T of[kAtOnce<T>]; };

/// A lane's columns of the rows of a head.
template <class T> struct Columns {
  T* rows;
  long long stride;
  bool are_inside, are_together; // at addresses for Together

  ATTNC_DEVICE Columns(T* tensor, const Strides& strides, const Place& at) : stride(strides.row) {
    const int column = int(threadIdx.x) % 32 * kPerLane;
    are_inside = column < kColumns;
    rows = tensor + at.b * strides.batch + at.h * strides.head + (are_inside ? column : 0);
    are_together = ((unsigned long long)rows | stride * sizeof(T)) % sizeof(Together<T>) == 0;
  }
  ATTNC_DEVICE T* row(int i) const { return rows + i * stride; }
};

/// Rotates a row. A warp.
ATTNC_DEVICE void rotate(float (&y)[kPerLane], const float (&signs)[kPerLane]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) y[i] *= signs[i];
#pragma unroll
  for (int distance = 1; distance < kPerLane && distance < kPower; distance *= 2)
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
      if (!(i & distance)) {
        const float a = y[i], b = y[i + distance];
        y[i] = a + b, y[i + distance] = a - b;
      }
#pragma unroll
  for (int lanes = 1; lanes < kPower / kPerLane; lanes *= 2)
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const float other = __shfl_xor_sync(0xffffffffu, y[i], lanes);
      y[i] = lane & lanes ? other - y[i] : y[i] + other;
    }
  const float factor = rsqrtf(float(kPower));
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) y[i] *= factor;
}

/// Returns the row of a batch.
ATTNC_DEVICE int row_of(const Place& at, int batch, int i) {
  return at.first + int(threadIdx.x) / 32 + (batch * kBatch + i) * kWarps;
}

/// Turns pairs of columns of rows by the angles of their positions. A warp.
template <class T, bool AreNeighbours>
ATTNC_DEVICE void embed_rows(float (&y)[kBatch][kPerLane], const QuantiseParams& p, const Place& at, int batch) {
  constexpr bool kIsInLane = AreNeighbours && kPerLane > 1; // a pair
  constexpr int kPairs = kIsInLane ? kPerLane / 2 : kPerLane;
  struct alignas(kPairs * sizeof(T) < 16 ? kPairs * sizeof(T) : 16) Factors {
    T of[kPairs];
  };
  const int lane = threadIdx.x % 32, column = lane * kPerLane, pairs = p.rotary_columns / 2;
  const bool is_turned = column < p.rotary_columns, is_second = AreNeighbours ? column % 2 : column >= pairs;
  const int pair = !is_turned ? 0 : AreNeighbours ? column / 2 : column % pairs;
  const int distance = !is_turned ? 0 : AreNeighbours ? 1 : pairs / kPerLane; // in lanes
  const int partner = is_second ? lane - distance : lane + distance;
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    const int row = min(row_of(at, batch, i), at.end - 1);
    const int given = p.positions ? p.positions[at.b * p.position_batch + row * p.position_row] : row;
    const T* const cosines = (const T*)p.cos_sin + max(min(given, p.last_position), 0) * p.cos_sin_row + pair;
    const Factors cos = *(const Factors*)cosines, sin = *(const Factors*)(cosines + pairs);
    float turned[kPerLane];
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const float other = kIsInLane ? y[i][j ^ 1] : __shfl_sync(0xffffffffu, y[i][j], partner);
      const float of_other = to_float(sin.of[kIsInLane ? j / 2 : j]);
      turned[j] = y[i][j] * to_float(cos.of[kIsInLane ? j / 2 : j]) +
                  other * ((kIsInLane ? j % 2 : is_second) ? of_other : -of_other);
    }
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) y[i][j] = is_turned ? turned[j] : y[i][j];
  }
}

/// Turns rows by a table of elements T. A warp.
template <class T>
ATTNC_DEVICE void embed_by(float (&y)[kBatch][kPerLane], const QuantiseParams& p, const Place& at, int batch) {
  if (p.interleaved)
    embed_rows<T, true>(y, p, at, batch);
  else
    embed_rows<T, false>(y, p, at, batch);
}

/// Loads rows, and embeds and rotates them if wanted. Rows behind the last are copies of it. A warp.
ATTNC_DEVICE void load_batch(float (&y)[kBatch][kPerLane], const QuantiseParams& p, const Place& at, int batch,
                             const float (&signs)[kPerLane]) {
  const Columns<const Element> x((const Element*)p.x, p.x_stride, at);
  if (x.are_together) {
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
#pragma unroll
      for (int j = 0; j < kPerLane; j += kAtOnce<Element>) {
        const Together<Element> some = *(const Together<Element>*)(x.row(min(row_of(at, batch, i), at.end - 1)) + j);
#pragma unroll
        for (int k = 0; k < kAtOnce<Element>; ++k) y[i][j + k] = to_float(some.of[k]);
      }
  } else {
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
#pragma unroll
      for (int j = 0; j < kPerLane; ++j) y[i][j] = to_float(x.row(min(row_of(at, batch, i), at.end - 1))[j]);
  }
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) y[i][j] = x.are_inside ? y[i][j] : 0.f;
  }
  if constexpr (kEmbeds) {
    if (Same<Element, float>::value || p.cos_sin_is_f32)
      embed_by<float>(y, p, at, batch);
    else
      embed_by<Element>(y, p, at, batch);
  }
  if (!p.rotates) return;
#pragma unroll
  for (int i = 0; i < kBatch; ++i) rotate(y[i], signs);
}

ATTNC_DEVICE void find_signs(float (&signs)[kPerLane], const QuantiseParams& p) {
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) signs[i] = sign_of(p.seed, int(threadIdx.x) % 32 * kPerLane + i);
}

/// Lanes that share the largest magnitude of a row of a batch: row i is that of lanes from i kLanesOfRow on.
constexpr int kLanesOfRow = 32 / kBatch;
static_assert(kLanesOfRow * kBatch == 32);

/// Returns the largest magnitude of the lane's row. A warp.
ATTNC_DEVICE float largest_of_row(const float (&y)[kBatch][kPerLane]) {
  float largest[kBatch];
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    largest[i] = 0.f;
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) largest[i] = fmaxf(largest[i], fabsf(y[i][j]));
  }
  // Two lanes divide their rows between them until each has one. That takes kBatch shuffles, and those of a step are
  // under way at once. Loops have constant bounds, else the compiler does not unroll them.
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const bool has_upper = threadIdx.x & distance;
    const int rows = kBatch * distance / 32; // left to a lane
#pragma unroll
    for (int i = 0; i < kBatch / 2; ++i)
      if (i < rows) {
        const float lower = largest[i], upper = largest[i + rows];
        const float others = __shfl_xor_sync(0xffffffffu, has_upper ? lower : upper, distance);
        largest[i] = fmaxf(has_upper ? upper : lower, others);
      }
    if (rows == 0) largest[0] = fmaxf(largest[0], __shfl_xor_sync(0xffffffffu, largest[0], distance));
  }
  return largest[0];
}

/// Returns the factor of rows whose largest magnitude is this.
ATTNC_DEVICE float scale_for(const QuantiseParams& p, float largest) {
  const unsigned scale = __float_as_uint(fmaxf(largest / kLargest, kSmallest));
  return __uint_as_float((scale + p.scale_mask) & ~p.scale_mask);
}

/// Returns the factor that the CTA's rows want. All threads get it. `y` is left with the last batch of rows.
ATTNC_DEVICE float scale_of_rows(float (&y)[kBatch][kPerLane], const QuantiseParams& p, const Place& at,
                                 const float (&signs)[kPerLane]) {
  __shared__ float largest_of[kWarps];
  float largest = 0.f;
  for (int batch = 0; batch < kRowsOfWarp / kBatch; ++batch) {
    load_batch(y, p, at, batch, signs);
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
#pragma unroll
      for (int j = 0; j < kPerLane; ++j) largest = fmaxf(largest, fabsf(y[i][j]));
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
  if (threadIdx.x % 32 == 0) largest_of[threadIdx.x / 32] = largest;
  __syncthreads();
  for (int warp = 0; warp < kWarps; ++warp) largest = fmaxf(largest, largest_of[warp]);
  return scale_for(p, largest);
}

using Byte = unsigned char;

/// Returns a lane's columns of a row times a factor, rounded.
ATTNC_DEVICE Together<Byte> rounded(const float (&y)[kPerLane], float factor) {
  Together<Byte> bytes;
#pragma unroll
  for (int i = 0; i < kPerLane; i += 2) {
    constexpr bool kArePairs = kPerLane > 1;
    const unsigned two = ptx::cvt_rn_satfinite_e4m3x2(kArePairs ? y[i + kArePairs] * factor : 0.f, y[i] * factor);
    bytes.of[i] = Byte(two);
    if (kArePairs) bytes.of[i + kArePairs] = Byte(two >> 8);
  }
  return bytes;
}

/// Stores the rows of a batch that are not copies. A warp.
ATTNC_DEVICE void store_batch(const Together<Byte> (&rows)[kBatch], const QuantiseParams& p, const Place& at,
                              int batch) {
  const Columns<Byte> out((Byte*)p.out, p.out_stride, at);
  if (!out.are_inside) return;
  if (out.are_together) {
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
      if (row_of(at, batch, i) < at.end) *(Together<Byte>*)out.row(row_of(at, batch, i)) = rows[i];
  } else {
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
#pragma unroll
      for (int j = 0; j < kPerLane; ++j)
        if (row_of(at, batch, i) < at.end) out.row(row_of(at, batch, i))[j] = rows[i].of[j];
  }
}

ATTNC_DEVICE float* scale_at(const QuantiseParams& p, const Place& at) {
  return p.scales + at.b * p.scale_batch + at.h * p.scale_head +
         (p.rows_of_scale ? at.block * kRows / p.rows_of_scale : 0);
}

extern "C" __global__ void __launch_bounds__(32 * kWarps, 2)
    attnc_quantise_scales(const __grid_constant__ QuantiseParams p) {
  const Place at = place_of(p);
  float y[kBatch][kPerLane], signs[kPerLane];
  find_signs(signs, p);
  const float scale = scale_of_rows(y, p, at, signs);
  if (threadIdx.x == 0) atomicMax((int*)scale_at(p, at), __float_as_int(scale)); // positive floats compare as ints
}

extern "C" __global__ void __launch_bounds__(32 * kWarps, 2) attnc_quantise(const __grid_constant__ QuantiseParams p) {
  const Place at = place_of(p);
  const bool by_rows = p.rows_of_scale == 1, by_blocks = p.rows_of_scale == kRows;
  float y[kBatch][kPerLane], signs[kPerLane], scale = 1.f;
  find_signs(signs, p);
  if (by_blocks) {
    scale = scale_of_rows(y, p, at, signs);
    if (threadIdx.x == 0) *scale_at(p, at) = scale;
  } else if (!by_rows) {
    scale = *scale_at(p, at);
  }
  for (int batch = 0; batch < kRowsOfWarp / kBatch; ++batch) {
    if (kBatch < kRowsOfWarp || !by_blocks) load_batch(y, p, at, batch, signs);
    if (by_rows) {
      scale = scale_for(p, largest_of_row(y));
      const int lane = threadIdx.x % 32, row = row_of(at, batch, lane / kLanesOfRow);
      if (lane % kLanesOfRow == 0 && row < at.end) scale_at(p, at)[row - at.first] = scale;
    }
    const float inverse = 1.f / scale; // of the lane's row
    Together<Byte> rows[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) rows[i] = rounded(y[i], __shfl_sync(0xffffffffu, inverse, i * kLanesOfRow));
    store_batch(rows, p, at, batch);
  }
}

} // namespace attnc::quantise
