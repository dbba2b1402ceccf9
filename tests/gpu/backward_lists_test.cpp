// Gradients by the lists of a block mask against the fp64 reference.
#include "gpu.h"
#include "helpers/plans.h"
#include "helpers/turns.h"

#include <algorithm>
#include <random>

using namespace attnc;
using namespace attnc::gputest;

namespace {

KernelOptions optionsFor(KernelKind kind, Family family, const Problem& problem, const BlockMaskShape& shape) {
  return {.kind = kind,
          .family = family,
          .arch = gpu()->context.info().arch,
          .dtype = problem.dtype,
          .headDim = problem.headDim,
          .headDimV = problem.headDimV,
          .blockSparse = true,
          .maskQBlock = shape.qBlock,
          .maskKvBlock = shape.kvBlock};
}

/// Returns the families that walk these lists in both passes.
std::vector<Family> servingFamilies(const Mod& mod, const Problem& problem, const BlockMaskShape& shape) {
  std::vector<Family> families;
  for (Family family : {Family::Naive, Family::Sm80, Family::Sm90})
    if (test::sourcesOf(gpu()->compiler, mod, optionsFor(KernelKind::Forward, family, problem, shape)) &&
        test::sourcesOf(gpu()->compiler, mod, optionsFor(KernelKind::Backward, family, problem, shape)))
      families.push_back(family);
  return families;
}

/// Whether the family can add up in one order, with mods that only mask.
bool isDeterministic(Family family, const Problem& problem, const BlockMaskShape& shape) {
  return family != Family::Sm90 || std::max(problem.headDim, problem.headDimV) <= 128 ||
         (problem.headDim <= 192 && problem.headDimV <= 128 && shape.kvBlock >= 128);
}

void compileAhead(const Mod& mod, const std::vector<Problem>& problems, const std::vector<BlockMaskShape>& shapes) {
  std::vector<std::pair<Mod, KernelOptions>> jobs;
  for (const Problem& problem : problems)
    for (const BlockMaskShape& shape : shapes)
      for (Family family : servingFamilies(mod, problem, shape))
        for (KernelKind kind : {KernelKind::Forward, KernelKind::Backward})
          for (bool deterministic : {false, true}) {
            if (deterministic && (kind == KernelKind::Forward || !isDeterministic(family, problem, shape))) continue;
            jobs.push_back({mod, optionsFor(kind, family, problem, shape)});
            jobs.back().second.features.set(Feature::Deterministic, deterministic);
          }
  gputest::compileAhead(jobs);
}

/// `toReference`: whether the reference also takes the lists; else it only uses the mod.
void checkLists(const Mod& mod, const Problem& problem, const HostOperands& operands, const BlockMask& mask,
                bool toReference) {
  const ResultGradients given = drawGradients(problem, /*withLse=*/true);
  const Gradients expected = runReferenceBackward(mod, operands, given, {}, toReference ? &mask : nullptr);
  const std::vector<Family> families = servingFamilies(mod, problem, mask.shape());
  REQUIRE(families.size() >= 2);
  for (Family family : families) {
    INFO(familyName(family) << ", " << mod.name() << ", " << problem.text() << ", blocks " << mask.shape().qBlock
                            << " x " << mask.shape().kvBlock << "\n"
                            << mask.toString());
    const Gradients first = runBackward(mod, problem, operands, given, {.family = family, .mask = &mask});
    checkGradients(first, expected, problem);
    if (!isDeterministic(family, problem, mask.shape())) continue;
    const auto deterministic = [&] {
      return runBackward(mod, problem, operands, given, {.family = family, .mask = &mask, .deterministic = true});
    };
    const Gradients exact = deterministic(), again = deterministic();
    checkGradients(exact, expected, problem);
    CHECK((again.dQ == exact.dQ)); // in parentheses: no one reads a million numbers
    CHECK((again.dK == exact.dK));
    CHECK((again.dV == exact.dV));
  }
}

/// A block is empty, partial or full by chance; some rows and columns of blocks are empty as a whole.
BlockMask randomMask(const BlockMaskShape& shape, uint32_t seed) {
  std::mt19937 random(seed);
  const auto chance = [&](int percent) { return int(random() % 100) < percent; };
  const int64_t rows = shape.batch * shape.heads * shape.qBlocks(), columns = shape.kvBlocks();
  std::vector<int32_t> partialCount(size_t(rows), 0), fullCount(size_t(rows), 0);
  std::vector<int32_t> partialIndex(size_t(rows * columns), 0), fullIndex(size_t(rows * columns), 0);
  std::vector<bool> emptyColumn;
  for (int64_t row = 0; row < rows; ++row) {
    if (row % shape.qBlocks() == 0) {
      emptyColumn.clear();
      for (int64_t column = 0; column < columns; ++column) emptyColumn.push_back(chance(25));
    }
    const bool emptyRow = chance(25);
    for (int64_t column = columns; column-- > 0;) { // from the last one: the order of entries is free
      if (emptyRow || emptyColumn[size_t(column)] || chance(40)) continue;
      const bool full = chance(50);
      int32_t& count = (full ? fullCount : partialCount)[size_t(row)];
      (full ? fullIndex : partialIndex)[size_t(row * columns + count++)] = int32_t(column);
    }
  }
  return take(BlockMask::fromLists({.shape = shape,
                                    .partialCount = partialCount.data(),
                                    .partialIndex = partialIndex.data(),
                                    .fullCount = fullCount.data(),
                                    .fullIndex = fullIndex.data(),
                                    .indexStride = columns}));
}

constexpr std::pair<int, int> kBlocks[] = {{128, 128}, {64, 64}, {256, 64}, {64, 256}};

} // namespace

