// One function, one instruction: clusters of CTAs, which reach one another's shared memory (sm_90).
#pragma once

#include "mod/contract.cuh"

namespace attnc::ptx {

/// Returns the CTA's place in its cluster.
ATTNC_DEVICE int cluster_rank() {
  int rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// Arrives at the cluster's barrier, with what the thread has done so far.
ATTNC_DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
/// Arrives, and waits until all threads of the cluster that have not exited do.
ATTNC_DEVICE void cluster_sync() {
  cluster_arrive();
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

/// Arrives at the barrier that has this address in the CTA of a rank, if `really`.
ATTNC_DEVICE void mbarrier_arrive_at(unsigned barrier, int rank, bool really) {
  asm volatile("{\n"
               ".reg .pred really;\n"
               ".reg .b32 there;\n"
               "setp.ne.u32 really, %2, 0;\n"
               "@really mapa.shared::cluster.u32 there, %0, %1;\n"
               "@really mbarrier.arrive.shared::cluster.b64 _, [there];\n"
               "}" ::"r"(barrier),
               "r"(rank), "r"(int(really))
               : "memory");
}

} // namespace attnc::ptx
