/// The compiler: mods in, kernels out (compiler.h, kernel.h).
#pragma once

#include "attnc/c/operands.h"

#ifdef __cplusplus
extern "C" {
#endif

/// The level of a log line (LogLevel).
typedef int32_t attnc_log_level;
enum {
  ATTNC_LOG_EVENT = 0,   ///< An action of the compiler or its caches.
  ATTNC_LOG_WARNING = 1, ///< A problem of the environment that makes no call fail.
};

/// Receives one line, without its line end; `line` is valid only during the call. Threads that call the compiler call
/// it, possibly several at once. It must not throw or call the compiler.
typedef void (*attnc_log_callback)(void* user, attnc_log_level level, const char* line);

/// Use of the disk cache (CompilerOptions::CacheMode).
typedef int32_t attnc_cache_mode;
enum {
  ATTNC_CACHE_DEFAULT = 0,    ///< ATTNC_CACHE_MODE of the environment, else READ_WRITE.
  ATTNC_CACHE_READ_WRITE = 1, ///< Entries are read and written.
  ATTNC_CACHE_READ_ONLY = 2,  ///< Entries are read and none is written.
  ATTNC_CACHE_OFF = 3,        ///< The disk is not touched.
};

/// Options of a compiler (CompilerOptions).
typedef struct attnc_compiler_options {
  size_t struct_size;          ///< sizeof(attnc_compiler_options).
  const char* cache_directory; ///< Directory of the disk cache. Default: as the environment says.
  const char* nvrtc_path;      ///< Path of libnvrtc. Default: as the environment says, else the usual places.
  attnc_log_callback log;      ///< Receives log lines. May be NULL.
  void* log_user;              ///< First argument of `log`.
  attnc_cache_mode cache_mode; ///< Use of the disk cache.
  int32_t no_compile;          ///< 0 or 1: whether a kernel missing from packs and cache is an error.
  const char* const* packs;    ///< Paths of packs (pack.h), searched before those of the environment.
  size_t pack_count;           ///< Number of packs.
  int64_t max_work; ///< Most instructions of a mod that are compiled. Default: as the environment says, else 16000.
} attnc_compiler_options;

/// Turns mods into kernels. Make one per process and keep it, since it holds the in-memory cache, which only grows.
typedef struct attnc_compiler attnc_compiler;

/// Creates a compiler. `options` may be NULL.
ATTNC_API attnc_status attnc_compiler_create(const attnc_compiler_options* options, attnc_compiler** compiler);
/// Destroys a compiler. Kernels and preparations that it made live on. The log callback is not called afterwards.
ATTNC_API void attnc_compiler_destroy(attnc_compiler* compiler);

/// Features of launches, each a bit (KernelOptions::features).
enum {
  ATTNC_FEATURE_LENGTHS = 1 << 0,        ///< Launches pass kv_lengths.
  ATTNC_FEATURE_APPENDS = 1 << 3,        ///< Launches pass new_k and new_v.
  ATTNC_FEATURE_RAGGED = 1 << 4,         ///< Launches pass cu_seqlens_q.
  ATTNC_FEATURE_FP8_KV = 1 << 5,         ///< Decode, and forward with FP8_Q: k and v are E4M3.
  ATTNC_FEATURE_ROW_MAX = 1 << 9,        ///< Launches may ask for the row maximum.
  ATTNC_FEATURE_DETERMINISTIC = 1 << 11, ///< Backward: equal launches give equal bits.
  ATTNC_FEATURE_FP8_Q = 1 << 12,         ///< Forward, with FP8_KV: q is E4M3.
  ATTNC_FEATURE_V_IN_K = 1 << 13,        ///< Forward, decode: v is k's first columns.
  ATTNC_FEATURE_ROW_SCALES = 1 << 14,    ///< Forward, with FP8_Q: scales may be of rows.
  ATTNC_FEATURE_TANGENTS = 1 << 15,      ///< Backward: derivatives along directions (BackwardOperands::qTangent).
  ATTNC_FEATURE_REDUCTIONS = 1 << 16,    ///< Forward, decode: launches may ask for outputs of the mod. Backward:
                                         ///< they give gradients of its sums (attnc_backward_operands).
};

/// What is static in a kernel (KernelOptions).
typedef struct attnc_kernel_options {
  size_t struct_size; ///< sizeof(attnc_kernel_options).
  /// GPU architecture: "sm_80", "sm_90a", ... "sm_90" means "sm_90a". "compute_90" means that GPU with the kernels that
  /// run on all GPUs. NULL or "": the device of the current CUDA context.
  const char* arch;
  const attnc_pin* pins;        ///< Extents and scalars of the mod to fold as constants.
  size_t pin_count;             ///< Number of pins.
  const char* const* gradients; ///< Backward: names of the captures whose gradients launches compute.
  size_t gradient_count;        ///< Number of names in gradients.
  const char* tile;             ///< Tile, as its family spells it ("192x128x12"). NULL or "": the catalogue's.
  attnc_kernel_kind kind;       ///< What the kernel computes. Default: FORWARD.
  attnc_family family;          ///< Family of the kernel. Default: AUTO.
  attnc_dtype dtype;     ///< Dtype of q, k, v and out; with FP8_KV, of q and out; with FP8_Q, of out. Default: BF16.
  int32_t head_dim;      ///< Head dim of q and k. Default: 128.
  int32_t head_dim_v;    ///< Head dim of v and out. Default: head_dim.
  uint32_t features;     ///< Sum of `ATTNC_FEATURE_*`: what launches have beyond q, k, v and out.
  int32_t block_sparse;  ///< 0 or 1: whether launches pass a block mask.
  int32_t mask_q_block;  ///< With block_sparse: q rows of a block of the masks. Default: 128.
  int32_t mask_kv_block; ///< With block_sparse: kv columns of a block of the masks. Default: 128.
  int32_t mask_by_boxes; ///< Forward with block_sparse, block mask, 0 or 1: whether blocks are the tile's boxes.
  int32_t lists_of_whole_mod;  ///< With block_sparse, 0 or 1: whether masks have of_whole_mod set.
  int32_t column_lists;        ///< Block mask, 0 or 1: whether launches also fill lists by column.
  attnc_query_offsets offsets; ///< Where the queries of each sequence stand. Default: NONE.
  int32_t packed_rows;         ///< Decode: rows of a tile. Default: 16.
  int32_t page_size;           ///< Rows of a page, if k and v are pools of pages. 0: not paged.
  int32_t no_boxes;            ///< Forward, backward, 0 or 1: whether ATTNC_FAMILY_AUTO avoids kernels that walk boxes.
#define ATTNC_CHOICE(type, member, c_type, name, limit, flag, text) c_type name;
#include "attnc/choices.def"
} attnc_kernel_options;

/// A kernel of a mod as it was chosen, before it is compiled (Plan). It is immutable, and any thread may use it.
typedef struct attnc_plan attnc_plan;
/// Chooses the kernel for these options (Compiler::plan). Needs no GPU if an arch is given.
ATTNC_API attnc_status attnc_plan_create(const attnc_compiler* compiler, const attnc_mod* mod,
                                         const attnc_kernel_options* options, attnc_plan** plan);
/// Destroys a plan, and with it the strings and arrays of what it filled. Plans of a preparation live as long as it.
ATTNC_API void attnc_plan_destroy(attnc_plan* plan);
/// Fills the options of the kernel, complete, with the chosen family and arch.
ATTNC_API attnc_status attnc_plan_get_options(const attnc_plan* plan, attnc_kernel_options* options);
/// Facts about a plan. Strings are empty where there is nothing to say.
typedef struct attnc_plan_info {
  size_t struct_size;            ///< sizeof(attnc_plan_info).
  const char* passed_over;       ///< Why this GPU's preferred family was rejected (Plan::passedOver).
  const char* tile;              ///< The tile, spelled as in attnc_kernel_options::tile.
  const char* tuned_by;          ///< File and date of the stored choice of the tile.
  const char* low_rank;          ///< How a low-rank term of the score is computed (Plan::lowRank).
  attnc_kv_loop kv_loop;         ///< How the kernel finds its tiles.
  int32_t gains_from_block_mask; ///< 1 if launches gain from a block mask, else 0 (Plan::gainsFromBlockMask).
} attnc_plan_info;
/// Fills facts about a plan.
ATTNC_API attnc_status attnc_plan_get_info(const attnc_plan* plan, attnc_plan_info* info);

/// The source of a kernel, stage by stage.
typedef struct attnc_source attnc_source;
/// Generates the source of all stages (Plan::sources).
ATTNC_API attnc_status attnc_source_create(const attnc_plan* plan, attnc_source** source);
/// Destroys a source, and with it the strings and arrays of its stages.
ATTNC_API void attnc_source_destroy(attnc_source* source);
/// Returns the number of stages; 0 for NULL.
ATTNC_API size_t attnc_source_stage_count(const attnc_source* source);

/// One stage of a source (KernelSource). Strings and arrays live as long as the attnc_source.
typedef struct attnc_source_stage {
  size_t struct_size;               ///< sizeof(attnc_source_stage).
  const char* entry;                ///< Name of the __global__ function.
  const char* template_name;        ///< File name of the template, such as "forward_sm80.cu".
  const char* text;                 ///< Text of the template.
  const char* flattened;            ///< One self-contained .cu.
  const char* const* header_names;  ///< Names of header_count headers.
  const char* const* header_texts;  ///< Texts of header_count headers.
  size_t header_count;              ///< Number of headers.
  const char* const* nvrtc_options; ///< Options of NVRTC, without the arch.
  size_t nvrtc_option_count;        ///< Number of options.
  const char* arch;                 ///< GPU architecture, such as "sm_90a".
  int64_t dynamic_shared_bytes;     ///< Bytes of dynamic shared memory of a CTA.
  attnc_family family;              ///< Family of the kernel.
  int32_t threads;                  ///< Threads of a CTA.
  /// Tile of a CTA: q rows, kv columns, and the warps that compute it. The stages are how many tiles of Q, and of K and
  /// V, shared memory holds at once. 0 if it does not apply.
  int32_t tile_rows, tile_columns, warps, q_stages, kv_stages;
  int32_t reserved; ///< 0.
} attnc_source_stage;
/// Fills one stage of a source. Errors: an index out of range.
ATTNC_API attnc_status attnc_source_get_stage(const attnc_source* source, size_t index, attnc_source_stage* stage);

/// The machine code of a kernel, stage by stage, not yet loaded on a device.
typedef struct attnc_compiled attnc_compiled;
/// Compiles all stages, or takes them from a cache. Needs no GPU (Compiler::compile).
ATTNC_API attnc_status attnc_compile(const attnc_compiler* compiler, const attnc_plan* plan, attnc_compiled** compiled);
/// Destroys machine code, and with it the strings and arrays of its stages.
ATTNC_API void attnc_compiled_destroy(attnc_compiled* compiled);
/// Returns the number of stages; 0 for NULL.
ATTNC_API size_t attnc_compiled_stage_count(const attnc_compiled* compiled);

/// One stage of machine code (CompiledKernel). Strings and arrays live as long as the attnc_compiled.
typedef struct attnc_compiled_stage {
  size_t struct_size;            ///< sizeof(attnc_compiled_stage).
  const char* entry;             ///< Name of the __global__ function.
  const char* template_name;     ///< File name of the template.
  const void* cubin;             ///< Bytes of the ELF image.
  size_t cubin_bytes;            ///< Number of these bytes.
  const char* ptx;               ///< PTX that the cubin was assembled from.
  const char* log;               ///< Output of NVRTC and ptxas.
  const char* const* advisories; ///< Lines of ptxas about silently slow code.
  size_t advisory_count;         ///< Number of advisories.
  int64_t static_shared_bytes;   ///< Bytes of static shared memory of a CTA.
  int64_t dynamic_shared_bytes;  ///< Bytes of dynamic shared memory of a CTA, as requested by a launch.
  double compile_ms;             ///< Milliseconds of compilation. 0 if a cache had the code.
  int32_t registers;             ///< Registers of a thread.
  int32_t spill_bytes;           ///< Bytes of spill stores and loads, summed over all functions.
  int32_t from_disk;             ///< 0 or 1: whether the code came from the disk cache.
  int32_t order;                 ///< Order of the template's statements (CompiledKernel::order).
} attnc_compiled_stage;
/// Fills one stage of machine code. Errors: an index out of range.
ATTNC_API attnc_status attnc_compiled_get_stage(const attnc_compiled* compiled, size_t index,
                                                attnc_compiled_stage* stage);

/// A family of kernels (FamilyInfo). Strings are static.
typedef struct attnc_family_info {
  size_t struct_size;       ///< sizeof(attnc_family_info).
  const char* arch;         ///< An arch that it runs on, such as "sm_80".
  const char* layouts;      ///< Layouts of tensors that it takes, as text for people.
  attnc_family family;      ///< The family.
  int32_t takes_any_layout; ///< 0 or 1: whether it takes every layout that launches allow.
  const char* takes;        ///< What launches may have beyond q, k, v and out, as text for people: "pages, row maxima".
} attnc_family_info;
/// Returns the number of families of a pass. If two serve the same operands, the faster one comes first. A family
/// listed twice has other kernels for the arch of its second entry.
ATTNC_API size_t attnc_family_count(attnc_pass pass);
/// Fills one family of a pass. Errors: an index out of range.
ATTNC_API attnc_status attnc_get_family(attnc_pass pass, size_t index, attnc_family_info* info);

#ifdef __cplusplus
}
#endif
