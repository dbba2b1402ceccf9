// Every tile that a backward or a decode kernel may be asked for, against the fp64 reference.
#include "gpu.h"
#include "helpers/plans.h"
#include "helpers/turns.h"

#include <algorithm>

using namespace attnc;
using namespace attnc::gputest;

namespace {

/// Returns the kernel of these options with each of its tiles; empty if the family does not serve them here.
std::vector<KernelOptions> withEachTile(const Mod& mod, KernelOptions options) {
  std::vector<KernelOptions> all;
  options.arch = gpu()->context.info().arch;
  const auto tiles = test::tilesOf(gpu()->compiler, mod, options);
  if (!tiles) return all;
  for (const std::string& tile : *tiles) {
    all.push_back(options);
    all.back().tile = tile;
  }
  return all;
}

std::vector<std::pair<Mod, KernelOptions>> jobsOf(const Mod& mod, const std::vector<KernelOptions>& all) {
  std::vector<std::pair<Mod, KernelOptions>> jobs;
  for (const KernelOptions& options : all) jobs.emplace_back(mod, options);
  return jobs;
}

/// `mask`: null, or the lists that both passes walk.
void checkBackward(const Mod& mod, const Problem& problem, const std::vector<KernelOptions>& all,
                   const BlockMask* mask = nullptr) {
  compileAhead(jobsOf(mod, all));
  const HostOperands operands = draw(mod, problem);
  const ResultGradients given = drawGradients(problem, /*withLse=*/true);
  const Gradients expected = runReferenceBackward(mod, operands, given, {}, mask);
  for (const KernelOptions& options : all) {
    INFO(problem.text() << ", family " << familyName(options.family) << ", tile " << options.tile
                        << (options.features.has(Feature::Deterministic) ? ", deterministic" : ""));
    checkGradients(runBackward(mod, problem, operands, given,
                               {.family = options.family,
                                .mask = mask,
                                .deterministic = options.features.has(Feature::Deterministic),
                                .tile = options.tile}),
                   expected, problem);
  }
}

} // namespace

GPU_TEST_CASE("every tile of a backward kernel gives the gradients", "[gpu][backward]") {
  size_t most = 0;
  for (const char* name : {"causal", "alibi", "softcap", "learned_bias"})
    for (auto [qk, v, dtype] : {std::tuple(64, 64, DType::BF16),
                                {32, 24, DType::F16},
                                {128, 128, DType::BF16},
                                {8, 128, DType::F16},
                                {72, 96, DType::BF16},
                                {64, 64, DType::F32},
                                {96, 96, DType::F32}})
      for (bool deterministic : {false, true}) {
        if (deterministic && name != std::string("causal")) continue;
        const Mod mod = libraryMod(name);
        const Problem problem{{2, 4, 2, 259, 387}, qk, v, dtype};
        std::vector<KernelOptions> all;
        for (Family family : {Family::Sm80, Family::Sm90}) {
          const auto tiles = withEachTile(mod, {.kind = KernelKind::Backward,
                                                .family = family,
                                                .dtype = dtype,
                                                .headDim = qk,
                                                .headDimV = v,
                                                .features = {Feature::Deterministic, deterministic}});
          most = std::max(most, tiles.size());
          all.insert(all.end(), tiles.begin(), tiles.end());
        }
        REQUIRE_FALSE(all.empty());
        checkBackward(mod, problem, all);
      }
  CHECK(most >= 3);
}

