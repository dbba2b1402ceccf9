// One function, one instruction: loads and stores in global memory for exchange between CTAs.
#pragma once

#include "mod/contract.cuh"

namespace attnc::ptx {

/// Bypasses the L1 cache, which does not see other SMs' stores. `from`: a multiple of 16 bytes.
ATTNC_DEVICE void ld_global_cg(float (&x)[4], const float* from) {
  asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
               : "l"(from)
               : "memory");
}
ATTNC_DEVICE unsigned ld_global_cg(const unsigned* from) {
  unsigned x;
  asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
  return x;
}
ATTNC_DEVICE void st_global_cg(float* to, const float (&x)[4]) {
  asm volatile("st.global.cg.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
               : "memory");
}

/// Stores 16 bytes at once. A plain store of four words becomes four where ptxas has them in other than consecutive
/// registers. `to`: a multiple of 16 bytes.
template <class T> ATTNC_DEVICE void st_global(void* to, const T (&x)[4]) {
  static_assert(sizeof(T) == 4);
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
               : "memory");
}

/// Adds to a counter, and returns its old value. What this CTA's threads stored before a preceding barrier is visible
/// to CTAs that add later, behind a barrier after their add. Cheaper than __threadfence(), which is sequentially
/// consistent.
ATTNC_DEVICE int atom_add_acq_rel(int* to, int x) {
  int old;
  asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], %2;" : "=r"(old) : "l"(to), "r"(x) : "memory");
  return old;
}

} // namespace attnc::ptx
