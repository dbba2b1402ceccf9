// What the warp-specialised kernels of sm_90a begin with. The first warpgroup of a CTA serves the others: its warps
// issue loads and stores, walk steps, plan. The other warpgroups are the consumers, which compute.
//
//   const unsigned shared = shared_base(dynamic_shared);
//   initialise<Memory>(shared, prefetch);
//   run_roles<kProducerRegisters, kConsumerRegisters>(serve, consume);
#pragma once

#include "ptx/mbarrier.cuh"
#include "ptx/named_barrier.cuh"
#include "ptx/setmaxnreg.cuh"
#include "ptx/shared_memory.cuh"

namespace attnc {

/// Threads of a CTA with `Warps` warps of consumers.
constexpr int threads_of(int warps) { return 32 * (4 + warps); }

/// Returns the address of a CTA's dynamic shared memory.
// NOTE: through a shuffle; otherwise the compiler computes the address again, at 50 cycles, for every use.
ATTNC_DEVICE unsigned shared_base(const void* dynamic_shared) {
  return __shfl_sync(0xffffffffu, ptx::shared_address(dynamic_shared), 0);
}

/// Initialises all barriers of `Memory`, each for the arrivals that its declaration names. prefetch(): prefetches
/// tensor maps. Called by the whole CTA.
template <class Memory, class Prefetch> ATTNC_DEVICE void initialise(unsigned shared, Prefetch prefetch) {
  if (threadIdx.x == 0) {
    Memory::initialise_barriers(shared);
    ptx::fence_mbarrier_init();
    prefetch();
  }
  __syncthreads();
}

/// Calls serve(warp) in the first warpgroup, and consume(i) in the i-th one after it, with the registers per thread of
/// each. In total these must not exceed the registers that the launch has.
template <int ProducerRegisters, int ConsumerRegisters, class Serve, class Consume>
ATTNC_DEVICE void run_roles(Serve serve, Consume consume) {
  const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  if (group == 0) {
    ptx::setmaxnreg_dec<ProducerRegisters>();
    // NOTE: branches on a number that ptxas knows to be uniform over a warp. Without it, the state of producer and
    // storer is in thread registers, of which there are too few. If the consumers' branch also used it, ptxas would
    // report C7514.
    serve(int(__shfl_sync(0xffffffffu, threadIdx.x / 32, 0)));
  } else {
    ptx::setmaxnreg_inc<ConsumerRegisters>();
    consume(group - 1);
  }
}

/// Hardware barriers First, First + 1, ..., each completed by `Threads` threads. Barrier 0 is __syncthreads().
template <int First, int Threads> struct NamedBarriers {
  ATTNC_DEVICE static void sync(int i) { ptx::named_barrier_sync<Threads>(First + i); }
  ATTNC_DEVICE static void arrive(int i) { ptx::named_barrier_arrive<Threads>(First + i); }
};

} // namespace attnc
