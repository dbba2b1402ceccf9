/// Mods: text in, checked program out (mod.h).
#pragma once

#include "attnc/c/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/// A parsed, traced and simplified mod. It is immutable.
typedef struct attnc_mod attnc_mod;

/// Length of a text that ends with 0.
#define ATTNC_WHOLE ((size_t)-1)

/// An override of a constant of the mod. The value is the text of a literal (ParseOptions::defines).
typedef struct attnc_define {
  const char* name;  ///< Name of the constant.
  const char* value; ///< Text of a literal.
} attnc_define;

/// How a mod's text is read (ParseOptions).
typedef struct attnc_parse_options {
  size_t struct_size;          ///< sizeof(attnc_parse_options).
  const char* name;            ///< Name of the text in messages. Default: "<mod>".
  const attnc_define* defines; ///< Overrides of the mod's constants.
  size_t define_count;         ///< Number of defines.
} attnc_parse_options;

/// Parses a mod of `length` bytes: a Python-subset text, or a bare expression (Mod::parse). `options` may be NULL.
ATTNC_API attnc_status attnc_mod_parse(const char* text, size_t length, const attnc_parse_options* options,
                                       attnc_mod** mod);
/// Parses IR text of `length` bytes, as attnc_mod_ir() returns it. `name` is its name in messages; NULL: "<ir>".
ATTNC_API attnc_status attnc_mod_parse_ir(const char* text, size_t length, const char* name, attnc_mod** mod);
/// Reads a mod from a file; a *.ir file as IR text (Mod::load). `options` may be NULL; their name is not read.
ATTNC_API attnc_status attnc_mod_load(const char* path, const attnc_parse_options* options, attnc_mod** mod);
/// Creates the mod that changes nothing.
ATTNC_API attnc_status attnc_mod_identity(attnc_mod** mod);
/// Creates the mod in which sequence b has mods[which[b]], of `count` mods (Mod::choice). `which` declares the capture
/// that says so: "which: i32[B]".
ATTNC_API attnc_status attnc_mod_choice(const attnc_mod* const* mods, size_t count, const char* which,
                                        attnc_mod** choice);
/// Creates a mod with `count` extents and scalars folded as constants (Mod::pinned).
ATTNC_API attnc_status attnc_mod_pinned(const attnc_mod* mod, const attnc_pin* pins, size_t count, attnc_mod** pinned);
/// Destroys a mod. Kernels and preparations made from it live on.
ATTNC_API void attnc_mod_destroy(attnc_mod* mod);

/// Facts about a mod. Strings live as long as the mod.
typedef struct attnc_mod_info {
  size_t struct_size;     ///< sizeof(attnc_mod_info).
  const char* name;       ///< Name of the mod's text.
  const char* hash;       ///< SHA-256 of the canonical IR, in hex (Mod::hash).
  size_t capture_count;   ///< Number of captures.
  int32_t has_score_mod;  ///< 0 or 1: whether the mod changes scores.
  int32_t has_mask_mod;   ///< 0 or 1: whether the mod masks scores by a mask_mod.
  size_t warning_count;   ///< Number of warnings.
  int32_t has_prob_mod;   ///< 0 or 1: whether a prob_mod changes the weights that multiply v.
  int32_t has_sink_mod;   ///< 0 or 1: whether the mod adds a term to the denominators of rows.
  int64_t has_weight_mod; ///< 0 or 1: whether the mod computes weights by a weight_mod, in place of the softmax.
  size_t reduction_count; ///< Number of outputs that the mod declares.
  int64_t walks_twice;    ///< 0 or 1: whether prob_mod takes forward passes of two walks (Mod::walksTwice).
} attnc_mod_info;
/// Fills facts about a mod.
ATTNC_API attnc_status attnc_mod_get_info(const attnc_mod* mod, attnc_mod_info* info);

/// A capture that a mod needs at launch. Strings live as long as the mod.
typedef struct attnc_capture_info {
  size_t struct_size;                 ///< sizeof(attnc_capture_info).
  const char* name;                   ///< Name of the capture.
  attnc_capture_kind kind;            ///< Kind of its value.
  attnc_dtype dtype;                  ///< For a tensor: its dtype; else ATTNC_DTYPE_DEFAULT.
  const char* extent[ATTNC_MAX_RANK]; ///< For a tensor: its extents, each "4", "H", "KV_LEN", or a free name.
  int32_t rank;                       ///< For a tensor: its number of axes.
  int32_t choices;                    ///< Number of mods that its elements choose between (CaptureInfo); 0: none.
  int64_t is_sum;                     ///< For an output: 1 for a sum, which has a gradient; 0 for a maximum.
} attnc_capture_info;
/// Fills one capture. Tensors come first. Errors: an index out of range.
ATTNC_API attnc_status attnc_mod_get_capture(const attnc_mod* mod, size_t index, attnc_capture_info* info);

/// Fills one output that the mod declares: an f32 tensor (attnc_outputs::reductions). Errors: an index out of range.
ATTNC_API attnc_status attnc_mod_get_reduction(const attnc_mod* mod, size_t index, attnc_capture_info* info);

/// Fills one warning about legal text that is probably not meant, in text order. Strings live as long as the mod.
/// Errors: an index out of range.
ATTNC_API attnc_status attnc_mod_get_warning(const attnc_mod* mod, size_t index, attnc_diagnostic* warning);

/// Returns the syntax tree as text, owned by the mod; "" for a mod that was read as IR. NULL on a failure.
ATTNC_API const char* attnc_mod_ast(const attnc_mod* mod);
/// Returns the IR after all passes as text, with coordinates on declared grids as operations. It is owned by the mod;
/// attnc_mod_parse_ir() reads it back. NULL on a failure.
ATTNC_API const char* attnc_mod_ir(const attnc_mod* mod);

#ifdef __cplusplus
}
#endif
