// What kernels ask of a CTA's shared memory.
#include "kernels/findings.h"

#include "api/mod_impl.h"
#include "attnc/attnc.h"
#include "families/catalog.h"
#include "helpers/plan_parts.h"
#include "plan/arch.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace attnc;

namespace {

/// A mask that compares one captured element a column with one a row, `captures` times.
std::string manyColumns(int captures) {
  std::string text, terms;
  for (int i = 0; i < captures; ++i) {
    text += fmt::format("t{}: i64[KV_LEN]\n", i);
    terms += fmt::format("{}(t{}[kv_idx] == t{}[q_idx])", i ? " & " : "", i, i);
  }
  return text + "\ndef mask_mod(b, h, q_idx, kv_idx):\n    return " + terms + "\n";
}

} // namespace

TEST_CASE("no Hopper kernel asks for more shared memory than a CTA has, whatever the mod loads by column",
          "[kernels]") {
  const int64_t limit = plan::parseArch("sm_90a")->sharedBytesPerCta();
  for (int captures : {1, 4, 8, 9, 40}) {
    auto mod = take(Mod::parse(manyColumns(captures)));
    for (int headDim = 8; headDim <= 256; headDim += 8)
      for (int headDimV : {8, headDim, 256})
        for (bool blockSparse : {false, true}) {
          INFO(captures << " captures, head dims " << headDim << ", " << headDimV << (blockSparse ? ", lists" : ""));
          const KernelOptions options{.family = Family::Sm90,
                                      .arch = "sm_90a",
                                      .headDim = headDim,
                                      .headDimV = headDimV,
                                      .blockSparse = blockSparse};
          auto plan = take(test::choosePlan(mod, options));
          CHECK(plan.stages.front().config.sharedBytes <= limit);
        }
    // Backward kernels keep what the mod knows of a step's rows; a mod that knows too much is left to another family.
    for (int headDim : {64, 128}) {
      auto plan = take(test::choosePlan(mod, {.kind = KernelKind::Backward, .arch = "sm_90a", .headDim = headDim}));
      INFO(captures << " captures, head dim " << headDim);
      if (captures == 1 || captures == 40) CHECK((plan.options.family == Family::Sm90) == (captures == 1));
      for (const plan::Stage& stage : plan.stages) CHECK(stage.config.sharedBytes <= limit);
    }
  }
}

TEST_CASE("decode kernels serve every head dim with tiles that fit, of 64 rows wherever there is room", "[kernels]") {
  plan::LaunchOperands busy; // has more parts than a multiprocessor runs
  busy.problem = {.batch = 64, .qHeads = 8, .kvHeads = 8, .qLen = 1, .kvLen = 1 << 16};
  busy.q.shape[2] = 1;
  for (const char* arch : {"sm_80", "sm_89", "sm_90a"})
    for (int rows : {16, 32, 64})
      for (int headDim = 8; headDim <= 256; headDim += 8)
        for (int headDimV = 8; headDimV <= 256; headDimV += 8) {
          INFO(arch << ", " << rows << " rows, head dims " << headDim << ", " << headDimV);
          const KernelOptions options{
              .kind = KernelKind::Decode, .arch = arch, .headDim = headDim, .headDimV = headDimV, .packedRows = rows};
          auto plan = take(test::choosePlan(Mod::identity(), options));
          const plan::Stage& stage = plan.stages.front();
          const int64_t limit = plan::parseArch(arch)->sharedBytesPerCta();
          CHECK(stage.config.sharedBytes <= limit);
          const int64_t atOnce = stage.ctas(stage, busy, {.multiprocessors = 1});
          CHECK(atOnce * (stage.config.sharedBytes + 1024) <= limit + 1024);
          CHECK(stage.config.kvStages >= 2);
          const bool isSmall = arch == std::string("sm_89");
          const bool isTight = rows == 64
                                   ? isSmall || (arch == std::string("sm_80") && std::max(headDim, headDimV) > 192)
                                   : isSmall && rows == 32 && headDim >= 240;
          CHECK((stage.config.blockM == rows || isTight));
        }
}

TEST_CASE("decode kernels serve all wide heads with tiles that fit, and load v only if it is not in k", "[kernels]") {
  const int64_t limit = plan::parseArch("sm_90a")->sharedBytesPerCta();
  for (int headDim = 8; headDim <= kMostHeadDim; headDim += 8)
    for (int headDimV = 8; headDimV <= kMostHeadDimV; headDimV += 8) {
      if (headDim <= 256 && headDimV <= 256) continue;
      for (bool vInK : {false, true}) {
        INFO("head dims " << headDim << ", " << headDimV << ", v in k " << vInK);
        const KernelOptions options{.kind = KernelKind::Decode,
                                    .arch = "sm_90a",
                                    .headDim = headDim,
                                    .headDimV = headDimV,
                                    .features = Features(Feature::VInK, vInK)};
        auto plan = test::choosePlan(Mod::identity(), options);
        if (vInK && headDimV > headDim) continue; // no launch fits
        REQUIRE(plan);
        const codegen::Config& config = plan->stages.front().config;
        CHECK(config.vInK == vInK);
        CHECK(config.sharedBytes <= limit);
        CHECK(config.kvStages > 2);
      }
    }
}

