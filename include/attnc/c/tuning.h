/// Tuning: which tile of a kernel is the fastest, measured once and kept (tuning.h; Compiler::tune, tuneTraining).
#pragma once

#include "attnc/c/prepared.h"

#ifdef __cplusplus
extern "C" {
#endif

/// What tuning found.
typedef struct attnc_tuning attnc_tuning;

/// Measures, and keeps the choice, which attnc_prepare() takes from then on. All tensors are those of launches, and
/// what is written is overwritten. `options` may be NULL, and has no tile.
ATTNC_API attnc_status attnc_tune(const attnc_compiler* compiler, const attnc_mod* mod, const attnc_operands* operands,
                                  const attnc_outputs* outputs, const attnc_prepare_options* options,
                                  attnc_stream stream, attnc_tuning** tuning);
/// The same of both passes, for attnc_prepare_training(). A pass whose tile `options` have keeps it, and is not
/// measured.
ATTNC_API attnc_status attnc_tune_training(const attnc_compiler* compiler, const attnc_mod* mod,
                                           const attnc_backward_operands* operands, const attnc_outputs* outputs,
                                           const attnc_backward_outputs* gradients,
                                           const attnc_prepare_options* options, attnc_stream stream,
                                           attnc_tuning** tuning);
ATTNC_API void attnc_tuning_destroy(attnc_tuning* tuning);

/// With the tiles that won; it lives as long as `tuning` and is not destroyed. NULL on a failure.
ATTNC_API const attnc_preparation* attnc_tuning_get_preparation(const attnc_tuning* tuning);

/// A tile that was tried.
typedef struct attnc_tuned_tile {
  size_t struct_size;
  const char* tile;        ///< as attnc_prepare_options has it
  const char* passed_over; ///< why it is not taken, though it may be faster; "": nothing is wrong with it
  double ms;               ///< of a launch; 0: it was not launched
  int32_t is_winner;       ///< 0 or 1
  int32_t reserved;
} attnc_tuned_tile;

/// How many tiles of a pass were tried, the model's first; 0 for NULL, and for a pass that was not measured.
ATTNC_API size_t attnc_tuning_tile_count(const attnc_tuning* tuning, attnc_pass pass);
/// One of them. Strings live as long as `tuning`.
ATTNC_API attnc_status attnc_tuning_get_tile(const attnc_tuning* tuning, attnc_pass pass, size_t index,
                                             attnc_tuned_tile* tile);

#ifdef __cplusplus
}
#endif
