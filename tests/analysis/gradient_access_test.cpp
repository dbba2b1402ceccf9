// Which elements of attention share an element of a capture's gradient.
#include "analysis/gradient_access.h"
#include "helpers/traced.h"
#include "passes/autodiff.h"

#include <catch2/catch.hpp>

using namespace attnc;
using analysis::Reach;

namespace {

/// Returns the access of the first place where a score reads `bias`.
analysis::GradientAccess accessIn(const std::string& declaration, const std::string& score) {
  auto gradients = take(passes::differentiate(test::scoreMod(declaration, score), {"bias"}));
  REQUIRE(gradients.captures.size() == 1);
  return analysis::gradientAccesses(gradients.module, gradients.captures)[0];
}

analysis::GradientAccess accessOf(const std::string& declaration, const std::string& index) {
  return accessIn(declaration, "score + bias[" + index + "]");
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

TEST_CASE("sums along diagonals suffice where all that matters is q_idx - kv_idx", "[gradient-access]") {
  const auto suffice = [](const char* score, const char* bias = "f32[H, N]") {
    return accessIn(std::string("bias: ") + bias + "\nother: f32[N]\nn: int\ncap: float", score).ofDiagonals;
  };
  // Biases by distance, T5's buckets, ALiBi.
  CHECK(suffice("score + bias[h, q_idx - kv_idx]"));
  CHECK(suffice("score + bias[h, torch.clamp(kv_idx - q_idx, min=-9, max=9) + 9]"));
  CHECK(suffice("score - 2.0 * bias[h, torch.abs(q_idx - kv_idx)] / cap"));
  CHECK(suffice("score + bias[h] * (kv_idx - q_idx)", "f32[H]"));
  CHECK(suffice("score + bias[h] * (q_idx - kv_idx).to(torch.float32)", "f32[H]"));
  CHECK(suffice("score + bias[h] * other[q_idx - kv_idx] + torch.log(bias[h])", "f32[H]"));
  CHECK(suffice("torch.where(q_idx >= kv_idx, score + bias[h], score)", "f32[H]"));
  CHECK(suffice("score + bias * (kv_idx - q_idx)", "f32"));
  CHECK(suffice("score + bias[b]", "f32[B]"));

  // The gradient of the score is not that of the result.
  CHECK_FALSE(suffice("2.0 * score + bias[h, q_idx - kv_idx]"));
  CHECK_FALSE(suffice("torch.tanh(score + bias[h, q_idx - kv_idx])"));
  CHECK_FALSE(suffice("torch.where(q_idx >= kv_idx, score + bias[h], 0.0)", "f32[H]"));
  // The place, or what it gets, depends on more.
  CHECK_FALSE(suffice("score + bias[h, q_idx]"));
  CHECK_FALSE(suffice("score + bias[q_idx, kv_idx]", "f32[Q_LEN, KV_LEN]"));
  CHECK_FALSE(suffice("score + bias[h] * q_idx", "f32[H]"));
  CHECK_FALSE(suffice("score + bias[h] * other[kv_idx]", "f32[H]"));
  CHECK_FALSE(suffice("score + torch.exp(bias[h]) * kv_idx", "f32[H]"));
  CHECK_FALSE(suffice("score + bias[h] * (q_idx * 0.1 - kv_idx * 0.1)", "f32[H]"));             // rounded apart
  CHECK_FALSE(suffice("score + bias[h] * ((q_idx + n) * 1.0 - (kv_idx + n) * 1.0)", "f32[H]")); // beyond 2^24
  CHECK_FALSE(suffice("score + bias[h] * score.detach()", "f32[H]"));
}
