/// Basics of the C interface: status codes, the last error, enumerators.
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define ATTNC_API __attribute__((visibility("default")))
#else
#define ATTNC_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/// How a call ended. attnc_last_error() has the details of a failure.
typedef int32_t attnc_status;
enum {
  ATTNC_OK = 0,                ///< The call succeeded.
  ATTNC_ERROR_MOD = 1,         ///< The mod's text is wrong; attnc_last_diagnostic() says where.
  ATTNC_ERROR_ARGUMENT = 2,    ///< The call is wrong: a NULL, struct_size, enumerator or index.
  ATTNC_ERROR_ENVIRONMENT = 3, ///< Operands that do not fit, files, GPU, driver or NVRTC.
  ATTNC_ERROR_INTERNAL = 4,    ///< A bug in attnc.
  ATTNC_ERROR_MEMORY = 5,      ///< No host memory is left.
};

/// Returns the name of a status: "ok", "mod", ... NULL for an unknown status. The string is static.
ATTNC_API const char* attnc_status_name(attnc_status status);

/// Returns the version of the running library, as a number like ATTNC_VERSION_NUMBER of the headers (version.h).
ATTNC_API uint32_t attnc_version(void);
/// Returns the version of the running library, as a static string like ATTNC_VERSION of the headers (version.h).
ATTNC_API const char* attnc_version_text(void);

/// Returns the message of this thread's last failed call; "" if no call failed. Successful calls leave it unchanged.
/// Valid until the next failure in this thread. For ATTNC_ERROR_MOD it holds all diagnostics, as a compiler prints
/// them.
ATTNC_API const char* attnc_last_error(void);
/// Returns what to do about the last error; may be "". Valid as long as attnc_last_error().
ATTNC_API const char* attnc_last_remedy(void);

/// One finding about a mod's text. Lines and columns count from 1; columns count bytes. Strings from the last error are
/// valid as long as attnc_last_error().
typedef struct attnc_diagnostic {
  size_t struct_size;   ///< sizeof(attnc_diagnostic).
  const char* id;       ///< Stable name of the kind of finding, such as "undeclared-scalar".
  const char* file;     ///< Name of the text, as given by the caller.
  const char* message;  ///< What was observed and what was expected.
  const char* hint;     ///< How to repair it. May be "".
  const char* rendered; ///< All of the above with the source line and a caret.
  int32_t line;         ///< Line in the text, from 1.
  int32_t column;       ///< Column in bytes, from 1.
} attnc_diagnostic;

/// Returns the number of diagnostics of this thread's last failed call.
ATTNC_API size_t attnc_last_diagnostic_count(void);
/// Fills one diagnostic of this thread's last failed call. Errors: an index out of range.
ATTNC_API attnc_status attnc_last_diagnostic(size_t index, attnc_diagnostic* diagnostic);

/// Element types. Tensors q, k and v are F16, BF16 or F32. In forward kernels, they may also be E4M3; in
/// decode kernels, k and v may. Captured tensors have any type but E4M3.
typedef int32_t attnc_dtype;
enum {
  ATTNC_DTYPE_DEFAULT = 0, ///< Only in options: BF16.
  ATTNC_DTYPE_BOOL = 1,    ///< One byte: 0 is false, anything else is true.
  ATTNC_DTYPE_U8 = 2,      ///< Unsigned, 8 bits.
  ATTNC_DTYPE_I8 = 3,      ///< Signed, 8 bits.
  ATTNC_DTYPE_I16 = 4,     ///< Signed, 16 bits.
  ATTNC_DTYPE_I32 = 5,     ///< Signed, 32 bits.
  ATTNC_DTYPE_I64 = 6,     ///< Signed, 64 bits.
  ATTNC_DTYPE_F16 = 7,     ///< IEEE half precision.
  ATTNC_DTYPE_BF16 = 8,    ///< bfloat16: 8 bits of exponent, 7 of mantissa.
  ATTNC_DTYPE_F32 = 9,     ///< IEEE single precision.
  ATTNC_DTYPE_E4M3 = 10,   ///< fp8 with 4 bits of exponent, 3 of mantissa, and no infinities.
};
/// Returns the spelling in mods: "bool", "u8", "bf16", ... NULL for an unknown dtype. The string is static.
ATTNC_API const char* attnc_dtype_name(attnc_dtype dtype);
/// Returns the bytes of an element; 0 for an unknown dtype.
ATTNC_API size_t attnc_dtype_bytes(attnc_dtype dtype);

