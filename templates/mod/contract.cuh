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
//     static constexpr bool kHasMaskMod          else mask() is always true
//     static constexpr bool kHasBounds           bounds() is there
//     static constexpr bool kRowsAreIntervals    the live columns of a row are exactly [begin, end) of bounds() of that
//                                                row alone: mask() need not be called
//     static constexpr bool kBeginFalls          beside kHasBounds: as q_idx grows, the begin of a row's live columns
//                                                never rises; else it never falls
//     static constexpr bool kEndFalls            likewise their end
//     static constexpr bool kPassesGradient      only in mods with gradients: d_score() is not always 0
//     static constexpr bool kKeepsGradient       likewise: d_score() is `grad`, so need not be called
//     static constexpr bool kColumnsLoad         col() reads memory: worth calling once a column of a tile, for all rows
//     static constexpr bool kAnyOrigin           q_float and kv_base may count from any position, the same for both
//     static constexpr bool kHasLengths          kv_length() is there; else this is not
//     static constexpr bool kHasOffsets          q_offset() is there; likewise
//     static constexpr bool kIsRagged            q_length(), q_start() and kv_start() are there, and kv_length(); likewise
//     struct Head         what is known once b and h are
//     struct Row          what is known once b, h and q_idx are
//     struct Col          what is known once b, h and kv_idx are
//     using Exponents     the way from products q k^T to exponents of two: a form of algo/exponents.cuh
//     static Head head(const ModArgs&, int b, int h)
//     static Row row(const ModArgs&, const Head&, int b, int h, int q_idx, float q_float)
//     static Col col(const ModArgs&, const Head&, int b, int h, int kv_idx, float kv_base, float kv_offset)
//     static float score(const ModArgs&, const Head&, const Row&, const Col&, Coord, float score)
//     static float d_score(const ModArgs&, const Head&, const Row&, const Col&, Coord, float score, float grad)
//                                                only in mods with gradients
//     static bool mask(const ModArgs&, const Head&, const Row&, const Col&, Coord)
//     static ScoreFactors factors(const ModArgs&, const Head&)
//     static float row_shift(const ModArgs&, const Head&, const Row&)
//     static TileBounds bounds(const ModArgs&, const Head&, int b, int h, int q_begin, int q_end)
//     static int kv_length(const ModArgs&, const Head&)
//     static int q_offset(const ModArgs&, const Head&)
//     static int q_length(const ModArgs&, const Head&)
//     static int q_start(const ModArgs&, const Head&)
//     static int kv_start(const ModArgs&, const Head&)
//
// and, written for kernels by boxes of a grid, where q_idx of row() and kv_idx of col() are of type Token:
//
//     static constexpr int kGridAxes             of the grids of queries and keys, 1 to 3
//     static constexpr bool kBoxIsMask           of tokens on their grids, mask() is true for the keys of box() and no others:
//                                                it need not be called
//     static constexpr bool kHasBeside           tokens may lie beside the grids
//     static constexpr Beside kKeyBeside         what mask() is then, for a query on its grid and a key beside it
//     static constexpr Beside kQueryBeside       for a query beside its grid and a key on it
//     static constexpr Beside kBothBeside        for a query and a key beside their grids
//     static KeyBox box(const ModArgs&, const Head&, int b, int h, Token q_idx)
//
// and, written for kernels that compute gradients of captures, of each place where one is read:
//
//     static constexpr int kGradients            how many places there are
//     struct Gradient0, Gradient1, ...           one of them:
//       static constexpr int kIndex              its number
//       static constexpr int kCapture            which capture, of those whose gradients are asked for
//       static constexpr int kRounds             how often an element of attention reads there; > 1 in sums
//       static constexpr bool kRoundMoves        whether offset() depends on the round
//       static constexpr GradientReach kReach    which elements of attention of a head have one offset(): what may be
//                                                added up before
//       static float value(const ModArgs&, const Head&, const Row&, const Col&, Coord, float score, float grad, int round)
//       static long long offset(const ModArgs&, const Head&, const Row&, const Col&, Coord, int round)
//     static void gradients(visit)               calls visit(Gradient0()), visit(Gradient1()), ...
//
// A mod is written in one of two ways. Plain: score() is score_mod, factors() are 1, 1, 0, row_shift() is 0. For kernels
// that go through apply_mod() (algo/apply_mod.cuh), algebra moves out of score():
//
//   score_mod(s) = factors.out score(factors.in s) + factors.slope kv_float + row_shift
//
// where only the forms that say so use `slope`, and the rest of what is known is in the form.
//
// Contract, and who calls (tests hold the calls of each file against this table):
//
//   hook        called in                                  calls
//   head        decode_lists.cu                            1
//               algo/apply_mod.cuh                         1
//               algo/transposed_scores.cuh                 1
//               algo/kv_walk.cuh                           1
//               algo/sequence.cuh                          5
//               forward_sm90.cu                            1
//               algo/q_walk.cuh                            1
//               backward_kv_sm80.cu                        1
//               backward_sm80.cu                           1
//               algo/backward_parts_sm90.cuh               1
//               forward_naive.cu                           1
//               algo/pairs.cuh                             1
//               block_mask.cu                              1
//               box_mask.cu                                1
//               backward_diagonals.cu                      1
//               algo/packed_rows.cuh                       1
//               algo/decode_work.cuh                       1
//               algo/grid_box.cuh                          1
//               algo/grid_tiles.cuh                        1
//               algo/grid_transposed_scores.cuh            1
//               algo/grid_steps.cuh                        1
//               backward_grid_sm80.cu                      1
//   row         decode_lists.cu                            1
//               algo/apply_mod.cuh                         1
//               algo/transposed_scores.cuh                 1
//               backward_kv_sm80.cu                        1
//               forward_naive.cu                           1
//               algo/pairs.cuh                             1
//               block_mask.cu                              1
//               box_mask.cu                                1
//               algo/capture_reduction.cuh                 1
//               backward_diagonals.cu                      1
//               algo/packed_rows.cuh                       1
//               algo/grid_box.cuh                          1
//               algo/grid_transposed_scores.cuh            1
//   col         decode_lists.cu                            1
//               algo/apply_mod.cuh                         1
//               algo/transposed_scores.cuh                 1
//               forward_sm90.cu                            1
//               backward_kv_sm80.cu                        1
//               forward_naive.cu                           1
//               algo/pairs.cuh                             2
//               block_mask.cu                              1
//               box_mask.cu                                1
//               algo/capture_reduction.cuh                 2
//               backward_captures_naive.cu                 1
//               backward_diagonals.cu                      1
//               algo/packed_rows.cuh                       1
//               algo/grid_box.cuh                          1
//               algo/grid_transposed_scores.cuh            1
//   score       algo/apply_mod.cuh                         1
//               algo/transposed_scores.cuh                 1
//               backward_kv_sm80.cu                        1
//               forward_naive.cu                           1
//               algo/pairs.cuh                             1
//               algo/packed_rows.cuh                       1
//               algo/grid_box.cuh                          1
//   mask        decode_lists.cu                            1
//               algo/apply_mod.cuh                         1
//               algo/transposed_scores.cuh                 1
//               backward_kv_sm80.cu                        1
//               forward_naive.cu                           1
//               algo/pairs.cuh                             1
//               block_mask.cu                              1
//               box_mask.cu                                1
//               algo/packed_rows.cuh                       1
//               algo/grid_box.cuh                          1
//               algo/grid_transposed_scores.cuh            1
//   factors     algo/apply_mod.cuh                         1
//               algo/transposed_scores.cuh                 1
//               backward_kv_sm80.cu                        1
//               algo/packed_rows.cuh                       1
//               algo/grid_box.cuh                          1
//               algo/grid_transposed_scores.cuh            1
//   row_shift   algo/apply_mod.cuh                         1
//               algo/transposed_scores.cuh                 1
//               backward_kv_sm80.cu                        1
//               backward_q_sm80.cu                         1
//               backward_captures.cu                       1
//               algo/packed_rows.cuh                       1
//   d_score     algo/gradients.cuh                         1
//               algo/transposed_scores.cuh                 1
//               algo/pairs.cuh                             1
//   gradients   algo/capture_reduction.cuh                 2
//               backward_captures_naive.cu                 1
//               backward_diagonals.cu                      1
//   bounds      algo/apply_mod.cuh                         1
//               algo/transposed_scores.cuh                 1
//               algo/kv_walk.cuh                           1
//               algo/q_walk.cuh                            1
//               algo/turns.cuh                             1
//               backward_kv_sm80.cu                        1
//               algo/packed_rows.cuh                       1
//               algo/decode_work.cuh                       1
//   kv_length   algo/sequence.cuh                          1
//   q_offset    algo/sequence.cuh                          1
//   q_length    algo/sequence.cuh                          1
//   q_start     algo/sequence.cuh                          1
//   kv_start    algo/sequence.cuh                          1
//   box         algo/grid_box.cuh                          1
//
//   head   once per (b, h) a CTA works on, 0 <= b < B and 0 <= h < H. Launch values are formed here, too.
//   row    once per q row and lane that holds it. q_float is (float)q_idx, less the origin if kAnyOrigin; the kernel forms
//          it from a base and compile-time offsets, so that a mod pays no integer conversion per row. Lengths are at
//          most 2^24. A Row holds no more than the other hooks read, so an array of them costs only what the mod needs.
//   col    likewise per kv column. kv_base + kv_offset is (float)kv_idx, less the origin if kAnyOrigin; the offset is known
//          at compile time, so that slope * kv_idx is one multiply-add of a product formed once a tile. A kernel may
//          call it twice for a column, before score and before mask: what one of them does not use is removed by the
//          compiler, loads included. For columns past the end kv_idx is the last one, and the floats may still be those
//          of the column itself. Without columns (kv_len 0) a kernel may evaluate column 0 and drop what comes of it:
//          ModArgs then say KV_LEN 1.
//   score  in and out: natural-log units, fp32, after the softmax scale, before log2(e). Called for every element of a
//          live block, masked or not; the results of dead elements are ignored.
//   d_score  grad times the derivative of score_mod by its score, for `score` as score_mod gets it: before factors(). grad
//          and result are gradients by natural-log units. Anything may come out for elements that mask() refuses: the
//          kernel puts 0 there.
//   mask   true: the element lives. Not called for blocks classed full; never for empty ones. After score.
//   value  grad times the derivative of score_mod by what the place reads, in one round; `score` and grad as d_score() has
//          them, and as there dead elements get 0 from the kernel.
//   offset  of the element that the place reads, in a dense tensor of the capture's shape; inside it unless that is empty.
//          Arguments that kReach rules out are not looked at: a Row reach has any Col and kv_idx. Of a Diagonal, any element
//          of attention speaks for all.
//   row_shift   what is to be added to all scores of the row: it changes lse and row max, nothing else.
//   bounds of the rows [q_begin, q_end), at least one.
//   box    the keys that a query may see: mask() is false for all others. Of tokens on their grids.
//   kv_length   rows of K and V that the batch entry has, 0 to KV_LEN: columns behind them do not live, and what they hold
//          reaches no result.
//   q_offset    q_idx of row 0 of q, negative ones included: with it all hooks take the position of a query as q_idx, and
//          q_float counts positions. Without, that is the row.
//   q_length    rows of Q that the batch entry has, 0 to Q_LEN: it is a sequence of a ragged batch, b, whose rows are those of
//               the tensors from q_start() and kv_start() on. Row 0 of q is then its first one, kv_idx 0 its first column.
//   b, h, q_idx, kv_idx: h is the query head. The kernel clamps the row of q to [0, q_len) and kv_idx to [0, kv_len) first,
//          so that gathers stay inside; what comes back for a clamped element is not used.
//   All are pure functions of their arguments and of the captured tensors, which no kernel writes meanwhile.
//
// Indices of gathers are clamped into the tensor unless they are proved to lie inside, given the ranges above. A tensor
// without elements comes as the address of 8 bytes of zeros with strides of 0, so that every gather from it reads 0.
//
// A generated file carries `#line N "mod.py"` so that compiler messages and profilers point at the mod's text.
#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define ATTNC_DEVICE __device__ __forceinline__
#define ATTNC_CALLED __device__ __noinline__ // long functions: one copy in a kernel instead of one a score of a tile
#define ATTNC_TABLE __device__ const
#define ATTNC_PRAGMA(text) _Pragma(#text)
#define ATTNC_UNROLL(rounds) ATTNC_PRAGMA(unroll rounds)
#else
#define ATTNC_DEVICE inline // the tests compile the generated code for the host
#define ATTNC_CALLED inline
#define ATTNC_TABLE const
#define ATTNC_UNROLL(rounds)
#endif

