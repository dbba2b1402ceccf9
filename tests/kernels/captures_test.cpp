// Gradients of captures through NVRTC: every way in which a mod may read one. No GPU needed.
#include "api/mod_impl.h"
#include "attnc/attnc.h"
#include "kernels/findings.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <set>

using namespace attnc;
using namespace attnc::test;

namespace {

Mod parsed(const std::string& text) { return take(Mod::parse(text)); }

/// A score_mod of the captures, causal.
std::string scoreOf(const std::string& captures, const std::string& score) {
  return captures + "\ndef score_mod(score, b, h, q_idx, kv_idx):\n    return " + score +
         "\n\ndef mask_mod(b, h, q_idx, kv_idx):\n    return q_idx >= kv_idx\n";
}

/// By the reach that the kernel has code for, and the captures whose gradients are asked for.
struct Access {
  std::string text;
  std::set<std::string> gradients;
};
std::vector<Access> accesses() {
  return {
      {scoreOf("bias: f32[H]", "score + bias[h]"), {"bias"}},
      {scoreOf("bias: f32[Q_LEN]", "score + bias[q_idx]"), {"bias"}},
      {scoreOf("bias: bf16[KV_LEN]", "score * bias[kv_idx]"), {"bias"}},
      {scoreOf("bias: f32[H, N]", "score + bias[h, q_idx - kv_idx]"), {"bias"}},
      {scoreOf("import torch\nbias: f32[N]", "score + bias[torch.abs(q_idx - kv_idx)]"), {"bias"}},
      {scoreOf("bias: f32[H, Q_LEN, KV_LEN]", "score + bias[h, q_idx, kv_idx]"), {"bias"}},
      {scoreOf("bias: f32[B, H, N]\nidx: i32[Q_LEN]", "score + bias[b, h, idx[q_idx]]"), {"bias"}},
      {scoreOf("bias: f32\ncap: float", "cap * (score / cap + bias)"), {"bias", "cap"}},
      {scoreOf("import torch\nbias: f32[N]", "torch.tanh(score) * bias[h] + bias[q_idx] + bias[kv_idx - q_idx + 7]"),
       {"bias"}},
      {scoreOf("a: bf16[B, H, Q_LEN, 16]\nc: bf16[B, KV_LEN, 16]", "score + a[b, h, q_idx] @ c[b, kv_idx]"),
       {"a", "c"}},
  };
}

} // namespace

NVRTC_TEST_CASE("gradients of captures compile without spills", "[kernels][captures]") {
  std::vector<Job> jobs;
  const auto add = [&](const Access& access, KernelOptions options) {
    options.kind = KernelKind::Backward;
    options.arch = "sm_89"; // the least shared memory of all
    options.gradients = access.gradients;
    jobs.push_back({fmt::format("{}, {} {} {}{}", access.text, familyName(options.family), dtypeName(options.dtype),
                                options.headDim, options.features.has(Feature::Deterministic) ? ", deterministic" : ""),
                    parsed(access.text), options, 0,
                    options.family == Family::Sm80 && access.gradients.count("c") ? "low_rank" : "captures"});
  };
  for (const Access& access : accesses())
    for (bool deterministic : {false, true}) {
      add(access, {.family = Family::Sm80, .headDim = 64, .features = {Feature::Deterministic, deterministic}});
      add(access, {.family = Family::Naive, .headDim = 64, .features = {Feature::Deterministic, deterministic}});
    }
  const Access diagonal = accesses()[3];
  for (DType dtype : {DType::F16, DType::F32})
    for (int headDim : {64, 128, 256}) add(diagonal, {.family = Family::Sm80, .dtype = dtype, .headDim = headDim});

  CHECK(findings(jobs) == "");
}

NVRTC_TEST_CASE("columns of low-rank terms and their gradients compile without spills",
                "[kernels][captures][low_rank]") {
  std::vector<Job> jobs;
  for (auto [u, w] : {std::pair("bf16", "bf16"), {"f32", "bf16"}, {"f32", "f32"}})
    for (const char* head : {"b, h, ", ""})
      for (auto [family, arch] : {std::pair(Family::Sm80, "sm_80"), {Family::Sm90, "sm_90a"}})
        for (bool deterministic : {false, true}) {
          const std::string axes = *head ? "B, H, " : "",
                            text = scoreOf(fmt::format("u: {1}[{0}Q_LEN, 8]\nw: {2}[{0}KV_LEN, 8]", axes, u, w),
                                           fmt::format("score + u[{0}q_idx] @ w[{0}kv_idx]", head));
          jobs.push_back({fmt::format("{}, {} {}", text, arch, deterministic ? "deterministic" : ""),
                          parsed(text),
                          {.kind = KernelKind::Backward,
                           .family = family,
                           .arch = arch,
                           .headDim = 64,
                           .features = {Feature::Deterministic, deterministic},
                           .gradients = {"u", "w"}},
                          0,
                          "low_rank"});
        }
  CHECK(findings(jobs) == "");
}

NVRTC_TEST_CASE("sums along diagonals take no registers of the backward kernel of Hopper", "[kernels][captures]") {
  std::vector<Job> jobs;
  const auto add = [&](const std::string& text, std::set<std::string> gradients, int headDim, DType dtype, bool lists) {
    KernelOptions options{.kind = KernelKind::Backward,
                          .family = Family::Sm90,
                          .arch = "sm_90a",
                          .dtype = dtype,
                          .headDim = headDim,
                          .blockSparse = lists,
                          .gradients = std::move(gradients)};
    jobs.push_back({fmt::format("{}, {} {}{}", text, dtypeName(dtype), headDim, lists ? ", lists" : ""), parsed(text),
                    options, 0, "backward"});
  };
  const std::string alibi = scoreOf("slopes: f32[H]", "score + slopes[h] * (kv_idx - q_idx)");
  const std::string bias = scoreOf("bias: f32[H, N]", "score + bias[h, q_idx - kv_idx + 512]");
  for (DType dtype : {DType::BF16, DType::F16}) {
    for (int headDim : {64, 128}) add(alibi, {"slopes"}, headDim, dtype, false);
    add(bias, {"bias"}, 64, dtype, false); // at 128 it spills even without them
  }
  add(alibi, {"slopes"}, 128, DType::BF16, true);
  CHECK(findings(jobs) == "");
}