GPU_TEST_CASE("gradients of library masks by lists agree with the reference", "[gpu][backward]") {
  const std::vector<Problem> problems = {{{2, 4, 2, 300, 300}, 64, 64, DType::BF16},
                                         {{1, 2, 1, 130, 513}, 64, 64, DType::BF16},
                                         {{1, 2, 2, 513, 130}, 128, 128, DType::F16},
                                         {{1, 2, 2, 200, 200}, 64, 32, DType::F32}};
  for (const char* name : {"document", "prefix_lm", "causal", "sliding_window", "global_local", "neighborhood2d"}) {
    const Mod mod = libraryMod(name);
    std::vector<BlockMaskShape> blocks;
    for (auto [qBlock, kvBlock] : kBlocks) blocks.push_back({.qBlock = qBlock, .kvBlock = kvBlock});
    compileAhead(mod, problems, blocks);
    for (const Problem& problem : problems) {
      if (!test::isCaseDue()) continue;
      const HostOperands operands = draw(mod, problem);
      const ProblemShape& s = problem.shape;
      for (auto [qBlock, kvBlock] : kBlocks) {
        const BlockMaskShape shape{s.batch, s.qHeads, s.qLen, s.kvLen, qBlock, kvBlock};
        checkLists(mod, problem, operands, take(BlockMask::build(mod, operands.captures, s, shape)),
                   /*toReference=*/false);
      }
    }
  }
}

GPU_TEST_CASE("gradients by random lists agree with the reference, empty rows and columns included",
              "[gpu][backward]") {
  // A mask that is an interval of each row, one that is not, and none: full blocks are taken as they are listed.
  const Mod mods[] = {take(Mod::parse("q_idx >= kv_idx - 100")),
                      take(Mod::parse("(q_idx * 7 + kv_idx * 3 + h) % 5 != 0")), libraryMod("alibi")};
  const std::vector<Problem> problems = {{{2, 4, 2, 700, 450}, 64, 64, DType::BF16},
                                         {{3, 2, 1, 257, 600}, 64, 64, DType::BF16, /*kvBatchOne=*/true},
                                         {{1, 4, 2, 300, 260}, 192, 128, DType::BF16},
                                         {{1, 2, 2, 300, 300}, 128, 128, DType::F32}};
  for (const Mod& mod : mods) {
    std::vector<BlockMaskShape> blocks;
    for (auto [qBlock, kvBlock] : kBlocks) blocks.push_back({.qBlock = qBlock, .kvBlock = kvBlock});
    compileAhead(mod, problems, blocks);
    uint32_t seed = 0;
    for (const Problem& problem : problems) {
      const HostOperands operands = draw(mod, problem);
      const ProblemShape& s = problem.shape;
      for (auto [qBlock, kvBlock] : kBlocks)
        for (bool shared : {false, true}) {
          const BlockMaskShape shape{shared ? 1 : s.batch, shared ? 1 : s.qHeads, s.qLen, s.kvLen, qBlock, kvBlock};
          checkLists(mod, problem, operands, randomMask(shape, ++seed), /*toReference=*/true);
        }
    }
  }
}

