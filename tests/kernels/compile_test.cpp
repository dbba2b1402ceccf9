// Compiles every library mod through every template for every architecture, and looks at what ptxas says. No GPU
// needed.
#include "api/mod_impl.h"
#include "api/modless_kernel.h"
#include "api/stage_kernels.h"
#include "attnc/attnc.h"
#include "helpers/plans.h"
#include "jit/nvrtc.h"
#include "kernels/findings.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

using namespace attnc;
using namespace attnc::test;

namespace {

struct Variant {
  const char* name;
  KernelOptions options;
};

/// What is compiled for one arch: the main head dims for every mod.
std::vector<Variant> variants() {
  std::vector<Variant> all = {{"block-mask", {.kind = KernelKind::BlockMask, .columnLists = true}}};
  for (bool sparse : {false, true})
    for (int dim : {64, 128}) all.push_back({"sm80", {.family = Family::Sm80, .headDim = dim, .blockSparse = sparse}});
  all.push_back({"naive", {.family = Family::Naive, .headDim = 64}});
  for (bool sparse : {false, true})
    for (int dim : {64, 128, 256})
      all.push_back({"sm90", {.family = Family::Sm90, .headDim = dim, .blockSparse = sparse}});
  return all;
}

/// Every template once.
std::vector<Variant> templates() {
  return {{"block-mask", {.kind = KernelKind::BlockMask, .arch = "sm_80", .columnLists = true}},
          {"naive", {.family = Family::Naive, .arch = "sm_80", .headDim = 64}},
          {"sm80", {.family = Family::Sm80, .arch = "sm_80", .headDim = 64}},
          {"sm90", {.family = Family::Sm90, .arch = "sm_90a", .headDim = 64}}};
}

} // namespace

NVRTC_TEST_CASE("no library mod spills or draws an advisory of ptxas, in any template, for any architecture",
                "[kernels]") {
  const std::vector<int> archs = supported();
  std::vector<Job> jobs;
  for (auto [capability, arch] :
       {std::pair{80, "sm_80"}, {89, "sm_89"}, {90, "sm_90a"}, {100, "sm_100"}, {120, "sm_120"}}) {
    if (std::find(archs.begin(), archs.end(), capability) == archs.end()) continue;
    for (const auto& [name, mod] : library())
      for (const Variant& variant : variants()) {
        KernelOptions options = variant.options;
        options.arch = arch;
        if (options.family == Family::Sm90 && capability != 90) continue;
        if (!mod.hasMaskMod() && (options.blockSparse || options.kind == KernelKind::BlockMask)) continue;
        jobs.push_back({fmt::format("{} {} d{}{} {}", name, variant.name, options.headDim,
                                    options.blockSparse ? " lists" : "", arch),
                        mod, options});
      }
  }
  REQUIRE(jobs.size() > 100);
  CHECK(findings(jobs) == "");
}

NVRTC_TEST_CASE("kernels with lengths and offsets compile without spills or advisories", "[kernels]") {
  std::vector<Job> jobs;
  for (const auto& [name, mod] : library())
    for (auto [arch, family] : {std::pair("sm_80", Family::Sm80), {"sm_90a", Family::Sm90}, {"sm_80", Family::Naive}})
      for (int dim : {64, 128, 256})
        for (bool sparse : {false, true}) {
          if ((family == Family::Naive && (dim > 64 || sparse)) || (sparse && (dim > 128 || !mod.hasMaskMod())))
            continue;
          jobs.push_back({fmt::format("{} {} d{}{}", name, familyName(family), dim, sparse ? " lists" : ""),
                          mod,
                          {.family = family,
                           .arch = arch,
                           .headDim = dim,
                           .features = {Feature::Lengths},
                           .blockSparse = sparse,
                           .offsets = QueryOffsets::FromLengths}});
        }
  REQUIRE(jobs.size() > 100);
  CHECK(findings(jobs) == "");
}

