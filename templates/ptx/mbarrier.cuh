// One function, one instruction: mbarriers, the shared-memory barriers that count arrivals and bytes (sm_90).
//
// A barrier is 8 bytes of shared memory. Its phase completes when all expected arrivals and bytes are in; a waiter
// names the parity of the phase it waits for, 0 for the first. Waiting for parity 1 on a fresh barrier returns at once.
#pragma once

#include "mod/contract.cuh"

namespace attnc::ptx {

ATTNC_DEVICE void mbarrier_init(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
/// Makes initialised barriers visible to TMA. A __syncthreads() must follow.
ATTNC_DEVICE void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

ATTNC_DEVICE void mbarrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Arrives, and makes the phase also wait for `bytes` of asynchronous copies.
ATTNC_DEVICE void mbarrier_arrive_expect_tx(unsigned barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
/// Makes the phase also wait for `bytes` of asynchronous copies, without an arrival.
ATTNC_DEVICE void mbarrier_expect_tx(unsigned barrier, int bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/// Whether the phase of the given parity has completed. May wait briefly for it.
ATTNC_DEVICE bool mbarrier_test(unsigned barrier, unsigned parity) {
  unsigned done;
  asm volatile("{\n"
               ".reg .pred done;\n"
               "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
               "selp.u32 %0, 1, 0, done;\n"
               "}"
               : "=r"(done)
               : "r"(barrier), "r"(parity)
               : "memory");
  return done;
}

/// Waits until the phase of the given parity has completed; writes before its arrivals are then visible.
ATTNC_DEVICE void mbarrier_wait(unsigned barrier, unsigned parity) {
  asm volatile("{\n"
               ".reg .pred done;\n"
               "WAIT:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@done bra DONE;\n"
               "bra WAIT;\n"
               "DONE:\n"
               "}" ::"r"(barrier),
               "r"(parity)
               : "memory");
}

} // namespace attnc::ptx
