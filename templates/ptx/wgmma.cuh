// One function, one instruction: wgmma, matrix products of a warpgroup with fp32 accumulators in registers (sm_90a).
//
// D[64, N] += A[64, 16] B[16, N]; with E4M3, A[64, 32] B[32, N]. Accumulators of lane l of warp w, with g = l / 4 and
// t = l % 4:
//   d[n][0..1] = (row 16 w + g, cols 8 n + 2 t, +1); d[n][2..3] = (row 16 w + g + 8, the same columns)
// A from registers: a[0] = (g, 2t..), a[1] = (g + 8, 2t..), a[2] = (g, 2t+8..), a[3] = (g + 8, 2t+8..), as for
// mma.sync. With E4M3: a[0] = (g, 4t..), a[1] = (g + 8, 4t..), a[2] = (g, 4t+16..), a[3] = (g + 8, 4t+16..).
//
// The products are asynchronous: their registers must not be accessed between wgmma_fence() and the wgmma_wait that
// covers their commit group.
//
// attnc_config.cuh lists the N that a kernel uses: #define ATTNC_WGMMA_SHAPES(shape) shape(64) shape(128). With E4M3,
// the list is ATTNC_WGMMA_SHAPES_E4M3.
#pragma once

#include "attnc_config.cuh"

#include "tile/element.cuh"

namespace attnc::ptx {

/// Orders earlier register accesses before the products that follow.
ATTNC_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
ATTNC_DEVICE void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Waits until at most `Pending` of the latest groups are in flight.
template <int Pending> ATTNC_DEVICE void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// clang-format off
#define ATTNC_REGISTERS_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define ATTNC_REGISTERS_32 ATTNC_REGISTERS_16 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define ATTNC_REGISTERS_48 ATTNC_REGISTERS_32 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define ATTNC_REGISTERS_64 ATTNC_REGISTERS_48 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define ATTNC_REGISTERS_80 ATTNC_REGISTERS_64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define ATTNC_REGISTERS_96 ATTNC_REGISTERS_80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define ATTNC_REGISTERS_112 ATTNC_REGISTERS_96 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define ATTNC_REGISTERS_128 ATTNC_REGISTERS_112 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define ATTNC_REGISTERS_144 ATTNC_REGISTERS_128 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define ATTNC_REGISTERS_160 ATTNC_REGISTERS_144 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define ATTNC_REGISTERS_176 ATTNC_REGISTERS_160 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define ATTNC_REGISTERS_192 ATTNC_REGISTERS_176 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define ATTNC_REGISTERS_208 ATTNC_REGISTERS_192 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define ATTNC_REGISTERS_224 ATTNC_REGISTERS_208 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define ATTNC_REGISTERS_240 ATTNC_REGISTERS_224 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define ATTNC_REGISTERS_256 ATTNC_REGISTERS_240 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define ATTNC_GROUP(n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define ATTNC_OUTPUTS_16 ATTNC_GROUP(0), ATTNC_GROUP(1)
#define ATTNC_OUTPUTS_32 ATTNC_OUTPUTS_16, ATTNC_GROUP(2), ATTNC_GROUP(3)
#define ATTNC_OUTPUTS_48 ATTNC_OUTPUTS_32, ATTNC_GROUP(4), ATTNC_GROUP(5)
#define ATTNC_OUTPUTS_64 ATTNC_OUTPUTS_48, ATTNC_GROUP(6), ATTNC_GROUP(7)
#define ATTNC_OUTPUTS_80 ATTNC_OUTPUTS_64, ATTNC_GROUP(8), ATTNC_GROUP(9)
#define ATTNC_OUTPUTS_96 ATTNC_OUTPUTS_80, ATTNC_GROUP(10), ATTNC_GROUP(11)
#define ATTNC_OUTPUTS_112 ATTNC_OUTPUTS_96, ATTNC_GROUP(12), ATTNC_GROUP(13)
#define ATTNC_OUTPUTS_128 ATTNC_OUTPUTS_112, ATTNC_GROUP(14), ATTNC_GROUP(15)
#define ATTNC_OUTPUTS_144 ATTNC_OUTPUTS_128, ATTNC_GROUP(16), ATTNC_GROUP(17)
#define ATTNC_OUTPUTS_160 ATTNC_OUTPUTS_144, ATTNC_GROUP(18), ATTNC_GROUP(19)
#define ATTNC_OUTPUTS_176 ATTNC_OUTPUTS_160, ATTNC_GROUP(20), ATTNC_GROUP(21)
#define ATTNC_OUTPUTS_192 ATTNC_OUTPUTS_176, ATTNC_GROUP(22), ATTNC_GROUP(23)
#define ATTNC_OUTPUTS_208 ATTNC_OUTPUTS_192, ATTNC_GROUP(24), ATTNC_GROUP(25)
#define ATTNC_OUTPUTS_224 ATTNC_OUTPUTS_208, ATTNC_GROUP(26), ATTNC_GROUP(27)
#define ATTNC_OUTPUTS_240 ATTNC_OUTPUTS_224, ATTNC_GROUP(28), ATTNC_GROUP(29)
#define ATTNC_OUTPUTS_256 ATTNC_OUTPUTS_240, ATTNC_GROUP(30), ATTNC_GROUP(31)

// NOTE: operands are numbered after the N / 2 accumulators, hence the literals P0..P4 of each N.
#define ATTNC_WGMMA_SS(N, TYPE, P0, P1, P2, P3, P4)                                                                            \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #P2 ", 0;\n"                                                       \
               "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" ATTNC_REGISTERS_##N "}, %" #P0       \
               ", %" #P1 ", p, 1, 1, %" #P3 ", %" #P4 ";\n}"                                                            \
               : ATTNC_OUTPUTS_##N : "l"(a), "l"(b), "r"(accumulate), "n"(MnMajorA), "n"(MnMajorB) : "memory")
#define ATTNC_WGMMA_RS(N, TYPE, P0, P1, P2, P3, P4, P5, P6)                                                                \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #P5 ", 0;\n"                                                       \
               "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" ATTNC_REGISTERS_##N "}, {%" #P0      \
               ", %" #P1 ", %" #P2 ", %" #P3 "}, %" #P4 ", p, 1, 1, %" #P6 ";\n}"                                             \
               : ATTNC_OUTPUTS_##N : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate),                   \
                 "n"(MnMajorB) : "memory")

