// Compiles kernels by boxes of a grid for every architecture, and looks at what ptxas says. No GPU needed.
#include "api/mod_impl.h"
#include "attnc/attnc.h"
#include "helpers/plan_parts.h"
#include "kernels/findings.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <map>

using namespace attnc;
using namespace attnc::test;

NVRTC_TEST_CASE("the boxes that tuning tries beside the model's compile without advisories, and hardly spill",
                "[kernels][grid]") {
  std::vector<Job> jobs;
  for (const char* name : {"neighborhood2d", "neighborhood3d"}) {
    const auto mod = take(Mod::load(fmt::format("{}/dsl/mods/{}.py", ATTNC_SOURCE_DIR, name)));
    for (KernelKind kind : {KernelKind::Forward, KernelKind::Backward})
      for (const char* arch : {"sm_80", "sm_90a"}) {
        KernelOptions options{.kind = kind, .family = Family::Grid, .arch = arch, .headDim = 128};
        const auto tiles = take(test::tilesOf(compiler(), mod, options));
        REQUIRE(tiles.size() > 3);
        KernelOptions f32 = options;
        f32.dtype = DType::F32;
        const auto ofF32 = take(test::tilesOf(compiler(), mod, f32));
        for (size_t i = 1; i < ofF32.size(); i += 3) {
          f32.tile = ofF32[i];
          jobs.push_back({fmt::format("{} kind {} {} f32 {}", name, int(kind), arch, f32.tile), mod, f32,
                          kind == KernelKind::Backward ? 152 : 0});
        }
        for (size_t i = 1; i < tiles.size(); i += 3) {
          options.tile = tiles[i];
          const int spillBytes = kind == KernelKind::Backward && arch == std::string("sm_80") ? 152 : 104;
          const std::string job = fmt::format("{} kind {} {} {}", name, int(kind), arch, options.tile);
          jobs.push_back({job, mod, options, spillBytes});
        }
      }
  }
  CHECK(findings(jobs) == "");
}

NVRTC_TEST_CASE("kernels by boxes of a grid compile without spills or advisories", "[kernels][grid]") {
  const std::vector<int> archs = supported();
  std::vector<Job> jobs;
  const auto add = [&](const std::string& name, const Mod& mod, const std::vector<int>& dims, int spillBytes = 0) {
    const auto gains = take(test::gainsFromBlockMask(compiler(), mod, {.family = Family::Grid, .arch = "sm_90a"}));
    const bool lists = gains; // over boxes
    if (lists)
      jobs.push_back({name + " box-mask", mod, {.kind = KernelKind::BlockMask, .arch = "sm_80", .maskByBoxes = true}});
    for (DType dtype : {DType::BF16, DType::F16})
      for (int dim : dims) {
        KernelOptions options{.family = Family::Grid, .arch = "sm_90a", .dtype = dtype, .headDim = dim};
        options.blockSparse = options.maskByBoxes = lists;
        jobs.push_back({fmt::format("{} d{} {}", name, dim, dtypeName(dtype)), mod, options, spillBytes});
      }
    for (auto [capability, arch] :
         {std::pair{80, "sm_80"}, {89, "sm_89"}, {90, "compute_90"}, {100, "sm_100"}, {120, "sm_120"}}) {
      if (std::find(archs.begin(), archs.end(), capability) == archs.end()) continue;
      if (!test::sourcesOf(compiler(), mod, {.family = Family::Grid, .arch = arch}))
        continue; // tokens outside the grid
      for (int dim : dims) {
        KernelOptions options{.family = Family::Grid, .arch = arch, .headDim = dim};
        options.blockSparse = options.maskByBoxes = lists;
        const bool isDilated = name == "dilated_window" && dim == 128 && capability == 80;
        jobs.push_back({fmt::format("{} d{} {}", name, dim, arch), mod, options, isDilated ? 32 : 0});
        options.dtype = DType::F32;
        jobs.push_back({fmt::format("{} d{} {} f32", name, dim, arch), mod, options});
      }
    }
  };
  const auto tiles = take(Mod::parse("from attnc import grid\nimage = grid(64, 64)\n"
                                     "live: bool[H, N, M, N, M]\nbias: f32[H, N, M]\n"
                                     "def mask_mod(b, h, q, k):\n"
                                     "  (qy, qx), (ky, kx) = image.coords(q), image.coords(k)\n"
                                     "  return live[h, qy // 8, qx // 8, ky // 8, kx // 8]\n"
                                     "def score_mod(score, b, h, q, k):\n"
                                     "  (qy, qx), (ky, kx) = image.coords(q), image.coords(k)\n"
                                     "  return score + bias[h, qy - ky + 63, qx - kx + 63]\n"));
  add("tiles", tiles, {64, 96});
  int onGrids = 0;
  for (bool everywhere : {false, true})
    for (const auto& [name, mod] : library(everywhere)) {
      if (!test::sourcesOf(compiler(), mod, {.family = Family::Grid, .arch = "sm_90a"})) continue;
      add(name, mod, {32, 64, 96, 128});
      ++onGrids;
    }
  CHECK(onGrids >= 3);
  const std::map<std::string, std::string> forms[] = {
      {{"DILATION", "(2, 3)"}}, {{"STRIDE", "(4, 8)"}, {"WINDOW", "(16, 16)"}}, {{"CAUSAL", "(True, True)"}}};
  for (const auto& defines : forms) {
    auto mod = take(Mod::load(ATTNC_SOURCE_DIR "/dsl/mods/neighborhood2d.py", {.defines = defines}));
    add(fmt::format("neighborhood2d {}", defines.begin()->first), mod, {64, 128},
        defines.count("DILATION") ? 32 : 0); // asks mask_mod
  }
  CHECK(findings(jobs) == "");
}

