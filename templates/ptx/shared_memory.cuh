// One function, one instruction: loads and stores of 32-bit words by shared address.
#pragma once

#include "mod/contract.cuh"

namespace attnc::ptx {

/// Returns the 32-bit shared-window address of a pointer into shared memory.
ATTNC_DEVICE unsigned shared_address(const void* pointer) { return unsigned(__cvta_generic_to_shared(pointer)); }

/// Addresses are aligned to the size of the access.
ATTNC_DEVICE void ld_shared(int (&x)[2], unsigned shared) {
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(x[0]), "=r"(x[1]) : "r"(shared) : "memory");
}
ATTNC_DEVICE void ld_shared(int (&x)[4], unsigned shared) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(shared)
               : "memory");
}
ATTNC_DEVICE int ld_shared_int(unsigned shared) {
  int x;
  asm volatile("ld.shared.s32 %0, [%1];" : "=r"(x) : "r"(shared) : "memory");
  return x;
}
ATTNC_DEVICE float ld_shared_float(unsigned shared) {
  float x;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(shared) : "memory");
  return x;
}
ATTNC_DEVICE float2 ld_shared_float2(unsigned shared) {
  float2 x;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(shared) : "memory");
  return x;
}
ATTNC_DEVICE void st_shared(unsigned shared, float x) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(shared), "f"(x) : "memory");
}
ATTNC_DEVICE void st_shared(unsigned shared, int x) {
  asm volatile("st.shared.s32 [%0], %1;" ::"r"(shared), "r"(x) : "memory");
}
ATTNC_DEVICE void st_shared(unsigned shared, const float (&x)[2]) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(shared), "f"(x[0]), "f"(x[1]) : "memory");
}
ATTNC_DEVICE void st_shared(unsigned shared, const int (&x)[2]) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(shared), "r"(x[0]), "r"(x[1]) : "memory");
}
ATTNC_DEVICE void st_shared(unsigned shared, const int (&x)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
               : "memory");
}

ATTNC_DEVICE void st_shared(unsigned shared, const float (&x)[4]) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
               : "memory");
}

} // namespace attnc::ptx