// Both matrices are contiguous along k, and there are no flags to say otherwise.
#define ATTNC_WGMMA_SS_E4M3(N, P0, P1, P2)                                                                              \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #P2 ", 0;\n"                                                       \
               "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" ATTNC_REGISTERS_##N "}, %" #P0                \
               ", %" #P1 ", p, 1, 1;\n}"                                                                               \
               : ATTNC_OUTPUTS_##N : "l"(a), "l"(b), "r"(accumulate) : "memory")
#define ATTNC_WGMMA_RS_E4M3(N, P0, P1, P2, P3, P4, P5)                                                                  \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #P5 ", 0;\n"                                                       \
               "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" ATTNC_REGISTERS_##N "}, {%" #P0               \
               ", %" #P1 ", %" #P2 ", %" #P3 "}, %" #P4 ", p, 1, 1;\n}"                                                \
               : ATTNC_OUTPUTS_##N : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate) : "memory")

template <class Element, int N> struct Wgmma;
template <int N> struct Touch;
#define ATTNC_TOUCH(N)                                                                                                  \
  template <> struct Touch<N> {                                                                                         \
    ATTNC_DEVICE static void of(float (&d)[N / 8][4]) { asm volatile("" : ATTNC_OUTPUTS_##N::"memory"); }               \
  };
#define ATTNC_WGMMA_TYPE(ELEMENT, TYPE, N, P0, P1, P2, P3, P4, P5, P6)                                                      \
  template <> struct Wgmma<ELEMENT, N> {                                                                                \
    template <int MnMajorA, int MnMajorB>                                                                               \
    ATTNC_DEVICE static void ss(float (&d)[N / 8][4], unsigned long long a, unsigned long long b, int accumulate) {      \
      ATTNC_WGMMA_SS(N, TYPE, P0, P1, P2, P3, P4);                                                                              \
    }                                                                                                                   \
    template <int MnMajorB>                                                                                             \
    ATTNC_DEVICE static void rs(float (&d)[N / 8][4], const unsigned (&a)[4], unsigned long long b, int accumulate) {    \
      ATTNC_WGMMA_RS(N, TYPE, P0, P1, P2, P3, P4, P5, P6);                                                                  \
    }                                                                                                                   \
  };
#define ATTNC_WGMMA_TYPE_E4M3(N, P0, P1, P2, P3, P4, P5, P6)                                                            \
  template <> struct Wgmma<E4M3, N> {                                                                                   \
    template <int MnMajorA, int MnMajorB>                                                                               \
    ATTNC_DEVICE static void ss(float (&d)[N / 8][4], unsigned long long a, unsigned long long b, int accumulate) {      \
      static_assert(!MnMajorA && !MnMajorB, "elements of 8 bits are contiguous along k");                               \
      ATTNC_WGMMA_SS_E4M3(N, P0, P1, P2);                                                                               \
    }                                                                                                                   \
    template <int MnMajorB>                                                                                             \
    ATTNC_DEVICE static void rs(float (&d)[N / 8][4], const unsigned (&a)[4], unsigned long long b, int accumulate) {    \
      static_assert(!MnMajorB, "elements of 8 bits are contiguous along k");                                            \
      ATTNC_WGMMA_RS_E4M3(N, P0, P1, P2, P3, P4, P5);                                                                   \
    }                                                                                                                   \
  };                                                                                                                    \
  ATTNC_TOUCH(N)
#define ATTNC_WGMMA_E4M3(...) ATTNC_WGMMA_TYPE_E4M3(__VA_ARGS__)
#define ATTNC_WGMMA(...)                                                                                                \
  ATTNC_WGMMA_TYPE(Bf16, "bf16", __VA_ARGS__)                                                                           \
  ATTNC_WGMMA_TYPE(F16, "f16", __VA_ARGS__)
#define ATTNC_OPERANDS_16 8, 9, 10, 11, 12, 13, 14
#define ATTNC_OPERANDS_32 16, 17, 18, 19, 20, 21, 22
#define ATTNC_OPERANDS_48 24, 25, 26, 27, 28, 29, 30
#define ATTNC_OPERANDS_64 32, 33, 34, 35, 36, 37, 38
#define ATTNC_OPERANDS_80 40, 41, 42, 43, 44, 45, 46
#define ATTNC_OPERANDS_96 48, 49, 50, 51, 52, 53, 54
#define ATTNC_OPERANDS_112 56, 57, 58, 59, 60, 61, 62
#define ATTNC_OPERANDS_128 64, 65, 66, 67, 68, 69, 70
#define ATTNC_OPERANDS_144 72, 73, 74, 75, 76, 77, 78
#define ATTNC_OPERANDS_160 80, 81, 82, 83, 84, 85, 86
#define ATTNC_OPERANDS_176 88, 89, 90, 91, 92, 93, 94
#define ATTNC_OPERANDS_192 96, 97, 98, 99, 100, 101, 102
#define ATTNC_OPERANDS_208 104, 105, 106, 107, 108, 109, 110
#define ATTNC_OPERANDS_224 112, 113, 114, 115, 116, 117, 118
#define ATTNC_OPERANDS_240 120, 121, 122, 123, 124, 125, 126
#define ATTNC_OPERANDS_256 128, 129, 130, 131, 132, 133, 134
// Only the shapes that the kernel uses: with all of them, NVRTC would take as long as for all other headers together.
#ifndef ATTNC_WGMMA_SHAPES // a kernel without wgmma
#define ATTNC_WGMMA_SHAPES(shape)
#endif
#ifndef ATTNC_WGMMA_SHAPES_E4M3
#define ATTNC_WGMMA_SHAPES_E4M3(shape)
#endif
#define ATTNC_WGMMA_SHAPE(N) ATTNC_WGMMA(N, ATTNC_OPERANDS_##N) ATTNC_TOUCH(N)
#define ATTNC_WGMMA_SHAPE_E4M3(N) ATTNC_WGMMA_E4M3(N, ATTNC_OPERANDS_##N)
ATTNC_WGMMA_SHAPES(ATTNC_WGMMA_SHAPE)
ATTNC_WGMMA_SHAPES_E4M3(ATTNC_WGMMA_SHAPE_E4M3)
#undef ATTNC_WGMMA_SHAPE
#undef ATTNC_WGMMA_SHAPE_E4M3
#undef ATTNC_WGMMA
#undef ATTNC_WGMMA_E4M3
#undef ATTNC_WGMMA_TYPE
#undef ATTNC_WGMMA_TYPE_E4M3
#undef ATTNC_WGMMA_SS
#undef ATTNC_WGMMA_RS
#undef ATTNC_WGMMA_SS_E4M3
#undef ATTNC_WGMMA_RS_E4M3
#undef ATTNC_TOUCH
#undef ATTNC_GROUP
// clang-format on

/// Tells the compiler, which does not know that wgmma is asynchronous, that the registers change here. No instruction.
template <int Groups> ATTNC_DEVICE void touch(float (&d)[Groups][4]) { Touch<8 * Groups>::of(d); }

/// d = a b, plus d if `accumulate`; a and b are in shared memory, given by descriptors. K-major (0): rows of a, or
/// columns of b, are contiguous along k. MN-major (1): elements with the same k are contiguous.
template <class Element, int N, int MnMajorA, int MnMajorB>
ATTNC_DEVICE void wgmma_ss(float (&d)[N / 8][4], unsigned long long a, unsigned long long b, int accumulate) {
  Wgmma<Element, N>::template ss<MnMajorA, MnMajorB>(d, a, b, accumulate);
}

/// The same with a in registers.
template <class Element, int N, int MnMajorB>
ATTNC_DEVICE void wgmma_rs(float (&d)[N / 8][4], const unsigned (&a)[4], unsigned long long b, int accumulate) {
  Wgmma<Element, N>::template rs<MnMajorB>(d, a, b, accumulate);
}

} // namespace attnc::ptx