namespace attnc {

/// Where a score stands: batch, query head, query row, key column.
struct Coord {
  int b, h, q_idx, kv_idx;
};

/// A token on a grid or beside it: its position, and its coordinates, those of the slowest axis first. Of a token beside the
/// grid these are floor quotients and remainders of its distance from the first one on it.
struct Token {
  int index, at[3];
  bool on_grid;
};

/// What mask() is where not both tokens are on their grids: false, true, or to be asked.
enum class Beside { None, All, Asks };

/// Keys whose coordinate lies in [begin, end) along each axis, of their grid or beyond.
struct KeyBox {
  int begin[3], end[3];
};
constexpr int kMaxExtent = 1 << 24; // ir::kMaxExtent

/// What a head knows of its scores; `out` is positive.
struct ScoreFactors {
  float in, out, slope;
};

/// Columns of a range of rows: none outside [begin, end) lives in any row, all of [full_begin, full_end) live in every
/// row. Kernels clip them to [0, kv_len).
struct TileBounds {
  int begin, full_begin, full_end, end;
};

/// Which elements of attention of one head and batch entry share the element of a capture that they read: all; those of
/// a row, a column, or of one q_idx - kv_idx; or nothing is known.
enum class GradientReach { Head, Row, Column, Diagonal, Element };

// The forms of Mod::Exponents (algo/exponents.cuh, algo/tanh_exponents.cuh).
template <bool CallsScore, bool IsLinear> struct AffineExponents;
using ProductExponents = AffineExponents<false, false>; // no score_mod: s
using LinearExponents = AffineExponents<false, true>;   // s + slope kv_float
using ScoreExponents = AffineExponents<true, false>;    // out score(in s)
template <bool Accurate> struct TanhExponents;          // out tanh(in s), or by the hardware's approximate tanh

} // namespace attnc
