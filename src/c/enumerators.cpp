#include "c/enumerators.h"

#include <fmt/format.h>

namespace attnc::c {
namespace {

// Features and enumerators have in C the order that they have in C++; tests/python/spec_test.py compares their names.
static_assert(toC(DType::E4M3) == ATTNC_DTYPE_E4M3 && toC(KernelKind::Decode) == ATTNC_KERNEL_DECODE &&
              toC(QueryOffsets::Tensor) == ATTNC_OFFSETS_TENSOR && toC(KvLoop::BoxMask) == ATTNC_KV_LOOP_BOX_MASK &&
              toC(LogLevel::Warning) == ATTNC_LOG_WARNING && toC(CaptureInfo::Kind::Bool) == ATTNC_CAPTURE_BOOL);

/// Returns the enumerator that has this number in C. `last`: the one with the largest number.
template <class Enumerator> std::optional<Enumerator> find(Enumerator last, int32_t number) {
  const int64_t found = int64_t(number) - toC(Enumerator{});
  if (found < 0 || found > int64_t(last)) return {};
  return Enumerator(found);
}

[[noreturn]] void refuseEnumerator(int32_t number, const Place& place, const char* what) {
  refuse(place, fmt::format("is {}, which is no {}", number, what));
}

/// Returns an enumerator. Refuses a number that is none.
template <class Enumerator>
Enumerator readEnumerator(Enumerator last, int32_t number, const Place& place, const char* what) {
  const std::optional<Enumerator> found = find(last, number);
  if (!found) refuseEnumerator(number, place, what);
  return *found;
}

} // namespace

attnc_problem toC(const ProblemShape& problem) {
  return {problem.batch, problem.qHeads, problem.kvHeads, problem.qLen, problem.kvLen};
}

attnc_block_mask_shape toC(const BlockMaskShape& shape) {
  return {shape.batch, shape.heads, shape.qLen, shape.kvLen, shape.qBlock, shape.kvBlock};
}

std::optional<DType> dtypeOf(attnc_dtype dtype) { return find(DType::E4M3, dtype); }
std::optional<Family> familyOf(attnc_family family) { return find(kAllFamilies.back(), family); }

DType readDtype(attnc_dtype dtype, const Place& place) { return readEnumerator(DType::E4M3, dtype, place, "dtype"); }

Family readFamily(attnc_family family, const Place& place) {
  return readEnumerator(kAllFamilies.back(), family, place, "family");
}

KernelKind readKind(attnc_kernel_kind kind, const Place& place) {
  return readEnumerator(KernelKind::Decode, kind, place, "kind of kernel");
}

std::optional<QueryOffsets> readOffsets(attnc_query_offsets offsets, const Place& place) {
  const std::optional<QueryOffsets> found = find(QueryOffsets::Tensor, offsets);
  if (!found && offsets != ATTNC_OFFSETS_DEFAULT) refuseEnumerator(offsets, place, "kind of offsets");
  return found;
}

std::optional<CompilerOptions::CacheMode> readCacheMode(attnc_cache_mode mode, const Place& place) {
  switch (mode) {
  case ATTNC_CACHE_DEFAULT: return {};
  case ATTNC_CACHE_READ_WRITE: return CompilerOptions::CacheMode::ReadWrite;
  case ATTNC_CACHE_READ_ONLY: return CompilerOptions::CacheMode::ReadOnly;
  case ATTNC_CACHE_OFF: return CompilerOptions::CacheMode::Off;
  }
  refuseEnumerator(mode, place, "cache mode");
}

std::optional<bool> readDecode(attnc_decode decode, const Place& place) {
  switch (decode) {
  case ATTNC_DECODE_DEFAULT: return {};
  case ATTNC_DECODE_ALWAYS: return true;
  case ATTNC_DECODE_NEVER: return false;
  }
  refuseEnumerator(decode, place, "choice of decode kernels");
}

bool readFlag(int64_t flag, const Place& place) {
  if (flag != 0 && flag != 1) refuse(place, fmt::format("is {}, expected 0 or 1", flag));
  return flag == 1;
}

void readReserved(int32_t reserved, const Place& place) {
  if (reserved != 0) refuse(place, fmt::format("is {}, expected 0", reserved));
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