NVRTC_TEST_CASE("decode kernels compile without spills or advisories", "[kernels]") {
  std::vector<Job> jobs;
  const auto add = [&](const std::string& name, const Mod& mod, KernelOptions options) {
    options.kind = KernelKind::Decode;
    jobs.push_back(
        {fmt::format("{} {} d{}/{} rows {}", name, options.arch, options.headDim, options.headDimV, options.packedRows),
         mod, options});
  };
  for (const auto& [name, mod] : library()) {
    add(name, mod,
        {.arch = "sm_90a", .headDim = 128, .features = {Feature::Lengths}, .offsets = QueryOffsets::FromLengths});
    add(name, mod,
        {.arch = "sm_80", .dtype = DType::F16, .headDim = 128, .features = {Feature::RowMax}, .packedRows = 64});
    if (name != "alibi" && name != "document" && name != "causal") continue;
    add(name, mod, {.arch = "compute_90", .headDim = 64, .features = {Feature::Lengths}}); // without the copy engine
    add(name, mod, {.arch = "sm_90a", .headDim = 128, .features = {Feature::Lengths}, .packedRows = 64});
    for (const char* arch : {"sm_89", "sm_90a"})
      for (auto [qk, v] : {std::pair{8, 8}, {40, 72}, {64, 64}, {8, 256}, {192, 128}, {256, 256}})
        add(name, mod, {.arch = arch, .headDim = qk, .headDimV = v, .features = {Feature::Lengths}, .packedRows = 32});
  }
  REQUIRE(jobs.size() > 50);
  CHECK(findings(jobs) == "");
}

NVRTC_TEST_CASE("decode kernels of wide heads compile without spills or advisories", "[kernels]") {
  std::vector<Job> jobs;
  const auto add = [&](const std::string& name, const Mod& mod, KernelOptions options) {
    options.kind = KernelKind::Decode;
    options.arch = "sm_90a";
    jobs.push_back({fmt::format("{} d{}/{} pages {} tile {}", name, options.headDim, options.headDimV, options.pageSize,
                                options.tile),
                    mod, options});
  };
  for (const auto& [name, mod] : library()) {
    const KernelOptions latent{.headDim = 576, .headDimV = 512, .features = {Feature::VInK}};
    add(name, mod, latent);
    KernelOptions serving = latent;
    serving.features.set(Feature::Lengths);
    serving.features.set(Feature::RowMax);
    serving.offsets = QueryOffsets::FromLengths;
    serving.pageSize = 64;
    add(name, mod, serving);
    if (name != "alibi" && name != "document" && name != "causal") continue;
    serving.features.set(Feature::Appends);
    serving.pageSize = 16;
    add(name, mod, serving);
    KernelOptions ragged = latent;
    ragged.features.set(Feature::Ragged);
    add(name, mod, ragged);
    for (auto [qk, v] : {std::pair{576, 512}, {512, 512}, {264, 8}, {8, 512}, {320, 320}})
      add(name, mod, {.dtype = DType::F16, .headDim = qk, .headDimV = v, .features = {Feature::Lengths}});
    KernelOptions narrow = latent;
    narrow.tile = "64x16x8";
    if (name != "document") add(name, mod, narrow); // live steps are listed by 32 columns
  }
  CHECK(findings(jobs) == "");
}

