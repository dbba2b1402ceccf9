// A mod means f32, operation by operation, in the reference and in block masks built on the CPU.
#include "attnc/attnc.h"
#include "helpers/take.h"
#include "reference/attention.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>

using namespace attnc;

namespace {

constexpr int64_t kRows = 200;

Mod parsed(const std::string& score, const std::string& mask = "kv_idx == 0") {
  return take(Mod::parse("import torch\nstride: float\nwide: i64[1]\n"
                         "def score_mod(score, b, h, q_idx, kv_idx):\n  return " +
                         score + "\ndef mask_mod(b, h, q_idx, kv_idx):\n  return " + mask + "\n"));
}

Captures captures() {
  static int64_t wide = (int64_t(1) << 60) + (int64_t(1) << 36) + 1; // beyond the middle of two f32 by 1
  Captures captures;
  captures.set("stride", 0.1);
  captures.set("wide", TensorView::contiguous(&wide, DType::I64, {1}));
  return captures;
}

/// The reference for one head of kRows rows and columns. All elements of q and k are `element`, so that scores are
/// scale * element^2; those of v count columns.
reference::AttentionResult attend(const Mod& mod, float element = 0, double scale = 1,
                                  const BlockMaskView* blockMask = nullptr) {
  std::vector<float> qk(kRows, element), v(kRows);
  for (int64_t i = 0; i < kRows; ++i) v[size_t(i)] = float(i);
  const TensorView view = TensorView::contiguous(qk.data(), DType::F32, {1, 1, kRows, 1});
  return take(reference::attention(mod.module(), captures(),
                                   {.q = view,
                                    .k = view,
                                    .v = TensorView::contiguous(v.data(), DType::F32, {1, 1, kRows, 1}),
                                    .scale = scale,
                                    .blockMask = blockMask}));
}

/// Returns the score of a row's first column, the only live one: its row maximum.
double scoreOf(const std::string& score, int64_t row, float element = 0, double scale = 1) {
  return attend(parsed(score), element, scale).rowMax[size_t(row)];
}

} // namespace

TEST_CASE("buckets of T5 stand where f32 puts them") {
  const std::string bucket = "8 + (torch.log(torch.abs(q_idx - kv_idx) / 8) / 2.772588722239781 * 8).to(torch.long)";
  CHECK(scoreOf(bucket, 16) == 10);
  CHECK(scoreOf(bucket, 32) == 12);
  CHECK(scoreOf(bucket, 64) == 14);
  CHECK(scoreOf(bucket, 63) == 13);
}

TEST_CASE("a product is rounded before it is rounded to a whole number") {
  // 5 times the f32 0.1 is 0.50000000745, and 0.5 as an f32.
  CHECK(scoreOf("torch.round(q_idx * stride)", 5) == 0);
  CHECK(scoreOf("torch.round(q_idx * 0.1)", 5) == 0);
  CHECK(scoreOf("torch.round(q_idx * 0.1)", 6) == 1);
}

TEST_CASE("literals are f32, and so is what they are compared with") {
  CHECK(scoreOf("torch.where(q_idx * 0.1 == 0.3, 1.0, 0.0)", 3) == 1);
  CHECK(scoreOf("score * 0 + 0.1", 0) == double(0.1f));
  CHECK(scoreOf("(score + 16777216.0) + 1.0", 0) == 16777216);
  CHECK(scoreOf("q_idx // stride", 1) == 9);
  CHECK(scoreOf("wide[0] * 1.0", 0) == 0x1p60 + 0x1p37);
}

TEST_CASE("score_mod is given the score as an f32") {
  const float element = 1.1f;
  const float scale = 0.7f;
  const double exact = double(scale) * double(element) * double(element);
  REQUIRE(exact != double(float(exact)));
  CHECK(scoreOf("torch.where(score == score * 1.0, score, 0.0)", 0, element, scale) == double(float(exact)));
}

TEST_CASE("a block mask built on the CPU is that of the reference") {
  // One element of all lives: 3 times the f32 0.1 is the f32 0.3.
  for (const char* mask : {"(q_idx * 0.1 == 0.3) & (kv_idx == 3)", "(q_idx * stride == 0.3) & (kv_idx == 3)",
                           "(torch.round(q_idx * stride) == 0) & (kv_idx * 1.0 < q_idx * 0.2 - 0.7) & (q_idx == 5)"}) {
    INFO(mask);
    const Mod mod = parsed("score", mask);
    const BlockMaskShape shape{.qLen = kRows, .kvLen = kRows};
    auto built = take(BlockMask::build(mod, captures(), {1, 1, 1, kRows, kRows}, shape));
    const BlockMaskView view = built.view();
    const reference::AttentionResult whole = attend(mod), listed = attend(mod, 0, 1, &view);
    CHECK(listed.rowMax == whole.rowMax);
    CHECK(listed.out == whole.out);
    CHECK(std::count(whole.rowMax.begin(), whole.rowMax.end(), 0.0) == 1);
    CHECK(view.partialCount[0] == 1);
    CHECK(view.partialCount[1] == 0);
  }
}