GPU_TEST_CASE("gradients by lists whose last blocks reach past the end by whole tiles agree with the reference",
              "[gpu][backward]") {
  const Mod mod = libraryMod("alibi");
  for (int headDim : {64, 128, 192})
    for (const ProblemShape& s :
         {ProblemShape{1, 1, 1, 100, 150}, {2, 4, 2, 384, 130}, {1, 2, 1, 257, 300}, {1, 2, 1, 3, 200}}) {
      const Problem problem{s, headDim, headDim, DType::BF16};
      const HostOperands operands = draw(mod, problem);
      checkLists(mod, problem, operands, randomMask({s.batch, s.qHeads, s.qLen, s.kvLen, 256, 256}, 3),
                 /*toReference=*/true);
    }
}

GPU_TEST_CASE("rows and columns of blocks that are not listed have gradients 0", "[gpu][backward]") {
  // Blocks of 64: rows 0 and columns 1 are empty, and the rest is full.
  const Problem problem{{1, 1, 1, 150, 200}, 64, 64, DType::BF16};
  std::vector<int32_t> partialCount(3, 0), partialIndex(3 * 4, 0), fullCount{0, 3, 3};
  std::vector<int32_t> fullIndex{0, 0, 0, 0, 0, 2, 3, 0, 0, 2, 3, 0};
  const BlockMask mask = take(BlockMask::fromLists({.shape = {1, 1, 150, 200, 64, 64},
                                                    .partialCount = partialCount.data(),
                                                    .partialIndex = partialIndex.data(),
                                                    .fullCount = fullCount.data(),
                                                    .fullIndex = fullIndex.data(),
                                                    .indexStride = 4}));
  const Mod mod = Mod::identity();
  const HostOperands operands = draw(mod, problem);
  for (Family family : servingFamilies(mod, problem, mask.shape())) {
    INFO(familyName(family));
    const Gradients got =
        runBackward(mod, problem, operands, drawGradients(problem, true), {.family = family, .mask = &mask});
    const auto zeros = [](const std::vector<double>& d, int begin, int end) {
      return std::count(d.begin() + begin * 64, d.begin() + end * 64, 0.0);
    };
    CHECK(zeros(got.dQ, 0, 64) == 64 * 64);
    CHECK(zeros(got.dQ, 64, 150) < 64);
    for (const std::vector<double>* d : {&got.dK, &got.dV}) {
      CHECK(zeros(*d, 64, 128) == 64 * 64);
      CHECK(zeros(*d, 0, 64) < 64);
      CHECK(zeros(*d, 128, 200) < 64);
    }
  }
}

