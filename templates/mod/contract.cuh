// The seams: how a mod enters a kernel.
//
// A kernel includes two headers that do not exist as fixed files: "attnc_config.cuh" (tile, dtypes, head dims) and
// "attnc_mod.cuh" (the mod). attnc generates both and hands them to NVRTC in memory. templates/mod/identity/ holds a
// pair for compiling a template by itself:
//
//   nvcc -I templates -I templates/mod/identity -arch=sm_80 -cubin forward_sm80.cu
//
// attnc_mod.cuh defines, in namespace attnc:
//
//   struct ModArgs        the mod's captures, a kernel parameter by value. Every field is an 8-byte word, smaller
//                         values in its low bytes; a mod that reads nothing has one unused word
//   struct Mod            the mod:
//     static constexpr bool kHasMaskMod          if false, mask() is always true
//     static constexpr bool kHasBounds           bounds() exists
//     static constexpr bool kRowsAreIntervals    the live columns of a row are exactly [begin, end) of bounds() of that
//                                                single row: mask() need not be called
//     static constexpr bool kBeginFalls          if kHasBounds: as q_idx grows, the begin of a row's live columns never
//                                                rises; if false, it never falls
//     static constexpr bool kEndFalls            the same for their end
//     static constexpr bool kPassesGradient      only in mods with gradients: d_score() is not always 0
//     static constexpr bool kKeepsGradient       only in mods with gradients: d_score() returns `grad`, so need not be
//                                                called
//     static constexpr bool kSharesColumns       col() reads memory or takes long: call it once per column of a tile
//     static constexpr bool kAnyOrigin           q_float and kv_base may count from any position, the same for both
//     static constexpr bool kHasLengths          defined only if kv_length() exists
//     static constexpr bool kHasProbMod          defined only if prob_factor() exists
//     static constexpr bool kDrops               defined only if there are the parts of dropout, in place of
//                                                prob_factor(): algo/drops.cuh
//     static constexpr bool kIsWeight            defined only if score() is the weight that multiplies V, and there is
//                                                no softmax
//     static constexpr bool kHasSink             defined only if sink() exists
//     static constexpr bool kHasOutputGradients  defined only if prob_gradient() and score_gradient() exist
//     static constexpr bool kGivesToAllWeights   only with these: prob_gradient() reads neither prob nor memory. It may
//                                                be asked for weights of 0, with anything in place of a Row
//     static constexpr bool kHasOffsets          defined only if q_offset() exists
//     static constexpr int kVariants             defined only if sequences have different mods: their number. Each is a
//                                                struct as Mod, with a static constexpr int kVariant; Mod itself
//                                                chooses score by score, for kernels that do not ask
//     static constexpr int kColumnBytes          then: bytes of the largest Col of variants whose col() reads memory
//     static constexpr bool kIsRagged            defined only if q_length(), q_start(), kv_start(), kv_length() exist
//     struct Head         values that depend on b and h
//     struct Row          values that depend on b, h and q_idx
//     struct Col          values that depend on b, h and kv_idx
//     using Exponents     turns products q k^T into exponents of two: a form of algo/exponents.cuh
//     static Head head(const ModArgs&, int b, int h)
//     static Row row(const ModArgs&, const Head&, int b, int h, int q_idx, float q_float)
//     static Col col(const ModArgs&, const Head&, int b, int h, int kv_idx, float kv_base, float kv_offset)
//     static float score(const ModArgs&, const Head&, const Row&, const Col&, Coord, float score)
//     static float d_score(const ModArgs&, const Head&, const Row&, const Col&, Coord, float score, float grad)
//                                                only in mods with gradients
//     static float t_score(const ModArgs&, const Head&, const Row&, const Col&, Coord, float score,
//                          float score_tangent)
//     static float t_d_score(const ModArgs&, const Head&, const Row&, const Col&, Coord, float score, float grad,
//                            float score_tangent, float grad_tangent)
//     static float t_sink(const ModArgs&, const Head&, const Row&, Coord)
//                                                tangents of score(), d_score() and sink(); only in mods with tangents
//     static float prob_gradient(const ModArgs&, const Head&, const Row&, const Col&, Coord, float score, auto prob)
//     static float score_gradient(const ModArgs&, const Head&, const Row&, const Col&, Coord, float score, auto prob)
//                                                only in mods with gradients of outputs. prob: as in a
//                                                Reduction's value()
//     static bool mask(const ModArgs&, const Head&, const Row&, const Col&, Coord)
//     static float prob_factor(const ModArgs&, const Head&, const Row&, const Col&, Coord)
//                                                only in mods with a prob_mod
//     static float prob_weight(const ModArgs&, const Head&, const Row&, const Col&, Coord, float prob)
//     static float d_prob(const ModArgs&, const Head&, const Row&, const Col&, Coord, float prob, float grad)
//                                                what prob_mod makes of a weight, and the gradient of the weight; only
//                                                for backward_prob.cu
//     static long long drop_seed(const ModArgs&, const Head&)
//     static int drop_below(const ModArgs&, const Head&), or drop_above()
//     static int drop_rest(const ModArgs&, const Head&)
//     static float kept_factor(const ModArgs&, const Head&)
//                                                the parts of dropout (src/ir/outputs.h); drop_rest() only if it may
//                                                not be 0
//     static float sink(const ModArgs&, int b, int h, int q_idx)
//                                                only in mods with a sink_mod; by boxes of a grid q_idx is a Token
//     static ScoreFactors factors(const ModArgs&, const Head&)
//     static float q_factor(const ModArgs&, const Head&, const Row&, Coord, int round)
//     static float kv_factor(const ModArgs&, const Head&, const Col&, Coord, int round)
//                                                both only for low_rank.cu, low_rank_gradients.cu
//     static float row_shift(const ModArgs&, const Head&, const Row&)
//     static TileBounds bounds(const ModArgs&, const Head&, int b, int h, int q_begin, int q_end)
//     static int variant(const ModArgs&, const Head&)
//     static auto visit_variant(int variant, visit)   returns visit(m), m of the type of this variant
//                                                both only with kVariants
//     static int kv_length(const ModArgs&, const Head&)
//     static int q_offset(const ModArgs&, const Head&)
//     static int q_length(const ModArgs&, const Head&)
//     static int q_start(const ModArgs&, const Head&)
//     static int kv_start(const ModArgs&, const Head&)
//
// and, generated for the kernel that builds block masks, of types of mod/ranges.cuh:
//
//     struct RowRange     ranges of what mask() reads of a Row
//     struct ColRange     ranges of what mask() reads of a Col
//     static void each(RowRange&, const Row&, visit)   calls visit(range, value) for each of them
//     static void each(ColRange&, const Col&, visit)
//     static Range<bool> judge(const ModArgs&, const Head&, const RowRange&, const ColRange&, const CoordRange&)
//
// and, generated for kernels by boxes of a grid, where row()'s q_idx and col()'s kv_idx are of type Token:
//
//     static constexpr int kGridAxes             of the grids of queries and keys, 1 to 3
//     static constexpr bool kBoxIsMask           for tokens on their grids, mask() is true for the keys of box() and no
//                                                others: it need not be called
//     static constexpr bool kHasBeside           tokens may lie off the grids
//     static constexpr Beside kKeyBeside         what mask() then is for an on-grid query and an off-grid key
//     static constexpr Beside kQueryBeside       for an off-grid query and an on-grid key
//     static constexpr Beside kBothBeside        for an off-grid query and an off-grid key
//     static KeyBox box(const ModArgs&, const Head&, int b, int h, Token q_idx)
//
// and, generated for kernels that compute gradients of captures, for each place where one is read:
//
//     static constexpr int kGradients            how many places there are
//     struct Gradient0, Gradient1, ...           one of them:
//       static constexpr int kIndex              its number
//       static constexpr int kCapture            which capture, among those whose gradients are wanted
//       static constexpr int kRounds             how often an element of attention reads there; > 1 in sums
//       static constexpr bool kRoundMoves        whether offset() depends on the round
//       static constexpr GradientReach kReach    which elements of attention of a head share one offset(): these may be
//                                                added up first
//       static float value(const ModArgs&, const Head&, const Row&, const Col&, Coord, float score, float grad, int
//                          round)                with tangents: (..., float grad, float score_tangent, float
//                                                grad_tangent, int round), the tangent of the value
//       static long long offset(const ModArgs&, const Head&, const Row&, const Col&, Coord, int round)
//     static void gradients(visit)               calls visit(Gradient0()), visit(Gradient1()), ... for reads of
//                                                score_mod
//     static void sink_gradients(visit)          the same for reads of sink_mod; only if there are any. Their kReach is
//                                                Head or Row
//     static void prob_gradients(visit)          the same for reads of prob_mod; only in mods with prob_weight(). Its
//                                                value() takes (..., float prob, float grad, int round)
//     static void output_gradients(visit)        the same for reads of outputs of the mod; only in mods with
//                                                prob_gradient(). value() then takes (..., float score, float prob, int
//                                                round)
//
// and, generated for kernels that compute outputs of the mod:
//
//     static constexpr int kReductions           how many there are
//     static constexpr bool kSumsWeights[2]      whether those of rows and heads, and those of columns, are all sums of
//                                                prob
//     struct Reduction0, Reduction1, ...         one of them:
//       static constexpr int kIndex              its number
//       static constexpr bool kIsMax             whether it is a maximum, else a sum
//       static constexpr bool kOfColumns         whether it is of a column, else of a row or a head
//       static float value(const ModArgs&, const Head&, const Row&, const Col&, Coord, float score, auto prob)
//                                                prob: a float, or what is one and has a log_of() of its own
//     static void reductions(visit)              calls visit(Reduction0()), visit(Reduction1()), ...
//
// A mod is generated in one of two ways. Plain: score() is score_mod, factors() are 1, 1, 0, row_shift() is 0. For
// kernels that go through apply_mod() (algo/apply_mod.cuh), algebra moves out of score():
//
//   score_mod(s) = factors.out score(factors.in s) + factors.slope kv_float + row_shift
//
// where only the forms that say so use `slope`; the form holds the rest.
//
// Contract and callers (tests check the calls of each file against this table):
//
//   hook        called in                                  calls
//   head        decode_lists.cu                            1
//               algo/apply_mod.cuh                         1
//               algo/transposed_scores.cuh                 1
//               algo/kv_walk.cuh                           1
//               algo/sequence.cuh                          6
//               algo/forward_parts_sm90.cuh                1
//               algo/q_walk.cuh                            1
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
//               backward_grid_sm90.cu                      1
//               low_rank.cu                                2
//               low_rank_gradients.cu                      2
//               tangents_kv_sm80.cu                        1
//               tangents_kv_sm90.cu                        1
//               reductions_naive.cu                        1
//               reductions_sm80.cu                         1
//               reductions_sm90.cu                         2
//   row         decode_lists.cu                            1
//               algo/apply_mod.cuh                         1
//               algo/transposed_scores.cuh                 1
//               forward_naive.cu                           1
//               algo/pairs.cuh                             1
//               block_mask.cu                              1
//               box_mask.cu                                1
//               algo/capture_reduction.cuh                 1
//               backward_diagonals.cu                      1
//               algo/packed_rows.cuh                       1
//               algo/grid_box.cuh                          1
//               algo/grid_transposed_scores.cuh            1
//               low_rank.cu                                1
//               low_rank_gradients.cu                      1
//               tangents_kv_sm80.cu                        1
//               tangents_kv_sm90.cu                        1
//               reductions_naive.cu                        1
//               reductions_sm80.cu                         1
//               reductions_sm90.cu                         1
//   col         decode_lists.cu                            1
//               algo/apply_mod.cuh                         1
//               algo/transposed_scores.cuh                 1
//               algo/forward_parts_sm90.cuh                1
//               forward_naive.cu                           1
//               algo/pairs.cuh                             3
//               block_mask.cu                              1
//               box_mask.cu                                1
//               algo/capture_reduction.cuh                 2
//               algo/tangents.cuh                          2
//               backward_captures_naive.cu                 1
//               backward_prob.cu                           1
//               tangents_captures_naive.cu                 1
//               backward_diagonals.cu                      1
//               algo/packed_rows.cuh                       1
//               algo/grid_box.cuh                          1
//               algo/grid_transposed_scores.cuh            1
//               low_rank.cu                                1
//               low_rank_gradients.cu                      1
//               algo/tangent_scores.cuh                    1
//               tangents_kv_sm80.cu                        1
//               tangents_kv_sm90.cu                        1
//               reductions_naive.cu                        1
//               reductions_sm80.cu                         2
//               reductions_sm90.cu                         2
//   score       algo/apply_mod.cuh                         1
//               algo/transposed_scores.cuh                 1
//               algo/exact_gradients.cuh                   1
//               algo/grid_exact_gradients.cuh              1
//               forward_naive.cu                           1
//               algo/pairs.cuh                             1
//               algo/tangent_scores.cuh                    1
//               reductions_naive.cu                        1
//               algo/reductions.cuh                        1
//   mask        decode_lists.cu                            1
//               algo/apply_mod.cuh                         1
//               algo/transposed_scores.cuh                 1
//               forward_naive.cu                           1
//               algo/pairs.cuh                             1
//               block_mask.cu                              1
//               box_mask.cu                                1
//               algo/grid_transposed_scores.cuh            1
//               algo/tangent_scores.cuh                    1
//               reductions_naive.cu                        1
//               algo/reductions.cuh                        1
//   prob_factor algo/prob_mod.cuh                          1
//   prob_weight backward_prob.cu                           1
//   d_prob      backward_prob.cu                           1
//   drop_seed   algo/drops.cuh                             1
//   drop_below  algo/drops.cuh                             1
//   drop_above  algo/drops.cuh                             1
//   drop_rest   algo/drops.cuh                             1
//   kept_factor algo/drops.cuh                             1
//   sink        algo/sink.cuh                              1
//   t_sink      algo/sink.cuh                              1
//   each        block_mask.cu                              3
//   judge       block_mask.cu                              1
//   factors     algo/apply_mod.cuh                         1
//               algo/transposed_scores.cuh                 1
//               algo/packed_rows.cuh                       1
//               algo/grid_box.cuh                          1
//               algo/grid_transposed_scores.cuh            1
//   row_shift   algo/apply_mod.cuh                         1
//               algo/transposed_scores.cuh                 1
//               backward_q_sm80.cu                         1
//               backward_captures.cu                       1
//               algo/packed_rows.cuh                       1
//   d_score     algo/gradients.cuh                         1
//               algo/transposed_scores.cuh                 1
//               algo/pairs.cuh                             1
//               backward_prob.cu                           1
//               algo/tangents.cuh                          1
//               algo/tangent_scores.cuh                    1
//   t_score     algo/tangents.cuh                          1
//               algo/tangent_scores.cuh                    1
//   t_d_score   algo/tangents.cuh                          1
//               algo/tangent_scores.cuh                    1
//   gradients   algo/capture_reduction.cuh                 2
//               backward_captures_naive.cu                 1
//               backward_prob.cu                           1
//               tangents_captures_naive.cu                 1
//               backward_diagonals.cu                      1
//               low_rank_gradients.cu                      2
//   sink_gradients  backward_sinks.cu                      1
//   bounds      algo/apply_mod.cuh                         1
//               algo/transposed_scores.cuh                 1
//               algo/kv_walk.cuh                           1
//               algo/q_walk.cuh                            1
//               algo/turns.cuh                             1
//               algo/decode_work.cuh                       1
//   variant     algo/sequence.cuh                          1
//   visit_variant algo/sequence.cuh                        1
//   kv_length   algo/sequence.cuh                          1
//               block_mask.cu                              1
//   q_offset    algo/sequence.cuh                          1
//   q_length    algo/sequence.cuh                          1
//               block_mask.cu                              1
//   q_start     algo/sequence.cuh                          1
//   kv_start    algo/sequence.cuh                          1
//   box         algo/grid_box.cuh                          1
//   q_factor    low_rank.cu                                1
//   kv_factor   low_rank.cu                                1
//   prob_gradient   algo/pairs.cuh                         1
//               algo/output_gradients.cuh              1
//   score_gradient  algo/pairs.cuh                         1
//   output_gradients  backward_captures_naive.cu           1
//               backward_prob.cu                           1
//   prob_gradients  backward_prob.cu                       1
//   reductions  algo/reductions.cuh                        1
//
//   head   called once per (b, h) that a CTA works on, 0 <= b < B and 0 <= h < H. Also computes the mod's launch
//          values.
//   row    called once per q row and lane that holds it. q_float is (float)q_idx, less the origin if kAnyOrigin. If
//          kAnyOrigin, kernels compute it from a base and compile-time offsets, and it may lie outside for rows that do
//          not exist.
//          Lengths are at most 2^24. A Row holds no more than the other hooks read, so an array of them costs only what
//          the mod needs.
//   col    called once per kv column. kv_base + kv_offset is (float)kv_idx, less the origin if kAnyOrigin. The offset
//          is known at compile time, so that slope * kv_idx is one multiply-add of a product computed once per tile. A
//          kernel may call it twice for a column, before score and before mask: the compiler removes what either does
//          not use, loads included. For columns past the end kv_idx is the last one, and the floats may still be those
//          of the column itself. Without columns (kv_len 0) a kernel may evaluate column 0 and drop the result: ModArgs
//          then say KV_LEN 1.
//   score  in and out: natural-log units, fp32, after the softmax scale, before log2(e). Called for every element of a
//          live block, masked or not; the results of dead elements are ignored.
//   d_score  returns grad times the derivative of score_mod by its score. `score` is score_mod's argument: before
//          factors(). grad and result are gradients by natural-log units. Masked elements may return anything: the
//          kernel puts 0 there.
//   mask   true: the element lives. Called after score; never for blocks classed full or empty.
//   judge  returns what mask() is in a block of elements: their rows' values, columns' values and coordinates lie in
//          the given ranges. Both bounds of these are values of the block.
//   value  returns grad times the derivative of score_mod by what the place reads, in one round. `score` and grad are
//          as in d_score(), and dead elements get 0 from the kernel as there. For low_rank_gradients.cu, of the factor
//          of a row (reach Row) or of a column, whose gradient is grad.
//          A Reduction's value() returns what is reduced; `score` is that of score() for a live element, prob its
//          weight. At a place in outputs it returns the gradient itself, for the score() and the weight of a live
//          score.
//   prob_gradient, score_gradient  return what outputs of the mod give to the weight prob of a live element, and to its
//          score, which is that of score().
//   offset  returns the element that the place reads, in a dense tensor of the capture's shape; inside it unless that
//          is empty. Arguments that kReach rules out are unused: reach Row accepts any Col and kv_idx. For Diagonal,
//          any element of attention represents all.
//   row_shift   returns the term added to all scores of the row: it changes lse and row max, nothing else.
//   sink   returns the logit of a further term of the row's denominator, in units of scores; -inf: none. Called when
//   the
//          row is complete, so that the main loop keeps nothing for it.
//   bounds takes the rows [q_begin, q_end), at least one.
//   box    returns the keys that a query may see: mask() is false for all others. For tokens on their grids.
//   variant     returns which variant the head has; -1 if no score of it lives.
//   kv_length   returns the batch entry's rows of K and V, 0 to KV_LEN. Columns behind them do not live, and their
//          contents reach no result.
//   q_offset    returns the q_idx of row 0 of q, which may be negative. With it, all hooks take a query's position as
//          q_idx, and q_float counts positions. Without it, the position is the row.
//   q_length    returns the batch entry's rows of Q, 0 to Q_LEN. The entry is sequence b of a ragged batch, whose rows
//          are those of the tensors from q_start() and kv_start() on. Row 0 of q is its first one, kv_idx 0 its first
//          column.
//   q_factor, kv_factor   return the factors of a round of a low-rank term: the score that score() gets includes the
//   sum
//          of their products. Only for kernels of columns of q and k, whose mod has no score. The first is not asked
//          for kv_idx, the second not for q_idx.
//   b, h, q_idx, kv_idx: h is the query head. The kernel first clamps the row of q to [0, q_len) and kv_idx to [0,
//          kv_len), so that gathers stay inside; results for clamped elements are unused.
//   All are pure functions of their arguments and of the captured tensors, which no kernel writes meanwhile.
//
// Indices of gathers are clamped into the tensor unless they are proved to lie inside, given the ranges above. A tensor
// without elements is passed as the address of 8 bytes of zeros with strides of 0, so every gather from it reads 0.
//
// A generated file carries `#line N "mod.py"` so that compiler messages and profilers point at the mod's text.
#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define ATTNC_DEVICE __device__ __forceinline__
#define ATTNC_INLINED __attribute__((always_inline)) // of a lambda, whose variants make it long
#define ATTNC_CALLED __device__ __noinline__         // long functions: one copy per kernel instead of one per score
#define ATTNC_TABLE __device__ const
#define ATTNC_PRAGMA(text) _Pragma(#text)
#define ATTNC_UNROLL(rounds) ATTNC_PRAGMA(unroll rounds)
#else
#define ATTNC_DEVICE inline // the tests compile the generated code for the host
#define ATTNC_INLINED
#define ATTNC_CALLED inline
#define ATTNC_TABLE const
#define ATTNC_UNROLL(rounds)
#endif

