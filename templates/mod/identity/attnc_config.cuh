// A configuration for compiling a template by itself: bf16, head dim 128. See src/families for how attnc chooses.
#pragma once

#include "tile/element.cuh"

namespace attnc {

using Element = Bf16;               // type of q, k, v and out: Bf16, F16 or float
constexpr bool kFp8 = false;        // q, k and v are E4M3, with factors for each head or block
constexpr bool kRowScales = false;  // with factors for each row
constexpr bool kFp8Kv = false;      // only k and v are E4M3
constexpr int kHeadDimQk = 128;     // of q and k, a multiple of 8
constexpr int kNarrowHeadDim = 128; // of q and k, without further columns
constexpr int kHeadDimV = 128;      // of v and out, a multiple of 8
constexpr int kBlockM = 128;        // q rows of a CTA's tile
constexpr int kBlockN = 64;         // kv columns of a step
constexpr int kWarps = 4;           // warps of a CTA that compute
constexpr bool kBlockSparse = true; // walk BlockLists; otherwise all blocks live
constexpr int kPageSize = 0;        // positions of a page of K and V, a power of two; 0: not paged
constexpr bool kAppends = false;    // the launch has new rows, which are written into K and V
constexpr bool kEmbeds = true;      // rows get a rotary embedding before they are rounded
constexpr bool kRowMax = true;      // the row maximum may be wanted
constexpr bool kTf32 = false;       // fp32 inputs: single TF32 products instead of the 3xTF32 split
constexpr int kSharedBytes = 69632; // dynamic shared memory of a CTA

} // namespace attnc