NVRTC_TEST_CASE("kernels for pages compile without spills or advisories", "[kernels]") {
  std::vector<Job> jobs;
  for (const auto& [name, mod] : library())
    for (int pageSize : kPageSizes) {
      const auto add = [&, &name = name, &mod = mod](KernelOptions options) {
        if (options.blockSparse && !mod.hasMaskMod()) return;
        options.features.set(Feature::Lengths);
        options.offsets = options.blockSparse ? QueryOffsets::None : QueryOffsets::FromLengths;
        options.pageSize = pageSize;
        jobs.push_back({fmt::format("{} {} {} d{}, pages of {}{}", name, familyName(options.family), options.arch,
                                    options.headDim, pageSize, options.blockSparse ? ", lists" : ""),
                        mod, options});
      };
      const bool isWide = name == "alibi" || name == "document";
      if (pageSize != 16 && name != "alibi" && (name != "document" || pageSize > 2)) continue;
      for (int dim : {64, 128}) {
        if (!isWide && dim == 64) continue;
        add({.kind = KernelKind::Decode, .arch = "sm_90a", .headDim = dim});
        add({.family = Family::Sm80, .arch = "sm_80", .headDim = dim});
        if (pageSize >= 8) add({.family = Family::Sm90, .arch = "sm_90a", .headDim = dim});
      }
      if (!isWide || (pageSize != 1 && pageSize != 16 && pageSize != 256)) continue;
      add({.family = Family::Naive, .arch = "sm_80", .headDim = 64});
      add({.family = Family::Sm80, .arch = "sm_80", .dtype = DType::F32, .headDim = 96});
      add({.family = Family::Sm80, .arch = "sm_80", .headDim = 128, .blockSparse = true});
      add({.family = Family::Sm80, .arch = "sm_89", .headDim = 256});
      add({.kind = KernelKind::Decode, .arch = "sm_80", .dtype = DType::F16, .headDim = 128, .packedRows = 64});
      add({.kind = KernelKind::Decode, .arch = "sm_89", .headDim = 40, .packedRows = 32});
      if (pageSize < 8) continue;
      for (int dim : {192, 256}) add({.family = Family::Sm90, .arch = "sm_90a", .headDim = dim});
      add({.family = Family::Sm90, .arch = "sm_90a", .headDim = 64, .blockSparse = true});
    }
  REQUIRE(jobs.size() > 100);
  CHECK(findings(jobs) == "");
}

NVRTC_TEST_CASE("kernels of ragged batches compile without advisories, and hardly spill", "[kernels]") {
  std::vector<Job> jobs;
  for (const auto& [name, mod] : library()) {
    const auto add = [&, &name = name, &mod = mod](KernelKind kind, Family family, const char* arch, int dim,
                                                   QueryOffsets offsets, int spillBytes = 0) {
      jobs.push_back({fmt::format("{} kind {} {} {} d{}", name, int(kind), familyName(family), arch, dim),
                      mod,
                      {.kind = kind,
                       .family = family,
                       .arch = arch,
                       .headDim = dim,
                       .features = {Feature::Ragged},
                       .offsets = offsets},
                      spillBytes});
    };
    const bool isWide = name == "alibi" || name == "document";
    for (int dim : {64, 128, 256}) {
      if (!isWide && dim != 128) continue;
      // The third warpgroup of consumers leaves 160 registers a thread.
      add(KernelKind::Forward, Family::Sm90, "sm_90a", dim, QueryOffsets::None, dim == 64 ? 32 : 0);
      add(KernelKind::Forward, Family::Sm80, "sm_80", dim, QueryOffsets::FromLengths);
      const bool memory = name == "learned_bias" || name == "relative_bias", rates = name.rfind("softcap", 0) == 0;
      // Where a sequence begins and ends takes registers that others have to spare.
      add(KernelKind::Backward, Family::Sm90, "sm_90a", dim, QueryOffsets::None, memory || rates ? 100 : 48);
      if (dim < 256) add(KernelKind::Backward, Family::Sm80, "sm_80", dim, QueryOffsets::None, 16);
    }
    add(KernelKind::Decode, isWide ? Family::Sm80 : Family::Sm90, "sm_90a", 128, QueryOffsets::FromLengths);
    if (!isWide) continue;
    add(KernelKind::Decode, Family::Sm80, "sm_80", 64, QueryOffsets::None);
    add(KernelKind::Forward, Family::Naive, "sm_80", 64, QueryOffsets::FromLengths);
    add(KernelKind::Backward, Family::Naive, "sm_80", 64, QueryOffsets::FromLengths);
  }
  REQUIRE(jobs.size() > 60);
  CHECK(findings(jobs) == "");
}

