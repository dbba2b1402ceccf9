// One function, one instruction: the tensor memory accelerator, whole tiles between global and shared memory (sm_90).
#pragma once

#include "mod/contract.cuh"
#include "params_sm90.cuh"

namespace attnc::ptx {

/// Prefetches the map itself into the descriptor cache.
ATTNC_DEVICE void prefetch_tensor_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
template <class... Maps> ATTNC_DEVICE void prefetch_tensor_maps(const Maps&... maps) {
  (..., prefetch_tensor_map(maps));
}

/// Loads the box of a 4-D tensor that begins at the given coordinates, innermost first, to shared memory. Elements
/// outside the tensor are zero. Counts its bytes on `barrier`. One thread.
ATTNC_DEVICE void tma_load_4d(unsigned shared, const TensorMap& map, unsigned barrier, int c0, int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(shared),
      "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

/// The same in each CTA of the cluster that has a bit in `ctas`: to the same address there, counted on the barrier
/// there.
ATTNC_DEVICE void tma_multicast_4d(unsigned shared, const TensorMap& map, unsigned barrier, int c0, int c1, int c2,
                                   int c3, unsigned short ctas) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
               "[%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(shared),
               "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "h"(ctas)
               : "memory");
}

/// Stores a box from shared memory; elements outside the tensor are skipped. One thread; part of its next bulk group.
/// Writers of the box must call fence_proxy_async() and then a barrier first.
ATTNC_DEVICE void tma_store_4d(const TensorMap& map, unsigned shared, int c0, int c1, int c2, int c3) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map),
               "r"(shared), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
               : "memory");
}
/// The same for 5-D tensors.
ATTNC_DEVICE void tma_load_5d(unsigned shared, const TensorMap& map, unsigned barrier, int c0, int c1, int c2, int c3,
                              int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], "
      "[%2];" ::"r"(shared),
      "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}
ATTNC_DEVICE void tma_store_5d(const TensorMap& map, unsigned shared, int c0, int c1, int c2, int c3, int c4) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(&map),
               "r"(shared), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
               : "memory");
}
/// Adds a box of floats in shared memory to that of the tensor, each atomically; otherwise as tma_store_5d().
ATTNC_DEVICE void tma_add_5d(const TensorMap& map, unsigned shared, int c0, int c1, int c2, int c3, int c4) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.5d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(
          &map),
      "r"(shared), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}
ATTNC_DEVICE void bulk_commit_group() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Adds floats in shared memory to global memory, each atomically. `bytes` and both addresses are multiples of 16. One
/// thread; part of its next bulk group; fences as for tma_store_4d().
ATTNC_DEVICE void bulk_add(float* to, unsigned shared, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(shared),
               "r"(bytes)
               : "memory");
}
/// The same, but stores instead of adding.
ATTNC_DEVICE void bulk_store(float* to, unsigned shared, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared), "r"(bytes)
               : "memory");
}
/// Waits until this thread's bulk groups are complete.
ATTNC_DEVICE void bulk_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
/// Waits until this thread's bulk groups have read their shared memory.
ATTNC_DEVICE void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }

/// Makes this thread's writes to shared memory visible to TMA and wgmma.
ATTNC_DEVICE void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

} // namespace attnc::ptx
