// One function, one instruction: a counter in global memory by which CTAs take turns (sm_90).
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
/// Makes it no less than x.
ATTNC_DEVICE void max_release(int* to, int x) {
  asm volatile("red.release.gpu.global.max.s32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}
/// Orders what this thread does itself and what the copy engine does for it, in global memory.
ATTNC_DEVICE void fence_proxy_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

} // namespace attnc::ptx