namespace attnc {

/// The coordinates of a score: batch, query head, query row, key column.
struct Coord {
  int b, h, q_idx, kv_idx;
};

/// A token on or off a grid: its position, and its coordinates, slowest axis first. For an off-grid token, these are
/// floor quotients and remainders of its distance from the first token on the grid.
struct Token {
  int index, at[3];
  bool on_grid;
};

/// What mask() is if not both tokens are on their grids: false, true, or to be called.
enum class Beside { None, All, Asks };

/// Keys whose coordinate lies in [begin, end) along each axis, on their grid or beyond it.
struct KeyBox {
  int begin[3], end[3];
};
constexpr int kMaxExtent = 1 << 24; // ir::kMaxExtent

/// A head's factors of its scores; `out` is positive.
struct ScoreFactors {
  float in, out, slope;
};

/// Columns of a range of rows: none outside [begin, end) lives in any row, and all of [full_begin, full_end) live in
/// every row. Kernels clip them to [0, kv_len).
struct TileBounds {
  int begin, full_begin, full_end, end;
};

/// Which elements of attention of one head and batch entry share the element of a capture that they read: all; those of
/// a row, of a column, or of one q_idx - kv_idx; or unknown.
enum class GradientReach { Head, Row, Column, Diagonal, Element };

// The forms of Mod::Exponents (algo/exponents.cuh, algo/tanh_exponents.cuh).
template <bool CallsScore, bool IsLinear> struct AffineExponents;
using ProductExponents = AffineExponents<false, false>; // no score_mod: s
using LinearExponents = AffineExponents<false, true>;   // s + slope kv_float
using ScoreExponents = AffineExponents<true, false>;    // out score(in s)
template <bool Accurate> struct TanhExponents;          // out tanh(in s), or with the hardware's approximate tanh

} // namespace attnc
