// A configuration for compiling the sm90 family by itself, with the mod of identity/: bf16, head dim 128.
//
// nvcc -std=c++20 -I templates -I templates/mod/identity_sm90 -I templates/mod/identity
//      -gencode arch=compute_90a,code=sm_90a -cubin templates/forward_sm90.cu
#pragma once

#include "tile/element.cuh"

namespace attnc {

using Element = Bf16;               // type of q, k, v and out: Bf16 or F16
constexpr bool kFp8 = false;        // q, k and v are E4M3, with factors for each head or block
constexpr bool kRowScales = false;  // with factors for each row
constexpr int kHeadDimQk = 128;     // of q and k, a multiple of 8
constexpr int kHeadDimV = 128;      // of v and out, a multiple of 8
constexpr int kWarps = 8;           // warps of a CTA that compute: 8 or 12
constexpr int kBlockM = 128;        // q rows of a CTA's tile: 16 kWarps
constexpr int kBlockN = 128;        // kv columns of a step: a multiple of 16
constexpr int kStages = 2;          // tiles of K, and of V, in flight
constexpr int kQStages = 2;         // tiles of Q rows in flight
constexpr int kPageSize = 0;        // positions of a page of K and V, a power of two; 0: not paged
constexpr bool kAppends = false;    // the launch has new rows, which are written into K and V
constexpr bool kBlockSparse = true; // walk BlockLists; otherwise all blocks live
constexpr int kCluster = 1;         // CTAs that load K and V for one another
constexpr int kClusterHeads = 1;    // query heads that their tiles are of: 1 or kCluster
constexpr int kSharedBytes = 196768; // dynamic shared memory of a CTA

} // namespace attnc

#define ATTNC_CLUSTER_DIMS // attribute of the kernel
#define ATTNC_WGMMA_SHAPES(shape) shape(128) // kBlockN, kHeadDimV rounded up to 16: columns of the products
