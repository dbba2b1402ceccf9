// Kernels in a cache or a pack, as rows for a person or a program.
#pragma once

#include "json_report.h"

#include "attnc/error.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attnc::cli {

/// One compiled program. What is not known is empty.
struct KernelRow {
  std::string key;     ///< of what it was compiled from, as errors tell it; 64 hexadecimal digits
  std::string program; ///< "forward_sm90.cu"
  std::string entry, arch;
  std::string kind, family, dtype, headDim, headDimV, mod;
  std::string features; ///< "blocks-128x128,lengths"
  std::string file;     ///< of a cache: below its directory
  std::string compiler;
  uint64_t bytes = 0;
  int64_t lastUsed = 0; ///< seconds since 1970; of a pack 0

  /// "forward sm90 sm_90a bf16 64 ...": without what only a listing has.
  std::string shortText() const;
};

/// A row of the name that the cache gives an entry, or a pack (jit/kernel_cache.h).
KernelRow rowOf(std::string_view name);

/// The rows of a pack, by key. Errors: those of opening it.
Expected<std::vector<KernelRow>> packRows(const std::string& path);

/// A table with a line of titles.
std::string tableText(const std::vector<KernelRow>& rows);

JsonReport jsonOf(const std::vector<KernelRow>& rows);

/// "312 KiB"
std::string sizeText(uint64_t bytes);

} // namespace attnc::cli