NVRTC_TEST_CASE("kernels of ragged batches in pages compile without advisories, and hardly spill", "[kernels]") {
  std::vector<Job> jobs;
  for (const auto& [name, mod] : library())
    for (int pageSize : {1, 16, 256}) {
      const bool isWhole = name == "alibi" || name == "document";
      if (!isWhole && pageSize != 16) continue;
      const auto add = [&, &name = name, &mod = mod](KernelOptions options) {
        options.features.set(Feature::Ragged);
        options.features.set(Feature::Lengths);
        options.features.set(Feature::Appends, isWhole);
        options.offsets = QueryOffsets::FromLengths;
        options.pageSize = pageSize;
        jobs.push_back({fmt::format("{} kind {} {} {} d{}, pages of {}", name, int(options.kind),
                                    familyName(options.family), options.arch, options.headDim, pageSize),
                        mod, options,
                        !options.features.has(Feature::Fp8Q) ? 0
                        : name == "softcap"                  ? 296
                                                             : 64});
      };
      for (int dim : {64, 128, 256}) {
        if (!isWhole && dim != 128) continue;
        for (Features features : {Features{}, Features{Feature::Fp8Q, Feature::Fp8Kv}})
          if (pageSize >= 8) add({.family = Family::Sm90, .arch = "sm_90a", .headDim = dim, .features = features});
        add({.family = Family::Sm80, .arch = "sm_80", .headDim = dim});
      }
      add({.kind = KernelKind::Decode, .arch = "sm_90a", .headDim = 128});
      if (!isWhole) continue;
      add({.kind = KernelKind::Decode, .family = Family::Sm80, .arch = "sm_80", .headDim = 64, .packedRows = 64});
      add({.family = Family::Sm80, .arch = "sm_80", .dtype = DType::F32, .headDim = 40});
      add({.family = Family::Naive, .arch = "sm_80", .headDim = 64});
    }
  REQUIRE(jobs.size() > 40);
  CHECK(findings(jobs) == "");
}

NVRTC_TEST_CASE("kernels that append compile without spills or advisories", "[kernels]") {
  std::vector<Job> jobs;
  for (const auto& [name, mod] : library())
    for (int pageSize : {0, 1, 16, 128}) {
      if (name != "alibi" && (name != "document" || pageSize == 16)) continue;
      const auto add = [&, &name = name, &mod = mod](KernelOptions options) {
        options.features = {Feature::Lengths, Feature::Appends};
        options.offsets = QueryOffsets::FromLengths;
        options.pageSize = pageSize;
        jobs.push_back(
            {fmt::format("{} {} d{}, pages of {}", name, options.arch, options.headDim, pageSize), mod, options});
      };
      for (int dim : {40, 64, 128}) add({.kind = KernelKind::Decode, .arch = "sm_90a", .headDim = dim});
      add({.kind = KernelKind::Decode, .arch = "sm_80", .dtype = DType::F16, .headDim = 128, .packedRows = 64});
      add({.family = Family::Sm80, .arch = "sm_80", .dtype = DType::F32, .headDim = 40});
    }
  REQUIRE(jobs.size() > 30);
  CHECK(findings(jobs) == "");
}