GPU_TEST_CASE("training prepared for masks that want lists, and for one that does not, agrees with the reference",
              "[gpu][backward]") {
  for (const char* name : {"document", "neighborhood2d", "causal"}) {
    const Mod mod = libraryMod(name);
    for (const Problem& problem :
         {Problem{{2, 4, 2, 700, 700}, 64, 64, DType::BF16}, {{1, 2, 1, 300, 513}, 128, 128, DType::F16}}) {
      INFO(name << ", " << problem.text());
      const HostOperands operands = draw(mod, problem);
      const ResultGradients given = drawGradients(problem, /*withLse=*/true);
      checkGradients(runBackward(mod, problem, operands, given, {.family = Family::Auto}),
                     runReferenceBackward(mod, operands, given), problem);
    }
  }
  // A mask of the caller's.
  const Problem problem{{2, 4, 2, 700, 450}, 64, 64, DType::BF16};
  const Mod mod = libraryMod("alibi");
  const HostOperands operands = draw(mod, problem);
  const ResultGradients given = drawGradients(problem, /*withLse=*/true);
  const BlockMask mask = randomMask({2, 4, 700, 450, 128, 128}, 1);
  checkGradients(runBackward(mod, problem, operands, given, {.family = Family::Auto, .mask = &mask}),
                 runReferenceBackward(mod, operands, given, {}, &mask), problem);
}

GPU_TEST_CASE("masks of a score_mod hold in full blocks of a caller's lists", "[gpu][backward]") {
  const char* const masking[] = {
      "where(q_idx >= kv_idx, score, -inf)",
      "def score_mod(s, b, h, q, k):\n    return s * 0.5 + where(q - k < 90, 0, -inf) - 0.01 * (q - k)\n"
      "def mask_mod(b, h, q, k):\n    return k < 260\n",
      "ids: i32[B, KV_LEN]\ndef score_mod(s, b, h, q, k):\n    return where(ids[b, q] == ids[b, k], 2 * tanh(s / 2), "
      "-inf)\n"};
  for (const char* text : masking) {
    const std::string whole = text;
    const size_t at = whole.find("def mask_mod");
    const Mod mod = take(Mod::parse(text)),
              mask = at == std::string::npos ? Mod::identity() : take(Mod::parse(whole.substr(at)));
    for (const Problem& problem :
         {Problem{{2, 4, 2, 520, 520}, 64, 64, DType::BF16}, Problem{{2, 4, 2, 130, 1000}, 64, 64, DType::F16},
          Problem{{1, 2, 1, 300, 300}, 128, 64, DType::F32}}) {
      const HostOperands operands = draw(mod, problem);
      const ProblemShape& s = problem.shape;
      for (auto [qBlock, kvBlock] : {std::pair(128, 128), {64, 256}}) {
        const BlockMask lists = take(BlockMask::build(mask, {}, s, {s.batch, 1, s.qLen, s.kvLen, qBlock, kvBlock}));
        CHECK(lists.fullBlocks() > 0);
        checkLists(mod, problem, operands, lists, /*toReference=*/false);
        for (Family family : {Family::Auto, Family::Naive, Family::Sm80}) {
          INFO(text << ", " << problem.text() << ", family " << familyName(family));
          checkClose(runKernel(mod, problem, operands, {.family = family, .mask = &lists}),
                     runReference(mod, problem, operands), problem);
        }
      }
    }
  }
}

GPU_TEST_CASE("a deterministic backward pass on Hopper goes by lists by column, and ends whatever those by row say",
              "[gpu][backward]") {
  const Mod mod = libraryMod("alibi");
  for (int headDim : {64, 128}) {
    const Problem problem{{2, 4, 2, 700, 900}, headDim, headDim, DType::BF16};
    const ProblemShape& s = problem.shape;
    const BlockMask mask = randomMask({s.batch, s.qHeads, s.qLen, s.kvLen, 128, 128}, 7);
    if (!test::sourcesOf(gpu()->compiler, mod, optionsFor(KernelKind::Backward, Family::Sm90, problem, mask.shape())))
      continue;
    const HostOperands operands = draw(mod, problem);
    const ResultGradients given = drawGradients(problem, /*withLse=*/true);
    BackwardRun run{.family = Family::Sm90, .mask = &mask, .deterministic = true};
    const Gradients expected = runBackward(mod, problem, operands, given, run);
    run.forgetsRows = true;
    const Gradients computed = runBackward(mod, problem, operands, given, run);
    CHECK((computed.dQ == expected.dQ)); // in parentheses: no one reads a million numbers
    CHECK((computed.dK == expected.dK));
    CHECK((computed.dV == expected.dV));
  }
}
