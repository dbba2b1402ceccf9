// Gradients of captures through NVRTC: every way in which a mod may read one. No GPU needed.
#include "api/mod_impl.h"
#include "attnc/attnc.h"
#include "jit/nvrtc.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

using namespace attnc;

namespace {

Mod parsed(const std::string& text) {
  auto mod = Mod::parse(text);
  if (!mod) FAIL(mod.error().message);
  return *std::move(mod);
}

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

struct Job {
  std::string name;
  Mod mod;
  KernelOptions options;
};

bool hasNvrtc() {
  if (jit::Nvrtc(jit::Env::read()).supportedArchs()) return true;
  WARN("SKIPPED: NVRTC was not found");
  return false;
}

/// Compiles on all cores; a line for each template with `part` in its name that spills, draws an advisory or takes too
/// much shared memory.
std::string findingsOf(const std::vector<Job>& jobs, const std::string& part) {
  const Compiler compiler({.cacheMode = CompilerOptions::CacheMode::Off});
  std::string findings;
  std::mutex mutex;
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i; (i = next++) < jobs.size();) {
      auto kernel = compiler.compile(jobs[i].mod, jobs[i].options);
      std::lock_guard lock(mutex);
      if (!kernel) {
        findings += jobs[i].name + ": " + kernel.error().message + "\n";
        continue;
      }
      const int limit = jobs[i].options.arch == "sm_90a" ? 227 * 1024 : 99 * 1024;
      for (const auto& stage : *kernel) {
        if (stage->templateName.find(part) == std::string::npos) continue;
        if (stage->spillBytes || !stage->advisories.empty() ||
            stage->staticSharedBytes + stage->dynamicSharedBytes > limit)
          findings += fmt::format("{}, {}: {} bytes of spills, {} of shared memory, {} advisories\n", jobs[i].name,
                                  stage->templateName, stage->spillBytes,
                                  stage->staticSharedBytes + stage->dynamicSharedBytes, stage->advisories.size());
      }
    }
  };
  std::vector<std::thread> pool;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) pool.emplace_back(work);
  for (std::thread& thread : pool) thread.join();
  return findings;
}

} // namespace

TEST_CASE("gradients of captures compile without spills", "[kernels][captures]") {
  if (!hasNvrtc()) return;
  std::vector<Job> jobs;
  const auto add = [&](const Access& access, KernelOptions options) {
    options.kind = KernelKind::Backward;
    options.arch = "sm_89"; // the least shared memory of all
    options.gradients = access.gradients;
    jobs.push_back({fmt::format("{}, {} {} {}{}", access.text, familyName(options.family), dtypeName(options.dtype),
                                options.headDim, options.deterministic ? ", deterministic" : ""),
                    parsed(access.text), options});
  };
  for (const Access& access : accesses())
    for (bool deterministic : {false, true}) {
      add(access, {.family = Family::Sm80, .headDim = 64, .deterministic = deterministic});
      add(access, {.family = Family::Naive, .headDim = 64, .deterministic = deterministic});
    }
  const Access diagonal = accesses()[3];
  for (DType dtype : {DType::F16, DType::F32})
    for (int headDim : {64, 128, 256}) add(diagonal, {.family = Family::Sm80, .dtype = dtype, .headDim = headDim});

  const std::string findings = findingsOf(jobs, "captures");
  INFO(findings);
  CHECK(findings.empty());
}

TEST_CASE("sums along diagonals take no registers of the backward kernel of Hopper", "[kernels][captures]") {
  if (!hasNvrtc()) return;
  std::vector<Job> jobs;
  const auto add = [&](const std::string& text, std::set<std::string> gradients, int headDim, DType dtype, bool lists) {
    KernelOptions options{.kind = KernelKind::Backward, .family = Family::Sm90, .arch = "sm_90a", .dtype = dtype,
                          .headDim = headDim, .blockSparse = lists, .gradients = std::move(gradients)};
    jobs.push_back(
        {fmt::format("{}, {} {}{}", text, dtypeName(dtype), headDim, lists ? ", lists" : ""), parsed(text), options});
  };
  const std::string alibi = scoreOf("slopes: f32[H]", "score + slopes[h] * (kv_idx - q_idx)");
  const std::string bias = scoreOf("bias: f32[H, N]", "score + bias[h, q_idx - kv_idx + 512]");
  for (DType dtype : {DType::BF16, DType::F16}) {
    for (int headDim : {64, 128}) add(alibi, {"slopes"}, headDim, dtype, false);
    add(bias, {"bias"}, 64, dtype, false); // at 128 it spills even without them
  }
  add(alibi, {"slopes"}, 128, DType::BF16, true);
  const std::string findings = findingsOf(jobs, "backward");
  INFO(findings);
  CHECK(findings.empty());
}