NVRTC_TEST_CASE("gradients by boxes of a grid compile without advisories, and hardly spill", "[kernels][grid]") {
  const std::vector<int> archs = supported();
  std::vector<Job> jobs;
  const auto add = [&](const std::string& name, const Mod& mod, int spillBytes,
                       const std::vector<int>& dims = {32, 64, 96, 128}) {
    for (int dim : dims) {
      jobs.push_back({fmt::format("{} d{}", name, dim),
                      mod,
                      {.kind = KernelKind::Backward, .family = Family::Grid, .arch = "sm_90a", .headDim = dim},
                      spillBytes});
      const passes::GridKernel& grid = *(*kernelModOf(mod, passes::Algebra{}))->grid;
      jobs.push_back(jobs.back());
      jobs.back().name += " deterministic";
      jobs.back().options.features.set(Feature::Deterministic, true);
      // Next to text the producer, of 24 registers, spills the turns that it counts.
      if (grid.beside && dim > 64) jobs.back().spillBytes += 136;
      if (grid.beside) continue; // only on Hopper
      // Kernels by addresses spill only if they evaluate score or mask for each pair: then they keep the values of four
      // keys in addition to dK and dV.
      const bool asks = mod.hasScoreMod() || !grid.boxIsMask;
      for (int capability : {80, 86, 89, 90, 100, 120}) {
        if (std::find(archs.begin(), archs.end(), capability) == archs.end()) continue;
        const std::string arch = capability == 90 ? "compute_90" : fmt::format("sm_{}", capability);
        jobs.push_back({fmt::format("{} d{} {}", name, dim, arch),
                        mod,
                        {.kind = KernelKind::Backward, .family = Family::Grid, .arch = arch, .headDim = dim},
                        asks ? spillBytes : 0});
        jobs.push_back(jobs.back());
        jobs.back().name += " f32";
        if (capability == 120 && grid.axes.size() == 3) jobs.back().spillBytes = 208; // the walk for dQ
        jobs.back().options.dtype = DType::F32;
      }
    }
  };
  int onGrids = 0;
  for (bool everywhere : {false, true})
    for (const auto& [name, mod] : library(everywhere)) {
      if (!test::sourcesOf(compiler(), mod, {.kind = KernelKind::Backward, .family = Family::Grid, .arch = "sm_90a"}))
        continue;
      // Spills with dK and dV of 96 columns and more; a score that reads memory takes more.
      add(name, mod, name == "shifted_window" ? 136 : 80);
      ++onGrids;
    }
  CHECK(onGrids >= 3);
  auto mod = take(Mod::load(ATTNC_SOURCE_DIR "/dsl/mods/neighborhood2d.py", {.defines = {{"DILATION", "(2, 3)"}}}));
  add("neighborhood2d DILATION", mod, 80);
  auto biased =
      take(Mod::parse("from attnc import grid\nslope: f32[H]\nimage = grid(64, 64)\n"
                      "def score_mod(score, b, h, q_idx, kv_idx):\n  return score + slope[h] * (kv_idx - q_idx)\n"
                      "def mask_mod(b, h, q_idx, kv_idx):\n"
                      "  (qy, qx), (ky, kx) = image.coords(q_idx), image.coords(kv_idx)\n"
                      "  return (abs(qy - ky) <= 4) & (abs(qx - kx) <= 4)\n"));
  add("distances", biased, 80, {32, 64}); // linear in kernels by rows, and not in these
  const std::string coordinates = "  (qy, qx), (ky, kx) = image.coords(q_idx), image.coords(kv_idx)\n"
                                  "  both = image.contains(q_idx) & image.contains(kv_idx)\n"
                                  "  near = (abs(qy - ky) <= 4) & (abs(qx - kx) <= 4)\n";
  struct Joint {
    const char *name, *mask, *score;
    std::vector<int> dims;
  };
  const char* const slanted = "score + 0.01 * (kx - qx + ky - qy).to(torch.float32)";
  const char* const causalText = "torch.where(both, near, kv_idx <= q_idx)";
  const std::vector<int> all = {32, 64, 96, 128};
  for (const Joint& joint : {Joint{"text", "near | ~both", "score", all},
                             {"text and scores", "near | ~both", slanted, all},
                             {"causal text", causalText, "score", all},
                             {"causal text and scores", causalText, slanted, {32, 64}}}) { // calls both for each score
    auto mod =
        take(Mod::parse("from attnc import grid\nimport torch\nimage = grid(64, 64, before=77)\n"
                        "def mask_mod(b, h, q_idx, kv_idx):\n" +
                        coordinates + "  return " + joint.mask + "\ndef score_mod(score, b, h, q_idx, kv_idx):\n" +
                        coordinates + "  return " + joint.score + "\n"));
    add(joint.name, mod, 80, joint.dims);
  }
  CHECK(test::choosePlan(*derive(biased, {.kind = KernelKind::Backward}),
                         {.kind = KernelKind::Backward, .arch = "sm_90a"})
            ->options.family == Family::Sm90); // at head dim 128
  CHECK(findings(jobs) == "");
}