NVRTC_TEST_CASE("every head dim and dtype compiles without spills", "[kernels]") {
  auto causal = take(Mod::load(ATTNC_SOURCE_DIR "/dsl/mods/causal.py"));
  std::vector<Job> jobs;
  for (const char* arch : {"sm_80", "sm_89", "sm_90a"})
    for (DType dtype : {DType::BF16, DType::F16, DType::F32})
      for (auto [qk, v] : {std::pair{8, 8}, {40, 72}, {96, 96}, {192, 128}, {192, 192}, {256, 256}}) {
        KernelOptions options{.family = Family::Sm80, .arch = arch, .dtype = dtype, .headDim = qk, .headDimV = v};
        options.blockSparse = true;
        options.features = {Feature::RowMax};
        jobs.push_back({fmt::format("causal {} d{}/{} {}", dtypeName(dtype), qk, v, arch), causal, options});
      }
  for (auto [qk, v] : {std::pair{8, 8}, {40, 72}, {96, 96}, {192, 128}, {192, 192}})
    for (DType dtype : {DType::BF16, DType::F16}) {
      KernelOptions options{.family = Family::Sm90, .arch = "sm_90a", .dtype = dtype, .headDim = qk, .headDimV = v};
      jobs.push_back({fmt::format("causal sm90 {} d{}/{}", dtypeName(dtype), qk, v), causal, options});
    }
  CHECK(findings(jobs) == "");
}

NVRTC_TEST_CASE("backward kernels compile without spills or advisories, with lists and without", "[kernels]") {
  std::vector<Job> jobs;
  for (const auto& [name, mod] : library())
    for (bool sparse : {false, true})
      for (const char* arch : {"sm_80", "sm_89", "sm_90a"})
        for (Family family : {Family::Naive, Family::Sm80})
          for (int dim : {64, 128}) {
            if (sparse && !mod.hasMaskMod()) continue;
            if (family == Family::Naive && (dim == 128 || arch == std::string("sm_89"))) continue;
            jobs.push_back({fmt::format("{} {} d{}{} {}", name, familyName(family), dim, sparse ? " lists" : "", arch),
                            mod,
                            {.kind = KernelKind::Backward,
                             .family = family,
                             .arch = arch,
                             .headDim = dim,
                             .blockSparse = sparse}});
          }
  REQUIRE(jobs.size() > 60);
  CHECK(findings(jobs) == "");
}

NVRTC_TEST_CASE("backward kernels of Hopper draw no advisory, and spill only where a score needs much", "[kernels]") {
  std::vector<Job> jobs;
  for (const auto& [name, mod] : library())
    for (int headDim : {64, 128}) {
      const bool reads = headDim == 128 && name == "relative_bias"; // with dK and dV, a score that reads memory
      // At head dim 64, the rates of 128 rows.
      const bool rates = headDim == 64 && (name == "softcap" || name == "softcap_approx");
      for (bool deterministic : {false, true})
        for (bool lists : {false, true}) {
          if ((deterministic && name != "causal" && name != "noop") || (lists && !mod.hasMaskMod())) continue;
          // Lists with dK and dV of 128 columns, together with turns or a second product of the score.
          const bool listed = lists && headDim == 128 && (deterministic || name == "latent_rope");
          jobs.push_back(
              {fmt::format("{} d{}{}{}", name, headDim, deterministic ? " deterministic" : "", lists ? " lists" : ""),
               mod,
               {.kind = KernelKind::Backward,
                .family = Family::Sm90,
                .arch = "sm_90a",
                .headDim = headDim,
                .features = {Feature::Deterministic, deterministic},
                .blockSparse = lists},
               rates || listed ? 100
               : reads         ? 16
                               : 0});
        }
    }
  REQUIRE(jobs.size() > 40);
  CHECK(findings(jobs) == "");
}

