// Tiles of the Hopper backward kernels and their rings: kBlockN rows of K and V, which a CTA owns, and steps of kBlockM
// rows of Q and dO, which it walks.
#pragma once

#include "attnc_mod.cuh"

#include "algo/warp_roles.cuh"
#include "ptx/stmatrix.cuh"
#include "tile/fragment.cuh"
#include "tile/ring.cuh"
#include "tile/shared_tile.cuh"

namespace attnc::sm90 {

using QTile = SwizzledTile<Element, kBlockM, kHeadDimQk>;
using OTile = SwizzledTile<Element, kBlockM, kHeadDimV>;
using KTile = SwizzledTile<Element, kBlockN, kHeadDimQk>;
using VTile = SwizzledTile<Element, kBlockN, kHeadDimV>;
using STile = SwizzledTile<Element, kBlockN, kBlockM>; // dS^T

struct KPart : SharedPart<KPart, KTile::kBytes, 1024> {};
struct VPart : SharedPart<VPart, VTile::kBytes, 1024> {};
/// `QWriters`: roles that fill a slot of Q, with its message and table.
template <int QWriters>
struct QRingOf : RingParts<QRingOf<QWriters>, QTile, kQStages, 4, Arrivals{.full = QWriters, .empty = kWarps}> {};
struct ORing : RingParts<ORing, OTile, kStages, 0, Arrivals{.full = 1, .empty = kWarps}> {};
struct KvFull : BarrierParts<KvFull, 1, 1> {};

template <class Memory> ATTNC_DEVICE KTile k_tile_of(unsigned shared) {
  return {shared + Memory::template offset_of<KPart>()};
}
template <class Memory> ATTNC_DEVICE VTile v_tile_of(unsigned shared) {
  return {shared + Memory::template offset_of<VPart>()};
}

/// Writes a warpgroup's dS^T, 64 rows, to `tile` from row `first` on.
ATTNC_DEVICE void write_gradients(STile tile, int first, const PackedFragment<Element, 1, kBlockM>& d_s) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const unsigned at = tile.base + (first + 16 * warp + lane % 16) * STile::kRowBytes;
#pragma unroll
  for (int n = 0; n < kBlockM / 8; n += 2) {
    const int chunk = (n % 8 + lane / 16) ^ lane % 8; // of 16 bytes, in the 128-byte swizzle
    ptx::stmatrix_x4(at + n / 8 * STile::kSlabBytes + chunk * 16, d_s.a[0][n / 2]);
  }
}

} // namespace attnc::sm90
