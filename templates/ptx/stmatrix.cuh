// One function, one instruction: fragments of matrix products to shared memory (sm_90).
#pragma once

#include "mod/contract.cuh"

namespace attnc::ptx {

/// Stores four 8x8 matrices of 16-bit elements (rows of 16 bytes). Lanes 8i..8i+7 give the row addresses of matrix i;
/// lane l holds elements 2(l%4), 2(l%4)+1 of row l/4 of each. Whole warp, converged.
ATTNC_DEVICE void stmatrix_x4(unsigned shared, const unsigned (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(r[0]), "r"(r[1]),
               "r"(r[2]), "r"(r[3])
               : "memory");
}

} // namespace attnc::ptx
