// The seams: how a mod enters a kernel.
//
// A kernel includes two headers that do not exist as fixed files: "attnc_config.cuh" (tile, dtypes, head dims) and
// "attnc_mod.cuh" (the mod). attnc generates both and hands them to NVRTC in memory; templates/mod/identity/ holds a
// pair for compiling a template alone: nvcc -I templates -I templates/mod/identity -arch=sm_80 -cubin forward_sm80.cu
//
// attnc_mod.cuh defines, in namespace attnc:
//
//   struct ModArgs        what the mod captures, a kernel parameter by value. Every field is one 8-byte word, smaller
//                         values in its low bytes; a mod that reads nothing has one unused word
//   struct Mod            the mod:
//     static constexpr bool kHasScoreMod, kHasMaskMod
//     struct Head         what is known once b and h are
//     struct Row          what is known once b, h and q_idx are
//     struct Col          what is known once b, h and kv_idx are
//     static Head head(const ModArgs&, int b, int h)
//     static Row row(const ModArgs&, const Head&, int b, int h, int q_idx, float q_float)
//     static Col col(const ModArgs&, const Head&, int b, int h, int kv_idx, float kv_float)
//     static float score(const ModArgs&, const Head&, const Row&, const Col&, Coord, float score)
//     static bool mask(const ModArgs&, const Head&, const Row&, const Col&, Coord)
//
// Contract.
//   head   called once per (b, h) a CTA works on, 0 <= b < B and 0 <= h < H. Launch values are formed here, too.
//   row    called once per q row and thread that holds it. q_float must equal (float)q_idx; the kernel forms it from a
//          base and compile-time offsets, so that a mod pays no integer conversion per row. Lengths are at most 2^24.
//          A Row holds no more than score and mask read, so an array of them costs a kernel only what the mod needs.
//   col    likewise per kv column; kv_float == (float)kv_idx. A kernel may call it twice for a column, before score and
//          before mask: what one of them does not use is removed by the compiler, loads included. For lanes past
//          the end, whose index is clamped, a kernel may leave the float as it comes: it lies less than a tile past
//          the end. Without columns (kv_len 0) a kernel may evaluate column 0 and drop what comes of it: ModArgs
//          then say KV_LEN 1.
//   score  in and out: natural-log units, fp32, after the softmax scale, before log2(e). Called for every element of a
//          live block, masked or not; the results of dead lanes are ignored.
//   mask   true: the element lives. Not called for blocks classed full; never for empty ones. After score.
//   b, h, q_idx, kv_idx: h is the query head. The kernel clamps q_idx to [0, q_len) and kv_idx to [0, kv_len) first, so
//          that gathers stay inside; what comes back for a clamped lane is not used.
//   All are pure functions of their arguments and of the captured tensors, which no kernel writes meanwhile.
//
// Indices of gathers are clamped into the tensor unless they are proved to lie inside, given the ranges above. A tensor
// without elements comes as the address of 8 bytes of zeros with strides of 0, so that every gather from it reads 0.
//
// A generated file carries `#line N "mod.py"` so that compiler messages and profilers point at the mod's text.
#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define ATTNC_DEVICE __device__ __forceinline__
#define ATTNC_TABLE __device__ const
#define ATTNC_PRAGMA(text) _Pragma(#text)
#define ATTNC_UNROLL(rounds) ATTNC_PRAGMA(unroll rounds)
#else
#define ATTNC_DEVICE inline // the tests compile the generated code for the host
#define ATTNC_TABLE const
#define ATTNC_UNROLL(rounds)
#endif

namespace attnc {

/// Where a score stands: batch, query head, query row, key column.
struct Coord {
  int b, h, q_idx, kv_idx;
};

} // namespace attnc