NVRTC_TEST_CASE("compiled decode kernels fit a CTA, static shared memory and all", "[kernels]") {
  const auto add = [](std::vector<test::Job>& jobs, KernelOptions options) {
    options.kind = KernelKind::Decode;
    jobs.push_back(
        {fmt::format("{} d{}/{}", options.arch, options.headDim, options.headDimV), Mod::identity(), options});
  };
  std::vector<test::Job> jobs;
  // Pairs that leave less than 1 KiB of a CTA's memory on Hopper.
  for (auto [narrow, wide] : {std::pair{std::pair{72, 80}, std::pair{248, 256}},
                              {{120, 128}, {232, 240}},
                              {{168, 176}, {216, 224}},
                              {{216, 224}, {200, 208}}})
    for (int headDim : {narrow.first, narrow.second})
      for (int headDimV : {wide.first, wide.second})
        add(jobs, {.arch = "sm_90a", .headDim = headDim, .headDimV = headDimV, .packedRows = 64});
  add(jobs, {.arch = "sm_89", .headDim = 256, .headDimV = 256, .packedRows = 64});
  add(jobs, {.arch = "sm_89", .headDim = 256, .headDimV = 256, .features = {Feature::Fp8Kv}, .packedRows = 64});
  add(jobs, {.arch = "sm_90", .headDim = 128, .headDimV = 128, .features = {Feature::Fp8Kv}, .packedRows = 64});
  CHECK(test::findings(jobs) == "");
}

TEST_CASE("backward on Hopper serves what its shared memory holds, at every head dim", "[kernels]") {
  const int64_t limit = plan::parseArch("sm_90a")->sharedBytesPerCta();
  int refused = 0;
  for (int captures : {1, 4, 8, 40}) {
    auto mod = take(Mod::parse(manyColumns(captures)));
    for (int headDim = 8; headDim <= 256; headDim += 8)
      for (int headDimV : {8, headDim, 256}) {
        INFO(captures << " captures, head dims " << headDim << ", " << headDimV);
        auto plan = test::choosePlan(mod, {.kind = KernelKind::Backward,
                                           .family = Family::Sm90,
                                           .arch = "sm_90a",
                                           .headDim = headDim,
                                           .headDimV = headDimV});
        if (captures <= 4) REQUIRE(plan);
        refused += !plan;
        if (!plan) continue;
        for (const plan::Stage& stage : plan->stages) CHECK(stage.config.sharedBytes <= limit);
      }
  }
  // With sums along diagonals, unless there is no room for these.
  for (int captures : {1, 4, 8}) {
    auto mod =
        take(Mod::parse("slopes: f32[H]\n" + manyColumns(captures) +
                        "def score_mod(s, b, h, q_idx, kv_idx):\n    return s + slopes[h] * (kv_idx - q_idx)\n"));
    for (int headDim = 8; headDim <= 128; headDim += 8) {
      const KernelOptions options{
          .kind = KernelKind::Backward, .arch = "sm_90a", .headDim = headDim, .gradients = {"slopes"}};
      auto derived = take(derive(mod, options));
      auto plan = take(test::choosePlan(derived, options));
      INFO(captures << " captures, head dim " << headDim);
      if (captures == 1) CHECK(plan::sumsDiagonals(plan));
      for (const plan::Stage& stage : plan.stages) CHECK(stage.config.sharedBytes <= limit);
    }
  }
  CHECK(refused > 0); // what is known of a row takes more than there is
}

TEST_CASE("gradients by boxes of a grid keep to the shared memory of every GPU, or are left to others",
          "[kernels][grid]") {
  int refused = 0;
  for (int captures : {0, 1, 8, 40}) {
    std::string text, terms;
    for (int i = 0; i < captures; ++i) {
      text += fmt::format("t{}: i64[Q_LEN]\n", i);
      terms += fmt::format(" & (t{}[q_idx] != kv_idx)", i);
    }
    auto mod = take(Mod::parse("from attnc import grid\n" + text +
                               "image = grid(64, 64)\ndef mask_mod(b, h, q_idx, kv_idx):\n"
                               "  (qy, qx), (ky, kx) = image.coords(q_idx), image.coords(kv_idx)\n"
                               "  return (abs(qy - ky) <= 4) & (abs(qx - kx) <= 4)" +
                               terms + "\n"));
    for (const char* arch : {"sm_80", "sm_86", "sm_89", "sm_90a", "compute_90", "sm_100", "sm_120"}) {
      const int64_t limit = plan::parseArch(arch)->sharedBytesPerCta();
      for (int headDim = 8; headDim <= 128; headDim += 8)
        for (int headDimV : {8, headDim, 128}) {
          if (!test::isCaseDue()) continue;
          INFO(captures << " captures, " << arch << ", head dims " << headDim << ", " << headDimV);
          KernelOptions options{.kind = KernelKind::Backward,
                                .family = Family::Grid,
                                .arch = arch,
                                .headDim = headDim,
                                .headDimV = headDimV};
          auto derived = take(derive(mod, options));
          const auto tiles = test::tilesOf(Compiler(), mod, options);
          const bool isHopper = arch == std::string("sm_90a"); // takes no v wider than narrow heads
          if (captures == 0 && !isHopper) REQUIRE(tiles);
          refused += !tiles;
          for (const std::string& tile : tiles ? *tiles : std::vector<std::string>()) {
            options.tile = tile;
            auto plan = take(test::choosePlan(derived, options));
            for (const plan::Stage& stage : plan.stages) CHECK(stage.config.sharedBytes <= limit);
          }
        }
    }
  }
  CHECK(refused > 0);
}
