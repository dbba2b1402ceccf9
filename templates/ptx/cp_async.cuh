// One function, one instruction: asynchronous copies, global to shared memory (sm_80 and later).
#pragma once

#include "mod/contract.cuh"

namespace attnc::ptx {

/// Copies 16 bytes, both sides 16-byte aligned. Bytes past `valid_bytes` are zero-filled and not read; if it is 0,
/// `global` may point anywhere.
ATTNC_DEVICE void cp_async_16(unsigned shared, const void* global, int valid_bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(valid_bytes) : "memory");
}
ATTNC_DEVICE void cp_async_commit_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most `Pending` of this thread's latest groups are in flight.
template <int Pending> ATTNC_DEVICE void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

} // namespace attnc::ptx
