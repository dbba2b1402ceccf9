// One function, one instruction: registers moved from one warpgroup of a CTA to another (sm_90a).
#pragma once

#include "mod/contract.cuh"

namespace attnc::ptx {

/// Sets the registers per thread from now on, a multiple of 8. Called by all warps of a warpgroup.
template <int Registers> ATTNC_DEVICE void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers> ATTNC_DEVICE void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

/// Ends the thread.
ATTNC_DEVICE void exit_thread() { asm volatile("exit;"); }

} // namespace attnc::ptx
