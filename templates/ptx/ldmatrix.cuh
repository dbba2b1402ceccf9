// One function, one instruction: shared memory to registers, mainly to the fragments of mma.sync (sm_75 and later).
#pragma once

#include "mod/contract.cuh"

namespace attnc::ptx {

/// Loads four 8x8 matrices of 16-bit elements (rows of 16 bytes). Lanes 8i..8i+7 give the row addresses of matrix i;
/// lane l receives elements 2(l%4), 2(l%4)+1 of row l/4 of each. Whole warp, converged.
ATTNC_DEVICE void ldmatrix_x4(unsigned (&r)[4], unsigned shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
}

/// The same, each matrix transposed on the way.
ATTNC_DEVICE void ldmatrix_x4_trans(unsigned (&r)[4], unsigned shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
}

ATTNC_DEVICE unsigned ld_shared_u32(unsigned shared) {
  unsigned result;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(result) : "r"(shared) : "memory");
  return result;
}

} // namespace attnc::ptx