NVRTC_TEST_CASE("backward kernels of wide heads compile for Hopper without spills or advisories",
                "[kernels][serialised]") {
  std::vector<Job> jobs;
  // What dK and dV of 192 and 128 columns leave is enough for these. Others are faster than in 64x64x8 all the same.
  const std::set<std::string> fit = {"noop", "causal", "alibi", "sliding_window", "prefix_lm", "chunked"};
  const auto add = [&](const std::string& name, const Mod& mod, int qk, int v, bool lists = false) {
    const bool tight = qk == 192 && v == 128 && !fit.count(name);
    jobs.push_back({.name = fmt::format("{} d{}/{}{}", name, qk, v, lists ? " lists" : ""),
                    .mod = mod,
                    .options = {.kind = KernelKind::Backward,
                                .family = Family::Sm90,
                                .arch = "sm_90a",
                                .headDim = qk,
                                .headDimV = v,
                                .blockSparse = lists},
                    .spillBytes = tight ? 100 : 0});
  };
  for (const auto& [name, mod] : library()) {
    for (auto [qk, v] : {std::pair{192, 128}, {256, 256}}) add(name, mod, qk, v);
    if (mod.hasMaskMod()) add(name, mod, 256, 256, true);
    if (name == "causal")
      for (auto [qk, v] : {std::pair{40, 72},
                           {64, 256},
                           {96, 256},
                           {136, 64},
                           {136, 136},
                           {144, 128},
                           {192, 192},
                           {248, 200},
                           {256, 64}})
        add(name, mod, qk, v);
  }
  REQUIRE(jobs.size() > 30);
  CHECK(findings(jobs) == "");
}

NVRTC_TEST_CASE("the tiles that tuning tries beside the model's compile without spills or advisories", "[kernels]") {
  std::vector<Job> jobs;
  const auto add = [&](const std::string& name, const Mod& mod, KernelOptions options) {
    if (options.blockSparse && !mod.hasMaskMod()) return;
    auto tiles = take(test::tilesOf(compiler(), mod, options));
    for (size_t i = 1; i < tiles.size(); ++i) { // the model's is compiled above
      options.tile = tiles[i];
      jobs.push_back(
          {fmt::format("{} kind {} {} d{} rows {}{}{} {}", name, int(options.kind), options.arch, options.headDim,
                       options.packedRows, options.features.has(Feature::Deterministic) ? " deterministic" : "",
                       options.blockSparse ? " lists" : "", options.tile),
           mod, options, name == "softcap_approx" && options.tile == "64x64x4" ? 8 : 0});
    }
  };
  constexpr KernelKind kBackward = KernelKind::Backward, kDecode = KernelKind::Decode;
  for (const auto& [name, mod] : library()) {
    for (bool lists : {false, true}) {
      add(name, mod, {.kind = kBackward, .arch = "sm_90a", .headDim = 64, .blockSparse = lists});
      for (const char* arch : {"sm_80", "sm_90a"})
        for (int dim : {64, 128})
          add(name, mod,
              {.kind = kBackward, .family = Family::Sm80, .arch = arch, .headDim = dim, .blockSparse = lists});
    }
    add(name, mod, {.kind = kDecode, .arch = "sm_90a", .headDim = 128, .features = {Feature::Lengths}});
    add(name, mod, {.kind = kDecode, .arch = "sm_80", .dtype = DType::F16, .headDim = 128, .packedRows = 64});
    if (name != "alibi" && name != "document" && name != "causal") continue;
    add(name, mod, {.kind = kBackward, .arch = "sm_80", .headDim = 128, .features = {Feature::Deterministic}});
    add(name, mod, {.kind = kBackward, .arch = "sm_80", .dtype = DType::F32, .headDim = 96});
    add(name, mod,
        {.kind = kDecode,
         .arch = "sm_90a",
         .headDim = 64,
         .features = {Feature::Lengths},
         .packedRows = 64,
         .pageSize = 16});
    for (int dim : {64, 128, 192})
      add(name, mod,
          {.kind = kDecode, .arch = "sm_89", .headDim = dim, .features = {Feature::Fp8Kv}, .packedRows = 32});
  }
  REQUIRE(jobs.size() > 100);
  CHECK(findings(jobs) == "");
}

