// Where values live. No function here is an instruction.
#pragma once

#include "mod/contract.cuh"

namespace attnc::ptx {

/// x, kept in a register of the thread though it is the same in all: instructions that take it from a uniform register
/// are issued at a third of the rate.
ATTNC_DEVICE float in_thread_register(float x) {
  asm volatile("" : "+f"(x));
  return x;
}

} // namespace attnc::ptx
