/// Tuning: finds a kernel's fastest tile by measurement and stores it (tuning.h; Compiler::tune, tuneTraining).
#pragma once

#include "attnc/c/prepared.h"

#ifdef __cplusplus
extern "C" {
#endif

/// The result of tuning (Tuning).
typedef struct attnc_tuning attnc_tuning;

/// Measures tiles and stores the fastest one, which attnc_prepare() then uses (Compiler::tune). All tensors are those
/// of launches; outputs are overwritten. `options` may be NULL, and must not name a tile.
ATTNC_API attnc_status attnc_tune(const attnc_compiler* compiler, const attnc_mod* mod, const attnc_operands* operands,
                                  const attnc_outputs* outputs, const attnc_prepare_options* options,
                                  attnc_stream stream, attnc_tuning** tuning);
/// Tunes both passes for attnc_prepare_training() (Compiler::tuneTraining). A pass with a tile in `options` keeps it
/// and is not measured.
ATTNC_API attnc_status attnc_tune_training(const attnc_compiler* compiler, const attnc_mod* mod,
                                           const attnc_backward_operands* operands, const attnc_outputs* outputs,
                                           const attnc_backward_outputs* gradients,
                                           const attnc_prepare_options* options, attnc_stream stream,
                                           attnc_tuning** tuning);
/// Destroys a result of tuning. Stored choices remain.
ATTNC_API void attnc_tuning_destroy(attnc_tuning* tuning);

/// Returns the preparation with the winners, which lives as long as `tuning`; do not destroy it. NULL on a failure.
ATTNC_API const attnc_preparation* attnc_tuning_get_preparation(const attnc_tuning* tuning);

/// A tile that was tried (TunedTile).
typedef struct attnc_tuned_tile {
  size_t struct_size;      ///< sizeof(attnc_tuned_tile).
  const char* tile;        ///< The tile, spelled as in attnc_prepare_options.
  const char* passed_over; ///< Why the tile was rejected, even if it may be faster. "" if it was not rejected.
  double ms;               ///< Milliseconds of a launch. 0: not launched.
  int32_t is_winner;       ///< 0 or 1.
  int32_t reserved;        ///< 0.
} attnc_tuned_tile;

/// Returns the number of tiles tried for a pass; the model's comes first. 0 for NULL, and for a pass that was not
/// measured.
ATTNC_API size_t attnc_tuning_tile_count(const attnc_tuning* tuning, attnc_pass pass);
/// Fills one tile. Strings live as long as `tuning`. Errors: an index out of range.
ATTNC_API attnc_status attnc_tuning_get_tile(const attnc_tuning* tuning, attnc_pass pass, size_t index,
                                             attnc_tuned_tile* tile);

#ifdef __cplusplus
}
#endif
