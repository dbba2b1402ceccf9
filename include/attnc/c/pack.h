/// Packs: kernels compiled ahead of time, in one file (Compiler::pack, Compiler::addPack).
#pragma once

#include "attnc/c/compiler.h"

#ifdef __cplusplus
extern "C" {
#endif

/// The bytes of a pack.
typedef struct attnc_pack attnc_pack;
/// Creates a pack with all stages of these kernels, compiled or taken from the cache (Compiler::pack). With kernels of
/// e4m3, it has those that round to it.
ATTNC_API attnc_status attnc_pack_create(const attnc_compiler* compiler, const attnc_plan* const* plans, size_t count,
                                         attnc_pack** pack);
/// Destroys a pack and its bytes.
ATTNC_API void attnc_pack_destroy(attnc_pack* pack);
/// Returns the bytes of a pack, to be written unchanged to a file of any name; sets `*bytes` to their number. They live
/// as long as the pack. For NULL it returns NULL and 0 bytes.
ATTNC_API const void* attnc_pack_data(const attnc_pack* pack, size_t* bytes);

/// Opens a pack, to be searched after the compiler's other packs (Compiler::addPack).
ATTNC_API attnc_status attnc_compiler_add_pack(attnc_compiler* compiler, const char* path);

#ifdef __cplusplus
}
#endif