NVRTC_TEST_CASE("each mod of the library compiles for each kind of kernel, and spills no more than known",
                "[kernels]") {
  // Next to dK and dV: scores that read memory, a mask that compares eight words of each row, and one that draws.
  const std::map<std::string, int> besideGradients = {{"drop_key", 8},         {"forgetting", 8},
                                                      {"t5_bias", 8},          {"graph_bias", 96},
                                                      {"shifted_window", 104}, {"top_k_blocks", 300}};
  std::vector<Job> jobs;
  for (const auto& [name, mod] : library(/*everywhere=*/false)) {
    const auto add = [&, &name = name, &mod = mod](KernelKind kind, Family family, const char* arch, int spillBytes = 0,
                                                   int dim = 128) {
      if (kind == KernelKind::Backward && mod.hasProbMod()) return; // of the naive family, in prob_mod_test.cpp
      if (kind != KernelKind::Forward && mod.hasWeightMod()) return;
      jobs.push_back(
          {fmt::format("{} kind {} {} {}{}", name, int(kind), familyName(family), arch, dim == 64 ? " d64" : ""),
           mod,
           {.kind = kind, .family = family, .arch = arch, .headDim = dim},
           spillBytes});
    };
    // A mask that divides by a run-time int, one that draws, and one that interleaves bits.
    add(KernelKind::Forward, Family::Sm90, "sm_90a",
        name == "block_diffusion"         ? 184
        : name == "drop_key"              ? 248
        : name == "morton_neighborhood2d" ? 144
                                          : 0,
        64);
    // Masks by three coordinates of a grid.
    add(KernelKind::Forward, Family::Sm90, "sm_90a", name == "sparse_video" ? 250 : 0);
    add(KernelKind::Forward, Family::Sm80, "sm_80",
        name == "sliding_tile"   ? 128
        : name == "sparse_video" ? 64
        : name == "dropout"      ? 48
                                 : 0);
    add(KernelKind::Decode, Family::Sm90, "sm_90a");
    const auto known = besideGradients.find(name);
    add(KernelKind::Backward, Family::Sm90, "sm_90a", known == besideGradients.end() ? 0 : known->second);
    add(KernelKind::Backward, Family::Sm80, "sm_80");
  }
  REQUIRE(jobs.size() > 100);
  CHECK(findings(jobs) == "");
}

NVRTC_TEST_CASE("long sums and angles of scores compile without spills or advisories in every family", "[kernels]") {
  const auto row = [](int dims) { return fmt::format("q: bf16[B, H, Q_LEN, {0}]\nk: bf16[B, KV_LEN, {0}]\n", dims); };
  std::vector<std::pair<std::string, std::string>> texts;
  for (int dims : {64, 128, 256}) {
    texts.emplace_back(fmt::format("dot {}", dims), row(dims) + "score + q[b, h, q_idx] @ k[b, kv_idx]");
    texts.emplace_back(fmt::format("distance {}", dims),
                       row(dims) + "torch.exp(-((q[b, h, q_idx] - k[b, kv_idx]) ** 2).sum()) * score");
  }
  texts.emplace_back("masked", row(64) + "def score_mod(score, b, h, q, kv): return score\n"
                                         "def mask_mod(b, h, i, j): return torch.dot(q[b, h, i], k[b, j]) > 0\n");
  texts.emplace_back("rows", row(64) + "score + q[b, h, q_idx].sum() / k[b, kv_idx].mean()");
  for (const char* angle : {"sin", "cos", "tan"}) texts.emplace_back(angle, fmt::format("torch.{}(score)", angle));
  std::vector<Job> jobs;
  for (auto& [name, text] : texts) {
    auto mod = take(Mod::parse("import torch\n" + text));
    for (const Variant& variant : variants()) {
      KernelOptions options = variant.options;
      options.arch = options.family == Family::Sm90 ? "sm_90a" : "sm_80";
      const bool isMask = options.kind == KernelKind::BlockMask;
      if (options.headDim > 128 || (isMask || options.blockSparse) != mod.hasMaskMod()) continue;
      jobs.push_back({fmt::format("{} {} d{}", name, variant.name, options.headDim), mod, options});
    }
  }
  CHECK(findings(jobs) == "");
}

