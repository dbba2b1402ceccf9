// Kernels in a cache or a pack, as rows of a table and as JSON.
#pragma once

#include "show/json_report.h"

#include "attnc/error.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attnc::cli {

/// One compiled program. Unknown members are empty.
struct KernelRow {
  std::string key;     ///< key of its sources, as in error messages; 64 hexadecimal digits
  std::string program; ///< "forward_sm90.cu"
  std::string entry, arch;
  std::string kind, family, dtype, headDim, headDimV, mod;
  std::string features; ///< "blocks-128x128,lengths"
  std::string file;     ///< path below the cache's directory; empty for a pack
  std::string compiler;
  uint64_t bytes = 0;
  int64_t lastUsed = 0; ///< seconds since 1970; 0 for a pack

  /// Returns "forward sm90 sm_90a bf16 64 ...": without the members that only a listing has.
  std::string shortText() const;
};

/// Returns the row of an entry's name in a cache or a pack (jit/kernel_cache.h).
KernelRow rowOf(std::string_view name);

/// Returns the rows of a pack, by key. Errors: those of opening it.
Expected<std::vector<KernelRow>> packRows(const std::string& path);

/// Returns a table with a line of titles. On a terminal it fits.
std::string tableText(const std::vector<KernelRow>& rows);

JsonReport jsonOf(const std::vector<KernelRow>& rows);

/// Returns "312 KiB".
std::string sizeText(uint64_t bytes);

} // namespace attnc::cli