/// Families of kernels (family.h).
typedef int32_t attnc_family;
enum {
  ATTNC_FAMILY_AUTO = 0,  ///< The catalogue chooses.
  ATTNC_FAMILY_NAIVE = 1, ///< Any GPU and layout. Slow; for comparisons.
  ATTNC_FAMILY_SM80 = 2,  ///< Tensor cores of all GPUs since sm_80.
  ATTNC_FAMILY_SM90 = 3,  ///< Tensor cores and copy engines of sm_90a.
  ATTNC_FAMILY_GRID = 4,  ///< Boxes of tokens on the mod's grids.
};
/// Returns the name of a family: "auto", "naive", ... NULL for an unknown family. The string is static.
ATTNC_API const char* attnc_family_name(attnc_family family);

/// What a kernel computes (KernelKind).
typedef int32_t attnc_kernel_kind;
enum {
  ATTNC_KERNEL_FORWARD = 0,    ///< out from q, k and v.
  ATTNC_KERNEL_BACKWARD = 1,   ///< Gradients of q, k, v and captures.
  ATTNC_KERNEL_BLOCK_MASK = 2, ///< Lists of a block mask, from mask_mod.
  ATTNC_KERNEL_DECODE = 3,     ///< A forward kernel built for few queries over long KV.
};

/// Position of the first query of a sequence (QueryOffsets).
typedef int32_t attnc_query_offsets;
enum {
  ATTNC_OFFSETS_DEFAULT = 0,      ///< Preparing: chosen by the given tensors. Kernels: NONE.
  ATTNC_OFFSETS_NONE = 1,         ///< Position 0.
  ATTNC_OFFSETS_FROM_LENGTHS = 2, ///< KV length - Q_LEN, so that the last query stands at the last key.
  ATTNC_OFFSETS_TENSOR = 3,       ///< Position from a tensor of the launch.
};

/// How a kernel learns which tiles of kv columns a tile of q rows visits (KvLoop).
typedef int32_t attnc_kv_loop;
enum {
  ATTNC_KV_LOOP_ALL_TILES = 0,  ///< It visits all tiles.
  ATTNC_KV_LOOP_BOUNDS = 1,     ///< The mod computes the first and last live column.
  ATTNC_KV_LOOP_BLOCK_MASK = 2, ///< Block lists in device memory.
  ATTNC_KV_LOOP_LISTED = 3,     ///< Each launch first lists the live blocks.
  ATTNC_KV_LOOP_BOXES = 4,      ///< Tiles are boxes; the mod computes the box of keys.
  ATTNC_KV_LOOP_BOX_MASK = 5,   ///< As BLOCK_MASK, with boxes as blocks.
};

/// A pass of attention.
typedef int32_t attnc_pass;
enum {
  ATTNC_PASS_FORWARD = 0,  ///< The forward pass.
  ATTNC_PASS_BACKWARD = 1, ///< The backward pass.
};

/// Extents of an attention problem, which a mod sees as B, H, HKV, Q_LEN and KV_LEN (ProblemShape).
typedef struct attnc_problem {
  int64_t batch, q_heads, kv_heads, q_len, kv_len; ///< B, H, HKV, Q_LEN, KV_LEN.
} attnc_problem;

/// An extent or a scalar of a mod to fold as a constant: "KV_LEN" -> 8192.
typedef struct attnc_pin {
  const char* name; ///< Name of the extent or scalar.
  int64_t value;    ///< Its value.
} attnc_pin;

/// A CUDA stream of the current context: a CUstream or a cudaStream_t. NULL is the null stream.
typedef void* attnc_stream;

#ifdef __cplusplus
}
#endif
