// Which elements of attention share an element of a capture's gradient.
#include "analysis/gradient_access.h"
#include "dsl/frontend.h"
#include "passes/autodiff.h"
#include "passes/pipeline.h"

#include <catch2/catch.hpp>

using namespace attnc;
using analysis::Reach;

namespace {

/// Of the first place where `bias` is read.
analysis::GradientAccess accessOf(const std::string& declaration, const std::string& index) {
  const std::string text = "import torch\n" + declaration +
                           "\ndef score_mod(score, b, h, q_idx, kv_idx):\n    return score + bias[" + index + "]\n";
  INFO(text);
  auto module = dsl::trace(text, {});
  if (!module) FAIL(module.error().message);
  if (Status ok = passes::runPipeline(*module); !ok) FAIL(ok.error().message);
  auto gradients = passes::differentiate(*module, {"bias"});
  if (!gradients) FAIL(gradients.error().message);
  REQUIRE(gradients->captures.size() == 1);
  return analysis::gradientAccess(gradients->module, gradients->captures[0]);
}

} // namespace

TEST_CASE("the reach of an index is what it depends on", "[gradient-access]") {
  const auto reach = [](const char* index, const char* dims = "N") {
    return accessOf(std::string("bias: f32[") + dims + "]\nidx: i32[M]\nn: int", index).reach;
  };
  CHECK(reach("3") == Reach::Head);
  CHECK(reach("h") == Reach::Head);
  CHECK(reach("b * 4 + h % n") == Reach::Head);
  CHECK(reach("q_idx") == Reach::Row);
  CHECK(reach("h, idx[q_idx]", "H, N") == Reach::Row);
  CHECK(reach("kv_idx // n") == Reach::Column);
  CHECK(reach("q_idx - kv_idx") == Reach::Diagonal);
  CHECK(reach("h, kv_idx - q_idx + n", "H, N") == Reach::Diagonal);
  CHECK(reach("torch.abs(q_idx - kv_idx)") == Reach::Diagonal);
  CHECK(reach("idx[3 * q_idx - 3 * kv_idx]") == Reach::Diagonal);
  CHECK(reach("torch.where(q_idx >= kv_idx, 1, 2)") == Reach::Diagonal);
  CHECK(reach("q_idx - 2 * kv_idx") == Reach::Element);
  CHECK(reach("q_idx + kv_idx") == Reach::Element);
  CHECK(reach("torch.where(q_idx >= 2 * kv_idx, 1, 2)") == Reach::Element);
  CHECK(reach("q_idx - kv_idx, q_idx", "N, Q_LEN") == Reach::Element);
  CHECK(reach("idx[q_idx] - idx[kv_idx]") == Reach::Element);
  CHECK(reach("q_idx // 8 - kv_idx // 8") == Reach::Element);
  // Sums may wrap around at some row, where the comparison turns.
  CHECK(reach("torch.where(q_idx + n >= kv_idx * 1 + n + 5, 1, 2)") == Reach::Element);
}

TEST_CASE("what has an element for each element of attention is known", "[gradient-access]") {
  const auto all = accessOf("bias: f32[B, H, Q_LEN, KV_LEN]", "b, h, q_idx, kv_idx");
  CHECK((all.once && !all.oneBatch && !all.oneHead));
  const auto perHead = accessOf("bias: f32[H, Q_LEN, KV_LEN]", "h, q_idx, kv_idx");
  CHECK((perHead.once && perHead.oneBatch && !perHead.oneHead));
  const auto transposed = accessOf("bias: f32[KV_LEN, Q_LEN]", "kv_idx, q_idx");
  CHECK((transposed.once && transposed.oneBatch && transposed.oneHead));
  CHECK_FALSE(accessOf("bias: f32[N, KV_LEN]", "q_idx, kv_idx").once); // may be clamped
  CHECK_FALSE(accessOf("bias: f32[Q_LEN, KV_LEN]", "q_idx, kv_idx // 2").once);
  CHECK_FALSE(accessOf("bias: f32[Q_LEN]", "q_idx").once);
}
