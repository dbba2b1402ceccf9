#include "c/enumerators.h"

#include <fmt/format.h>

#include <array>

namespace attnc::c {
namespace {

constexpr uint32_t kFeaturesOfC = ATTNC_FEATURE_LENGTHS | ATTNC_FEATURE_APPENDS | ATTNC_FEATURE_RAGGED |
                                  ATTNC_FEATURE_FP8_KV | ATTNC_FEATURE_ROW_MAX | ATTNC_FEATURE_DETERMINISTIC |
                                  ATTNC_FEATURE_FP8_Q | ATTNC_FEATURE_V_IN_K | ATTNC_FEATURE_ROW_SCALES;
static_assert(kFeaturesOfC == uint32_t(kOptionFeatures), "C has a bit for each feature that options ask for");
constexpr bool isBit(Feature feature, uint32_t bit) { return uint32_t(Features{feature}) == bit; }
static_assert(isBit(Feature::Lengths, ATTNC_FEATURE_LENGTHS) && isBit(Feature::Appends, ATTNC_FEATURE_APPENDS) &&
                  isBit(Feature::Ragged, ATTNC_FEATURE_RAGGED) && isBit(Feature::Fp8Kv, ATTNC_FEATURE_FP8_KV) &&
                  isBit(Feature::RowMax, ATTNC_FEATURE_ROW_MAX) &&
                  isBit(Feature::Deterministic, ATTNC_FEATURE_DETERMINISTIC) &&
                  isBit(Feature::Fp8Q, ATTNC_FEATURE_FP8_Q) && isBit(Feature::VInK, ATTNC_FEATURE_V_IN_K) &&
                  isBit(Feature::RowScales, ATTNC_FEATURE_ROW_SCALES),
              "C numbers features in the order of features.def");

constexpr std::array kDtypes{DType::Bool, DType::U8,  DType::I8,   DType::I16, DType::I32,
                             DType::I64,  DType::F16, DType::BF16, DType::F32, DType::E4M3};
constexpr std::array kKinds{KernelKind::Forward, KernelKind::Backward, KernelKind::BlockMask, KernelKind::Decode};
constexpr std::array kOffsets{QueryOffsets::None, QueryOffsets::FromLengths, QueryOffsets::Tensor};

/// Returns the enumerator that has this number in C.
template <class All> std::optional<typename All::value_type> find(const All& all, int32_t number) {
  for (auto enumerator : all)
    if (toC(enumerator) == number) return enumerator;
  return {};
}

void refuseEnumerator(Arguments& arguments, int32_t number, const Place& place, const char* what) {
  arguments.refuse(place, fmt::format("is {}, which is no {}", number, what));
}

} // namespace

attnc_dtype toC(DType dtype) {
  switch (dtype) {
  case DType::Bool: return ATTNC_DTYPE_BOOL;
  case DType::U8: return ATTNC_DTYPE_U8;
  case DType::I8: return ATTNC_DTYPE_I8;
  case DType::I16: return ATTNC_DTYPE_I16;
  case DType::I32: return ATTNC_DTYPE_I32;
  case DType::I64: return ATTNC_DTYPE_I64;
  case DType::F16: return ATTNC_DTYPE_F16;
  case DType::BF16: return ATTNC_DTYPE_BF16;
  case DType::F32: return ATTNC_DTYPE_F32;
  case DType::E4M3: return ATTNC_DTYPE_E4M3;
  }
  return ATTNC_DTYPE_DEFAULT;
}

static_assert(int(Family::Auto) == ATTNC_FAMILY_AUTO && int(Family::Naive) == ATTNC_FAMILY_NAIVE &&
                  int(Family::Sm80) == ATTNC_FAMILY_SM80 && int(Family::Sm90) == ATTNC_FAMILY_SM90 &&
                  int(Family::Grid) == ATTNC_FAMILY_GRID && kAllFamilies.size() == ATTNC_FAMILY_GRID + 1,
              "C numbers families as C++ does");
attnc_family toC(Family family) { return int(family); }

attnc_kernel_kind toC(KernelKind kind) {
  switch (kind) {
  case KernelKind::Forward: return ATTNC_KERNEL_FORWARD;
  case KernelKind::Backward: return ATTNC_KERNEL_BACKWARD;
  case KernelKind::BlockMask: return ATTNC_KERNEL_BLOCK_MASK;
  case KernelKind::Decode: return ATTNC_KERNEL_DECODE;
  }
  return ATTNC_KERNEL_FORWARD;
}

attnc_query_offsets toC(QueryOffsets offsets) {
  switch (offsets) {
  case QueryOffsets::None: return ATTNC_OFFSETS_NONE;
  case QueryOffsets::FromLengths: return ATTNC_OFFSETS_FROM_LENGTHS;
  case QueryOffsets::Tensor: return ATTNC_OFFSETS_TENSOR;
  }
  return ATTNC_OFFSETS_DEFAULT;
}

attnc_kv_loop toC(KvLoop loop) {
  switch (loop) {
  case KvLoop::AllTiles: return ATTNC_KV_LOOP_ALL_TILES;
  case KvLoop::Bounds: return ATTNC_KV_LOOP_BOUNDS;
  case KvLoop::BlockMask: return ATTNC_KV_LOOP_BLOCK_MASK;
  case KvLoop::Listed: return ATTNC_KV_LOOP_LISTED;
  case KvLoop::Boxes: return ATTNC_KV_LOOP_BOXES;
  case KvLoop::BoxMask: return ATTNC_KV_LOOP_BOX_MASK;
  }
  return ATTNC_KV_LOOP_ALL_TILES;
}

attnc_log_level toC(LogLevel level) {
  switch (level) {
  case LogLevel::Event: return ATTNC_LOG_EVENT;
  case LogLevel::Warning: return ATTNC_LOG_WARNING;
  }
  return ATTNC_LOG_WARNING;
}

attnc_capture_kind toC(CaptureInfo::Kind kind) {
  switch (kind) {
  case CaptureInfo::Kind::Tensor: return ATTNC_CAPTURE_TENSOR;
  case CaptureInfo::Kind::Int: return ATTNC_CAPTURE_INT;
  case CaptureInfo::Kind::Float: return ATTNC_CAPTURE_FLOAT;
  case CaptureInfo::Kind::Bool: return ATTNC_CAPTURE_BOOL;
  }
  return ATTNC_CAPTURE_TENSOR;
}

attnc_problem toC(const ProblemShape& problem) {
  return {problem.batch, problem.qHeads, problem.kvHeads, problem.qLen, problem.kvLen};
}

attnc_block_mask_shape toC(const BlockMaskShape& shape) {
  return {shape.batch, shape.heads, shape.qLen, shape.kvLen, shape.qBlock, shape.kvBlock};
}

std::optional<DType> dtypeOf(attnc_dtype dtype) { return find(kDtypes, dtype); }
std::optional<Family> familyOf(attnc_family family) { return find(kAllFamilies, family); }
std::optional<QueryOffsets> offsetsOf(attnc_query_offsets offsets) { return find(kOffsets, offsets); }

DType readDtype(Arguments& arguments, attnc_dtype dtype, const Place& place) {
  const std::optional<DType> found = dtypeOf(dtype);
  if (!found) refuseEnumerator(arguments, dtype, place, "dtype");
  return found.value_or(DType::F32);
}

Family readFamily(Arguments& arguments, attnc_family family, const Place& place) {
  const std::optional<Family> found = familyOf(family);
  if (!found) refuseEnumerator(arguments, family, place, "family");
  return found.value_or(Family::Auto);
}

KernelKind readKind(Arguments& arguments, attnc_kernel_kind kind, const Place& place) {
  const std::optional<KernelKind> found = find(kKinds, kind);
  if (!found) refuseEnumerator(arguments, kind, place, "kind of kernel");
  return found.value_or(KernelKind::Forward);
}

std::optional<QueryOffsets> readOffsets(Arguments& arguments, attnc_query_offsets offsets, const Place& place) {
  const std::optional<QueryOffsets> found = offsetsOf(offsets);
  if (!found && offsets != ATTNC_OFFSETS_DEFAULT) refuseEnumerator(arguments, offsets, place, "kind of offsets");
  return found;
}

std::optional<CompilerOptions::CacheMode> readCacheMode(Arguments& arguments, attnc_cache_mode mode,
                                                        const Place& place) {
  switch (mode) {
  case ATTNC_CACHE_DEFAULT: return {};
  case ATTNC_CACHE_READ_WRITE: return CompilerOptions::CacheMode::ReadWrite;
  case ATTNC_CACHE_READ_ONLY: return CompilerOptions::CacheMode::ReadOnly;
  case ATTNC_CACHE_OFF: return CompilerOptions::CacheMode::Off;
  }
  refuseEnumerator(arguments, mode, place, "cache mode");
  return {};
}

std::optional<bool> readDecode(Arguments& arguments, attnc_decode decode, const Place& place) {
  switch (decode) {
  case ATTNC_DECODE_DEFAULT: return {};
  case ATTNC_DECODE_ALWAYS: return true;
  case ATTNC_DECODE_NEVER: return false;
  }
  refuseEnumerator(arguments, decode, place, "choice of decode kernels");
  return {};
}

bool readFlag(Arguments& arguments, int64_t flag, const Place& place) {
  if (flag != 0 && flag != 1) arguments.refuse(place, fmt::format("is {}, expected 0 or 1", flag));
  return flag == 1;
}

void readReserved(Arguments& arguments, int32_t reserved, const Place& place) {
  if (reserved != 0) arguments.refuse(place, fmt::format("is {}, expected 0", reserved));
}

ProblemShape readProblem(const attnc_problem& problem) {
  return {problem.batch, problem.q_heads, problem.kv_heads, problem.q_len, problem.kv_len};
}

BlockMaskShape readShape(const attnc_block_mask_shape& shape) {
  const auto or_ = [](auto given, decltype(given) otherwise) { return given ? given : otherwise; };
  return {or_(shape.batch, 1), or_(shape.heads, 1),     shape.q_len,
          shape.kv_len,        or_(shape.q_block, 128), or_(shape.kv_block, 128)};
}

} // namespace attnc::c

using namespace attnc;

const char* attnc_dtype_name(attnc_dtype dtype) {
  const std::optional<DType> found = c::dtypeOf(dtype);
  return found ? dtypeName(*found).data() : nullptr; // views of literals, which end with 0
}

size_t attnc_dtype_bytes(attnc_dtype dtype) {
  const std::optional<DType> found = c::dtypeOf(dtype);
  return found ? size_t(dtypeBytes(*found)) : 0;
}

const char* attnc_family_name(attnc_family family) {
  const std::optional<Family> found = c::familyOf(family);
  return found ? familyName(*found).data() : nullptr;
}
