// One function, one instruction: the 16 hardware barriers of a CTA. Barrier 0 is __syncthreads().
#pragma once

#include "mod/contract.cuh"

namespace attnc::ptx {

/// Arrives, and waits until `Threads` threads in total have arrived.
template <int Threads> ATTNC_DEVICE void named_barrier_sync(int barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(Threads) : "memory");
}
/// Arrives without waiting.
template <int Threads> ATTNC_DEVICE void named_barrier_arrive(int barrier) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(Threads) : "memory");
}

} // namespace attnc::ptx
