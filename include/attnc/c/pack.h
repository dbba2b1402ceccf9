/// Packs: kernels compiled ahead of time, in one file (compiler.h: PackItem, Compiler::pack, Compiler::addPack).
#pragma once

#include "attnc/c/prepared.h"

#ifdef __cplusplus
extern "C" {
#endif

/// A kernel to be packed.
typedef struct attnc_pack_item {
  size_t struct_size;
  const attnc_mod* mod;
  const attnc_kernel_options* options; ///< with an arch
} attnc_pack_item;

/// The bytes of a pack.
typedef struct attnc_pack attnc_pack;
/// Compiles all stages of these kernels, or takes them from the cache.
ATTNC_API attnc_status attnc_pack_create(const attnc_compiler* compiler, const attnc_pack_item* items, size_t count,
                                         attnc_pack** pack);
ATTNC_API void attnc_pack_destroy(attnc_pack* pack);
/// To be written as they are, under any name. They live as long as the attnc_pack. NULL for NULL, with 0 bytes.
ATTNC_API const void* attnc_pack_data(const attnc_pack* pack, size_t* bytes);

/// Opens a pack, which is searched after those that the compiler has.
ATTNC_API attnc_status attnc_compiler_add_pack(attnc_compiler* compiler, const char* path);

/// All kernels that preparing compiles (Preparation::kernels). Number of them; 0 for NULL.
ATTNC_API size_t attnc_preparation_kernel_count(const attnc_preparation* preparation);
/// The options of one. Strings and arrays live as long as the preparation.
ATTNC_API attnc_status attnc_preparation_get_kernel_options(const attnc_preparation* preparation, size_t index,
                                                            attnc_kernel_options* options);

#ifdef __cplusplus
}
#endif
