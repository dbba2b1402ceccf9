// What hides values from the compiler, so that it keeps nothing in registers that follows from them.
#pragma once

#include "mod/contract.cuh"

namespace attnc::ptx {

/// The number of the lane, read anew by every call.
ATTNC_DEVICE int lane_id() {
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

/// x stays as it is, but nothing is known of it any more.
ATTNC_DEVICE void forget(unsigned& x) { asm volatile("" : "+r"(x)); }

} // namespace attnc::ptx
