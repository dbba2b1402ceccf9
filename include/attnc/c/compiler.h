/// The compiler: mods in, kernels out (compiler.h, kernel.h).
#pragma once

#include "attnc/c/operands.h"

#ifdef __cplusplus
extern "C" {
#endif

/// What the compiler says beside its results.
typedef int32_t attnc_log_level;
enum {
  ATTNC_LOG_EVENT = 0,   ///< what the compiler and its caches did
  ATTNC_LOG_WARNING = 1, ///< something around attnc is not as it should be, and no call fails for it
};

/// Takes one line without its end. Is called by the threads that call the compiler, perhaps several at once; it must
/// not throw, nor call the compiler.
typedef void (*attnc_log_callback)(void* user, attnc_log_level level, const char* line);

typedef int32_t attnc_cache_mode;
enum {
  ATTNC_CACHE_DEFAULT = 0, ///< ATTNC_CACHE_MODE of the environment, else READ_WRITE
  ATTNC_CACHE_READ_WRITE = 1,
  ATTNC_CACHE_READ_ONLY = 2,
  ATTNC_CACHE_OFF = 3, ///< the disk is not touched
};

typedef struct attnc_compiler_options {
  size_t struct_size;
  const char* cache_directory; ///< NULL: as the environment says
  const char* nvrtc_path;      ///< NULL: as the environment says, else the usual places
  attnc_log_callback log;      ///< NULL: nobody is told
  void* log_user;              ///< handed to `log`
  attnc_cache_mode cache_mode;
  int32_t no_compile;       ///< 0 or 1: a kernel that is in no pack and in no cache is an error
  const char* const* packs; ///< paths of packs (pack.h), searched before those of the environment
  size_t pack_count;
  int64_t max_work; ///< instructions of a mod that are compiled at most; 0: as the environment says, else 16000
} attnc_compiler_options;

/// Turns mods into kernels. Make one per process and keep it: it holds the in-memory cache, which only grows.
typedef struct attnc_compiler attnc_compiler;

/// `options` may be NULL.
ATTNC_API attnc_status attnc_compiler_create(const attnc_compiler_options* options, attnc_compiler** compiler);
/// Kernels and preparations that it made live on. No log callback comes after this.
ATTNC_API void attnc_compiler_destroy(attnc_compiler* compiler);

/// What is static in a kernel (KernelOptions).
typedef struct attnc_kernel_options {
  size_t struct_size;
  /// "sm_80", "sm_90a", ...; NULL or "": that of the current CUDA context's device. "sm_90" means "sm_90a";
  /// "compute_90" is that GPU with the kernels that all GPUs have.
  const char* arch;
  const attnc_pin* pins;
  size_t pin_count;
  const char* const* gradients; ///< backward: the captures whose gradients launches compute
  size_t gradient_count;
  attnc_kernel_kind kind;
  attnc_family family;
  attnc_dtype dtype;     ///< of q, k, v, out; 0: BF16. Of k and v not with fp8_kv
  int32_t head_dim;      ///< of q and k; 0: 128
  int32_t head_dim_v;    ///< of v and out; 0: head_dim
  int32_t block_sparse;  ///< 0 or 1, as all below but for blocks, offsets, rows and pages
  int32_t mask_q_block;  ///< with block_sparse: block size of the masks to come; 0: 128
  int32_t mask_kv_block; ///< the same
  int32_t column_lists;  ///< block mask: lists by column, too
  int32_t row_max;
  int32_t lengths;
  attnc_query_offsets offsets;
  int32_t tf32;
  int32_t deterministic; ///< backward
  int32_t packed_rows;   ///< decode: rows of a tile; 0: 16
  int32_t fp8_kv;        ///< decode: k and v are E4M3
  int32_t page_size;     ///< k and v are pools of pages of so many rows; 0: they are not
  int32_t appends;       ///< launches are given new_k and new_v
  int32_t ragged;        ///< launches are given cu_seqlens_q
  int32_t no_boxes;      ///< forward and backward, with ATTNC_FAMILY_AUTO: never walk boxes of a grid
  const char* tile;      ///< as the family spells it (Compiler::tiles), "192x128x12"; NULL or "": the catalogue's
  int32_t mask_by_boxes; ///< forward with block_sparse, block mask: blocks are boxes of tokens, those of the tile
  int32_t lists_of_whole_mod; ///< with block_sparse: masks to come are such (attnc_block_mask_view::of_whole_mod)
} attnc_kernel_options;

/// Whether launches of this kernel gain from a block mask: 0 or 1.
ATTNC_API attnc_status attnc_wants_block_mask(const attnc_compiler* compiler, const attnc_mod* mod,
                                              const attnc_kernel_options* options, int32_t* wants);

/// What Compiler::forLayout() chooses: the options for operands laid out like these are those asked for, with this
/// family.
typedef struct attnc_layout_choice {
  size_t struct_size;
  attnc_family family;
  int32_t reserved;
  char passed_over[256]; ///< the tensor whose layout ruled a family out, and what of it; "" where none did
} attnc_layout_choice;
ATTNC_API attnc_status attnc_for_layout(const attnc_compiler* compiler, const attnc_mod* mod,
                                        const attnc_kernel_options* options, const attnc_operands* operands,
                                        const attnc_outputs* outputs, attnc_layout_choice* choice);

/// The text of a kernel, stage by stage.
typedef struct attnc_source attnc_source;
ATTNC_API attnc_status attnc_source_create(const attnc_compiler* compiler, const attnc_mod* mod,
                                           const attnc_kernel_options* options, attnc_source** source);
ATTNC_API void attnc_source_destroy(attnc_source* source);
/// Number of stages; 0 for NULL.
ATTNC_API size_t attnc_source_stage_count(const attnc_source* source);

/// One stage (KernelSource). Strings and arrays live as long as the attnc_source.
typedef struct attnc_source_stage {
  size_t struct_size;
  const char* entry;               ///< name of the __global__ function
  const char* template_name;       ///< "forward_sm80.cu"
  const char* text;                ///< the template
  const char* flattened;           ///< one self-contained .cu
  const char* const* header_names; ///< header_count of them
  const char* const* header_texts;
  size_t header_count;
  const char* const* nvrtc_options; ///< beside the arch
  size_t nvrtc_option_count;
  const char* arch;
  int64_t dynamic_shared_bytes; ///< of a CTA
  attnc_family family;
  int32_t threads; ///< of a CTA
  int32_t tile_rows, tile_columns, warps, q_stages, kv_stages;
  int32_t reserved;
} attnc_source_stage;
ATTNC_API attnc_status attnc_source_get_stage(const attnc_source* source, size_t index, attnc_source_stage* stage);

/// The machine code of a kernel, stage by stage, not yet on a device.
typedef struct attnc_compiled attnc_compiled;
/// Compiles ahead. Needs no GPU if an arch is named.
ATTNC_API attnc_status attnc_compile(const attnc_compiler* compiler, const attnc_mod* mod,
                                     const attnc_kernel_options* options, attnc_compiled** compiled);
ATTNC_API void attnc_compiled_destroy(attnc_compiled* compiled);
/// Number of stages; 0 for NULL.
ATTNC_API size_t attnc_compiled_stage_count(const attnc_compiled* compiled);

/// One stage (CompiledKernel). Strings and arrays live as long as the attnc_compiled.
typedef struct attnc_compiled_stage {
  size_t struct_size;
  const char* entry;
  const char* template_name;
  const void* cubin;
  size_t cubin_bytes;
  const char* ptx;
  const char* log;               ///< of NVRTC and ptxas
  const char* const* advisories; ///< of ptxas: code that is silently slow
  size_t advisory_count;
  int64_t static_shared_bytes;  ///< of a CTA
  int64_t dynamic_shared_bytes; ///< of a CTA: what a launch asks for
  double compile_ms;            ///< 0 when it came from the cache
  int32_t registers;            ///< of a thread
  int32_t spill_bytes;
  int32_t from_disk; ///< 0 or 1
  int32_t reserved;
} attnc_compiled_stage;
ATTNC_API attnc_status attnc_compiled_get_stage(const attnc_compiled* compiled, size_t index,
                                                attnc_compiled_stage* stage);

/// A family of kernels. Strings live for ever.
typedef struct attnc_family_info {
  size_t struct_size;
  const char* arch;    ///< one that it runs on: "sm_80"
  const char* layouts; ///< of tensors that it takes, for people
  attnc_family family;
  int32_t takes_any_layout; ///< 0 or 1
} attnc_family_info;
/// Of two that serve the same operands, the faster one comes first. A family that is listed twice has other kernels for
/// the architecture of its second entry.
ATTNC_API size_t attnc_family_count(attnc_pass pass);
ATTNC_API attnc_status attnc_get_family(attnc_pass pass, size_t index, attnc_family_info* info);

#ifdef __cplusplus
}
#endif
