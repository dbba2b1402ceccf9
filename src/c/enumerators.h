// Converts enumerators and plain structs between C and C++.
#pragma once

#include "attnc/c/compiler.h"
#include "attnc/c/prepared.h"
#include "attnc/compiler.h"
#include "c/arguments.h"

#include <optional>

namespace attnc::c {

constexpr attnc_dtype toC(DType dtype) { return int(dtype) + 1; } // 0: the default
constexpr attnc_family toC(Family family) { return int(family); }
constexpr attnc_kernel_kind toC(KernelKind kind) { return int(kind); }
constexpr attnc_query_offsets toC(QueryOffsets offsets) { return int(offsets) + 1; } // 0: the default
constexpr attnc_kv_loop toC(KvLoop loop) { return int(loop); }
constexpr attnc_log_level toC(LogLevel level) { return int(level); }
constexpr attnc_capture_kind toC(CaptureInfo::Kind kind) { return int(kind); }
attnc_problem toC(const ProblemShape& problem);
attnc_block_mask_shape toC(const BlockMaskShape& shape);

/// Unset for numbers that are not enumerators, and for the DEFAULT enumerators.
std::optional<DType> dtypeOf(attnc_dtype dtype);
std::optional<Family> familyOf(attnc_family family);

// These throw a Refusal for numbers that are not enumerators.
DType readDtype(attnc_dtype dtype, const Place& place);
Family readFamily(attnc_family family, const Place& place);
KernelKind readKind(attnc_kernel_kind kind, const Place& place);
/// Unset for ATTNC_OFFSETS_DEFAULT.
std::optional<QueryOffsets> readOffsets(attnc_query_offsets offsets, const Place& place);
/// Unset for ATTNC_CACHE_DEFAULT.
std::optional<CompilerOptions::CacheMode> readCacheMode(attnc_cache_mode mode, const Place& place);
/// Accepts 0 or 1.
bool readFlag(int64_t flag, const Place& place);
/// Unset for ATTNC_DECODE_DEFAULT.
std::optional<bool> readDecode(attnc_decode decode, const Place& place);
/// Checks a member that must be 0.
void readReserved(int32_t reserved, const Place& place);

ProblemShape readProblem(const attnc_problem& problem);
BlockMaskShape readShape(const attnc_block_mask_shape& shape);

} // namespace attnc::c
