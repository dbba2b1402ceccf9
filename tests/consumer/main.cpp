// Uses something of every layer of attnc, so that all of it must link, and needs neither a GPU nor NVRTC.
#include <attnc/attnc.h>

#include <cstdio>

#if __has_include("ir/ir.h") || __has_include("dsl/frontend.h") || __has_include("src/ir/ir.h")
#error "internal headers of attnc can be seen"
#endif
static_assert(ATTNC_VERSION_NUMBER >= 100, "the version header has no version");

// Callers name some members of these. -Wextra must not complain about the others.
[[maybe_unused]] void name() {
  (void)attnc::ParseOptions{.name = "mod"};
  (void)attnc::CompilerOptions{.noCompile = true};
  (void)attnc::KernelOptions{.headDim = 64};
  (void)attnc::PrepareOptions{.tf32 = true};
  (void)attnc::Operands{.maxQLen = 1};
  (void)attnc::Outputs{.lse = {}};
  (void)attnc::BackwardOutputs{.captures = nullptr};
  (void)attnc::BlockMaskShape{.qLen = 1};
  (void)attnc::BlockMaskView{.ofWholeMod = true};
  (void)attnc::ShardOptions{.lengths = {}};
}

int main() {
  const auto mod = attnc::Mod::parse("(q_idx >= kv_idx) & (q_idx - kv_idx <= 256)");
  if (!mod) return std::fprintf(stderr, "%s\n", mod.error().message.c_str()), 1;
  const auto mask = attnc::BlockMask::build(*mod, {}, {1, 1, 1, 1024, 1024}, {.qLen = 1024, .kvLen = 1024});
  if (!mask) return std::fprintf(stderr, "%s\n", mask.error().message.c_str()), 1;
  const attnc::Compiler compiler({.cacheMode = attnc::CompilerOptions::CacheMode::Off});
  const auto plan = compiler.plan(*mod, {.arch = "sm_90a", .headDim = 128});
  if (!plan) return std::fprintf(stderr, "%s\n", plan.error().message.c_str()), 1;
  const auto source = plan->sources();
  if (!source) return std::fprintf(stderr, "%s\n", source.error().message.c_str()), 1;
  const auto nothing = attnc::Mod::parse("score +");
  if (nothing) return 1;
  std::printf("attnc " ATTNC_VERSION ": %d of 64 blocks live\n", int(mask->liveBlocks()));
  return 0;
}
