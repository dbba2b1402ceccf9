/// Mods: text in, checked program out (mod.h).
#pragma once

#include "attnc/c/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/// A parsed, traced and simplified mod. Immutable.
typedef struct attnc_mod attnc_mod;

/// The length of a text that ends with 0.
#define ATTNC_WHOLE ((size_t)-1)

/// An override of a constant of the mod. The value is the text of a literal.
typedef struct attnc_define {
  const char* name;
  const char* value;
} attnc_define;

typedef struct attnc_parse_options {
  size_t struct_size;
  const char* name; ///< of the text, in messages; NULL: "<mod>"
  const attnc_define* defines;
  size_t define_count;
} attnc_parse_options;

/// Reads a mod of `length` bytes: a Python-subset text, or a bare expression. `options` may be NULL.
ATTNC_API attnc_status attnc_mod_parse(const char* text, size_t length, const attnc_parse_options* options,
                                       attnc_mod** mod);
/// Reads IR text, as attnc_mod_ir() gives it. `name` of the text, in messages; NULL: "<ir>".
ATTNC_API attnc_status attnc_mod_parse_ir(const char* text, size_t length, const char* name, attnc_mod** mod);
/// Reads a file; one named *.ir as IR text. `options` may be NULL; their name is not read.
ATTNC_API attnc_status attnc_mod_load(const char* path, const attnc_parse_options* options, attnc_mod** mod);
/// The mod that changes nothing.
ATTNC_API attnc_status attnc_mod_identity(attnc_mod** mod);
/// Another mod, with extents and scalars folded (Mod::pinned).
ATTNC_API attnc_status attnc_mod_pinned(const attnc_mod* mod, const attnc_pin* pins, size_t count, attnc_mod** pinned);
ATTNC_API void attnc_mod_destroy(attnc_mod* mod);

typedef struct attnc_mod_info {
  size_t struct_size;
  const char* name;
  const char* hash; ///< SHA-256 (hex) of the canonical IR
  size_t capture_count;
  int32_t has_score_mod; ///< 0 or 1
  int32_t has_mask_mod;  ///< 0 or 1
  size_t warning_count;
} attnc_mod_info;
ATTNC_API attnc_status attnc_mod_get_info(const attnc_mod* mod, attnc_mod_info* info);

/// What a mod needs at launch.
typedef struct attnc_capture_info {
  size_t struct_size;
  const char* name;
  attnc_capture_kind kind;
  attnc_dtype dtype;                  ///< of a tensor; else ATTNC_DTYPE_DEFAULT
  const char* extent[ATTNC_MAX_RANK]; ///< of a tensor: "4", "H", "KV_LEN", or a free name
  int32_t rank;                       ///< of a tensor
  int32_t reserved;
} attnc_capture_info;
/// Tensors come first. Errors: an index that there is not.
ATTNC_API attnc_status attnc_mod_get_capture(const attnc_mod* mod, size_t index, attnc_capture_info* info);

/// What the text says that is legal, and probably not meant, in order of place. Strings live as long as the mod.
/// Errors: an index that there is not.
ATTNC_API attnc_status attnc_mod_get_warning(const attnc_mod* mod, size_t index, attnc_diagnostic* warning);

/// The stages as text. ast: as parsed, "" for a mod that was read as IR. ir: after all passes; attnc_mod_parse_ir()
/// reads it back. NULL on a failure.
ATTNC_API const char* attnc_mod_ast(const attnc_mod* mod);
ATTNC_API const char* attnc_mod_ir(const attnc_mod* mod);

#ifdef __cplusplus
}
#endif
