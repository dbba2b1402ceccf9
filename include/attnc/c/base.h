/// What all of the C interface uses: status codes, the last error, enumerators.
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

/// How a call ended. Beside these, what is wrong with a call is told by attnc_last_error().
typedef int32_t attnc_status;
enum {
  ATTNC_OK = 0,
  ATTNC_ERROR_MOD = 1,         ///< the text of the mod is wrong; attnc_last_diagnostic() says where
  ATTNC_ERROR_ARGUMENT = 2,    ///< the call itself: NULL, a struct_size, an enumerator, an index that there is not
  ATTNC_ERROR_ENVIRONMENT = 3, ///< operands that do not fit, files, GPU, driver, NVRTC
  ATTNC_ERROR_INTERNAL = 4,    ///< a bug in attnc
  ATTNC_ERROR_MEMORY = 5,      ///< no host memory is left
};

/// "ok", "mod", ...; NULL for a number that is no status.
ATTNC_API const char* attnc_status_name(attnc_status status);

/// Version of the library that runs, as ATTNC_VERSION_NUMBER and ATTNC_VERSION (version.h) are of these headers.
ATTNC_API uint32_t attnc_version(void);
ATTNC_API const char* attnc_version_text(void);

/// The message of the last call of this thread that failed, and what to do about it; "" if there is none. Calls that
/// succeed leave both. Valid until the next failure in this thread. With ATTNC_ERROR_MOD the message holds all
/// diagnostics as a compiler prints them.
ATTNC_API const char* attnc_last_error(void);
ATTNC_API const char* attnc_last_remedy(void);

/// One finding about a mod's text. Lines and columns count from 1; columns count bytes. Strings as attnc_last_error().
typedef struct attnc_diagnostic {
  size_t struct_size;
  const char* id;       ///< a stable name of the kind of finding: "undeclared-scalar"
  const char* file;     ///< as given by the caller
  const char* message;  ///< what was observed, what was expected
  const char* hint;     ///< how to repair it; may be ""
  const char* rendered; ///< the above with the source line and a caret
  int32_t line;
  int32_t column;
} attnc_diagnostic;

/// Those of the last call of this thread that failed.
ATTNC_API size_t attnc_last_diagnostic_count(void);
ATTNC_API attnc_status attnc_last_diagnostic(size_t index, attnc_diagnostic* diagnostic);

/// Element types. q, k, v: F16, BF16, F32; E4M3: k and v of decode kernels alone. Captured tensors: all others.
typedef int32_t attnc_dtype;
enum {
  ATTNC_DTYPE_DEFAULT = 0, ///< in options alone: BF16
  ATTNC_DTYPE_BOOL = 1,
  ATTNC_DTYPE_U8 = 2,
  ATTNC_DTYPE_I8 = 3,
  ATTNC_DTYPE_I16 = 4,
  ATTNC_DTYPE_I32 = 5,
  ATTNC_DTYPE_I64 = 6,
  ATTNC_DTYPE_F16 = 7,
  ATTNC_DTYPE_BF16 = 8,
  ATTNC_DTYPE_F32 = 9,
  ATTNC_DTYPE_E4M3 = 10, ///< fp8: 4 bits of exponent, 3 of mantissa, no infinities
};
/// "bool", "u8", "bf16", ... as mods spell them; NULL for a number that is no dtype.
ATTNC_API const char* attnc_dtype_name(attnc_dtype dtype);
/// Bytes of an element; 0 for a number that is no dtype.
ATTNC_API size_t attnc_dtype_bytes(attnc_dtype dtype);

/// Families of kernels (family.h).
typedef int32_t attnc_family;
enum {
  ATTNC_FAMILY_AUTO = 0,
  ATTNC_FAMILY_NAIVE = 1,
  ATTNC_FAMILY_SM80 = 2,
  ATTNC_FAMILY_SM90 = 3,
  ATTNC_FAMILY_GRID = 4,
};
/// "auto", "naive", ...; NULL for a number that is no family.
ATTNC_API const char* attnc_family_name(attnc_family family);

/// What a kernel computes (KernelKind).
typedef int32_t attnc_kernel_kind;
enum {
  ATTNC_KERNEL_FORWARD = 0,
  ATTNC_KERNEL_BACKWARD = 1,
  ATTNC_KERNEL_BLOCK_MASK = 2,
  ATTNC_KERNEL_DECODE = 3, ///< a forward kernel of few queries
};

/// Where the first query of a sequence stands (QueryOffsets).
typedef int32_t attnc_query_offsets;
enum {
  ATTNC_OFFSETS_DEFAULT = 0,      ///< prepare: by the tensors that are given; kernels: NONE
  ATTNC_OFFSETS_NONE = 1,         ///< at 0
  ATTNC_OFFSETS_FROM_LENGTHS = 2, ///< so that the last query stands at the last key
  ATTNC_OFFSETS_TENSOR = 3,       ///< where a tensor of the launch says
};

/// How a kernel learns which tiles of kv columns a tile of q rows visits (KvLoop).
typedef int32_t attnc_kv_loop;
enum {
  ATTNC_KV_LOOP_ALL_TILES = 0,
  ATTNC_KV_LOOP_BOUNDS = 1,
  ATTNC_KV_LOOP_BLOCK_MASK = 2,
  ATTNC_KV_LOOP_LISTED = 3,
  ATTNC_KV_LOOP_BOXES = 4,
  ATTNC_KV_LOOP_BOX_MASK = 5,
};

/// A pass of attention.
typedef int32_t attnc_pass;
enum {
  ATTNC_PASS_FORWARD = 0,
  ATTNC_PASS_BACKWARD = 1,
};

/// Extents of an attention problem: what a mod sees as B, H, HKV, Q_LEN and KV_LEN.
typedef struct attnc_problem {
  int64_t batch, q_heads, kv_heads, q_len, kv_len;
} attnc_problem;

/// An extent or a scalar of a mod that is folded as a constant: "KV_LEN" -> 8192.
typedef struct attnc_pin {
  const char* name;
  int64_t value;
} attnc_pin;

/// A CUDA stream of the current context: a CUstream or a cudaStream_t; NULL is the null stream.
typedef void* attnc_stream;

#ifdef __cplusplus
}
#endif