GPU_TEST_CASE("every tile of a backward kernel walks lists of blocks", "[gpu][backward]") {
  const Mod mod = libraryMod("causal");
  for (int headDim : {64, 128}) {
    const Problem problem{{1, 4, 2, 515, 643}, headDim, headDim, DType::BF16};
    for (int block : {64, 128, 256}) {
      const BlockMaskShape shape{1, 1, problem.shape.qLen, problem.shape.kvLen, block, block};
      const BlockMask mask = take(BlockMask::build(mod, {}, problem.shape, shape));
      for (Family family : {Family::Sm80, Family::Sm90}) {
        const auto all = withEachTile(mod, {.kind = KernelKind::Backward,
                                            .family = family,
                                            .headDim = headDim,
                                            .headDimV = headDim,
                                            .blockSparse = true,
                                            .maskQBlock = block,
                                            .maskKvBlock = block});
        if (!all.empty()) checkBackward(mod, problem, all, &mask);
      }
    }
  }
}

// An odd number of tiles of q, a single row, and a last tile that has one row; two heads for each KV head, or one.
GPU_TEST_CASE("every tile of a forward kernel gives the results", "[gpu]") {
  size_t clusters = 0;
  for (const char* name : {"noop", "causal", "alibi", "sliding_window", "prefix_lm", "padding"})
    for (auto [qk, v] : {std::pair(64, 64), {128, 128}, {192, 128}, {256, 256}})
      for (auto [kvHeads, qLen] : {std::pair(2, 385), {4, 257}, {2, 1}}) {
        if (!test::isCaseDue()) continue;
        const Mod mod = libraryMod(name);
        const Problem problem{{2, 4, kvHeads, qLen, 333}, qk, v, DType::BF16};
        const auto all = withEachTile(mod, {.family = Family::Sm90, .headDim = qk, .headDimV = v});
        compileAhead(jobsOf(mod, all));
        const HostOperands operands = draw(mod, problem);
        const Outcome expected = runReference(mod, problem, operands);
        for (const KernelOptions& options : all) {
          INFO(name << ", " << problem.text() << ", tile " << options.tile);
          const std::string_view tile = options.tile;
          clusters += tile.ends_with("-2heads") || tile.ends_with("-2tiles");
          if (tile.ends_with("-2heads") && kvHeads == 4) continue; // refused
          checkClose(runKernel(mod, problem, operands, {.family = Family::Sm90, .launches = 2, .tile = options.tile}),
                     expected, problem, false, scoreErrorOf(name, problem.shape));
        }
      }
  CHECK((clusters > 0 || gpu()->context.info().arch != "sm_90a"));
}

GPU_TEST_CASE("every tile of a decode kernel gives the results, of sequences of any length", "[gpu]") {
  const std::vector<int32_t> lengths = {0, 1, 17, 64, 129, 1000, 4999};
  for (const char* name : {"causal", "alibi", "document"})
    for (auto [qk, v, qLen] : {std::tuple(64, 64, 1), {128, 128, 1}, {128, 128, 20}, {40, 72, 7}, {192, 256, 1}}) {
      const Mod mod = libraryMod(name);
      const Problem problem{{int64_t(lengths.size()), 6, 2, qLen, 5000}, qk, v, DType::BF16};
      HostOperands operands = draw(mod, problem);
      operands.kvLengths = lengths;
      const Outcome expected = runReference(mod, problem, operands);
      for (Family family : {Family::Sm80, Family::Sm90}) {
        const int rows = qLen * 3;
        const auto all = withEachTile(mod, {.kind = KernelKind::Decode,
                                            .family = family,
                                            .headDim = qk,
                                            .headDimV = v,
                                            .features = {Feature::Lengths},
                                            .packedRows = rows <= 16   ? 16
                                                          : rows <= 32 ? 32
                                                                       : 64,
                                            .offsets = QueryOffsets::FromLengths});
        for (const KernelOptions& options : all) {
          if (!test::isCaseDue()) continue;
          INFO(name << ", " << problem.text() << ", family " << familyName(family) << ", tile " << options.tile);
          RunOptions run{.family = family, .decode = true, .launches = 2, .tile = options.tile};
          checkClose(runKernel(mod, problem, operands, run), expected, problem, false,
                     scoreErrorOf(name, problem.shape));
        }
      }
    }
}
