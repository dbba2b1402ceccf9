// Merges the parts into which decode_wide_sm90.cu divides items.
//
// A CTA takes kRows rows of the item that a CTA of that kernel began and others completed, if there is one.
//
// Grid: CTAs of that kernel * ceil(part_rows / kRows). Threads: 32 kWarps.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/decode_parts.cuh"

namespace attnc::decode {

constexpr int kWarpsOfRow = (kQuads + 31) / 32, kRows = kWarps / kWarpsOfRow;
static_assert(kRows >= 1, "a warp takes 128 columns");

extern "C" __global__ void __launch_bounds__(32 * kWarps)
    attnc_decode_merge(const __grid_constant__ DecodeParams p, const __grid_constant__ ModArgs args) {
  if (!p.part_out) return;
  const int of_cta = (p.part_rows + kRows - 1) / kRows, cta = blockIdx.x / of_cta;
  const SharedItem shared = SharedItem::of(p, cta);
  if (shared.parts == 0) return;
  const PackedTile tile = DecodeItems<Mod, kBlockM, kBlockN>(p.forward).tile(p.forward, args, shared.item);
  const int warp = threadIdx.x / 32, row = blockIdx.x % of_cta * kRows + warp / kWarpsOfRow;
  if (warp >= kRows * kWarpsOfRow || row >= tile.rows) return;
  const ItemShare share = {.item = shared.item, .first_cta = cta, .parts = shared.parts, .place = shared.place};
  merge_rows<1, 1, 32>(p, args, share, tile, row, warp % kWarpsOfRow * 32);
}

} // namespace attnc::decode
