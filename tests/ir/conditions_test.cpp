// Conditions of the launch: what asking them needs, and extents that meet them.
#include "ir/conditions.h"

#include "helpers/take.h"
#include "ir/printer.h"
#include "ir/reader.h"

#include <catch2/catch.hpp>

using namespace attnc::ir;

namespace {

Module moduleOf(const std::string& text) { return take(read(text)); }

const std::string kDims = "dim N\ndim M\ntensor t: f32[N, M]\nscalar p: i32\n";

/// Returns N and M, found from 64 each, if both are free or only N is; then -1 if the conditions do not hold.
std::vector<int64_t> found(const std::string& text, bool isMFree = true) {
  const Module module = moduleOf(kDims + text);
  llvm::SmallVector<int64_t, 16> dims = {2, 4, 2, 100, 256, 64, 64};
  std::vector<bool> isFree(dims.size(), false);
  isFree[5] = true;
  isFree[6] = isMFree;
  const bool all = meetConditions(conditionsAlone(module), dims, isFree);
  std::vector<int64_t> result(dims.begin() + kBuiltinDims, dims.end());
  if (!all) result.push_back(-1);
  return result;
}

} // namespace

TEST_CASE("conditions stand alone with what they need") {
  const Module module =
      moduleOf("dim N\ntensor t: f32[N]\n%0 = add i32 %q_idx, 1\n%1 = le i32 %0, %kv_idx\n%2 = le i32 2, #N\n"
               "output mask(b, h, q_idx, kv_idx) -> %1\noutput c() -> %2 else \"few\" !3\n");
  CHECK(print(conditionsAlone(module)) ==
        "dim N\ntensor t: f32[N]\n%0 = le i32 2, #N\noutput c() -> %0 else \"few\" !3\n");
}

TEST_CASE("free extents come to meet the conditions") {
  using Extents = std::vector<int64_t>;
  CHECK(found("") == Extents{64, 64});
  CHECK(found("%0 = le i32 #N, 64\noutput c() -> %0 else \"x\"\n") == Extents{64, 64});
  const std::string oneMore = "%0 = add i32 #M, 1\n%1 = eq i32 #N, %0\noutput c() -> %1 else \"x\"\n";
  CHECK(found(oneMore) == Extents{64, 63});
  CHECK(found(oneMore, /*isMFree=*/false) == Extents{65, 64});
  CHECK(found("%0 = mul i32 #N, 128\n%1 = eq i32 %0, #KV_LEN\noutput c() -> %1 else \"x\"\n") == Extents{2, 64});
  const std::string between = "%0 = lt i32 #N, #M\n%1 = lt i32 #M, #H\n";
  CHECK(found(between + "output c() -> %0 else \"x\"\noutput d() -> %1 else \"y\"\n") == Extents{1, 2});
  const std::string both = "%0 = lt i32 #N, #M\n%1 = lt i32 #M, #N\n";
  CHECK(found(both + "output c() -> %0 else \"x\"\noutput d() -> %1 else \"y\"\n") == Extents{1, 64, -1});
  // Q_LEN is given, and p is not known.
  CHECK(found("%0 = eq i32 #Q_LEN, 128\noutput c() -> %0 else \"x\"\n") == Extents{64, 64, -1});
  CHECK(found("%0 = eq i32 #N, @p\noutput c() -> %0 else \"x\"\n") == Extents{64, 64});
}
