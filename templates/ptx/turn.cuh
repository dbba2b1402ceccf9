// One function, one instruction: counters in global memory by which CTAs take turns. fence_proxy_async_global: sm_90.
#pragma once

#include "mod/contract.cuh"

namespace attnc::ptx {

ATTNC_DEVICE int load_acquire(const int* from) {
  int x;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
  return x;
}
ATTNC_DEVICE void store_release(int* to, int x) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}
/// Raises the counter to x if it is lower.
ATTNC_DEVICE void max_release(int* to, int x) {
  asm volatile("red.release.gpu.global.max.s32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}
/// Orders this thread's own accesses to global memory and those of bulk copies that it issues.
ATTNC_DEVICE void fence_proxy_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

} // namespace attnc::ptx