NVRTC_TEST_CASE("every kernel with a captured tensor has the zero that a tensor without elements is read from",
                "[kernels]") {
  auto mod = take(Mod::parse("limits: i32[N]\ndef mask_mod(b, h, q_idx, kv_idx):\n    return kv_idx < limits[h]\n"));
  for (const Variant& variant : templates()) {
    INFO(variant.name);
    auto kernel = take(test::compiledOf(compiler(), mod, variant.options));
    const std::string name = codegen::kZeroVariable + std::string(1, '\0');
    for (const auto& stage : kernel) {
      const std::vector<char>& cubin = stage->cubin;
      CHECK(std::search(cubin.begin(), cubin.end(), name.begin(), name.end()) != cubin.end());
    }
  }
}

NVRTC_TEST_CASE("as many captures as a mod may have fit into the parameters of every kernel", "[kernels]") {
  // For each tensor, a kernel takes the address, six strides, six sizes, and six extents with names of their own.
  std::string text, sum;
  for (size_t i = 0; i < ir::kMaxCaptures; ++i) {
    std::string dims, index, extents;
    for (int axis = 0; axis < TensorView::kMaxRank; ++axis) {
      dims += fmt::format("{}N{}_{}", axis ? ", " : "", i, axis);
      index += axis ? ", h" : "h";
      extents += fmt::format(" + N{}_{}", i, axis);
    }
    text += fmt::format("t{}: i32[{}]\n", i, dims);
    sum += fmt::format("    x = x + t{}[{}]{}\n", i, index, extents);
  }
  auto mod =
      take(Mod::parse(text + "def mask_mod(b, h, q_idx, kv_idx):\n    x = q_idx\n" + sum + "    return x > kv_idx\n"));
  auto kernelMod = take(kernelModOf(mod, passes::Algebra{}));
  CHECK(kernelMod->source.slots.size() >= ir::kMaxCaptures * (1 + 3 * TensorView::kMaxRank));
  for (const Variant& variant : templates()) {
    if (!test::isCaseDue()) continue;
    INFO(variant.name);
    auto kernel = take(test::compiledOf(compiler(), mod, variant.options));
  }
}

NVRTC_TEST_CASE("the parameters of a kernel may take 32764 bytes on every arch", "[kernels]") {
  jit::Nvrtc nvrtc(jit::Env::read());
  const auto compiles = [&](const char* arch, size_t bytes) {
    KernelSource job{.entry = "touch", .templateName = "parameters.cu", .arch = arch};
    job.text = fmt::format("struct Words {{ unsigned x[{}]; }};\n"
                           "extern \"C\" __global__ void touch(const __grid_constant__ Words words) {{\n"
                           "  *(unsigned*)(size_t)words.x[threadIdx.x] = 0;\n}}\n",
                           bytes / 4);
    return bool(nvrtc.compile(job));
  };
  for (const char* arch : {"sm_80", "sm_89", "sm_90a", "sm_100", "sm_120"}) {
    INFO(arch);
    CHECK(compiles(arch, 32764));
    CHECK_FALSE(compiles(arch, 32768));
  }
}

NVRTC_TEST_CASE("what joins stages compiles for every dtype and arch, without spills", "[kernels]") {
  jit::Nvrtc nvrtc(jit::Env::read());
  for (const char* arch : {"sm_80", "sm_90a", "sm_100"})
    for (const DType dtype : {DType::BF16, DType::F16, DType::F32})
      for (const int headDim : {8, 128, 256}) {
        if (!test::isCaseDue()) continue;
        CAPTURE(arch, dtypeName(dtype), headDim);
        for (const auto stageOf : {StageKernels::mergeStage, StageKernels::weighStage, StageKernels::addStage}) {
          auto job = take(modlessSource(stageOf(dtype, headDim), arch, "stages"));
          auto compiled = take(nvrtc.compile(job));
          CHECK(compiled.spillBytes == 0);
        }
      }
}
