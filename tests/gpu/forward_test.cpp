// All families of forward kernels against the fp64 reference: every library mod, dtype, and awkward size.
#include "gpu.h"

#include "helpers/turns.h"

#include "support/element.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace attnc;
using namespace attnc::gputest;

namespace {

/// Around the edges of every tile (16, 32, 64, 128, 192), ragged, tiny, and GQA at ratios that are no power of two.
const ProblemShape kShapes[] = {{1, 1, 1, 1, 1},     {2, 4, 2, 129, 257}, {1, 3, 1, 64, 128},  {1, 6, 2, 127, 63},
                                {2, 5, 5, 300, 200}, {1, 2, 1, 17, 400},  {1, 1, 1, 256, 129}, {1, 2, 2, 193, 191}};

/// Runs a problem through every family that serves it, without a block mask and with one, against the reference.
void checkFamilies(const Mod& mod, const Problem& problem, const RunOptions& base = {}, double scoreError = 0) {
  const HostOperands operands = draw(mod, problem);
  const Outcome expected = runReference(mod, problem, operands, base.scale);
  for (bool blockMask : {false, true}) {
    if (blockMask && !mod.hasMaskMod()) continue;
    RunOptions options = base;
    options.blockMask = blockMask;
    for (Family family : familiesFor(mod, problem, options)) {
      options.family = family;
      INFO(problem.text() << ", family " << int(family) << (blockMask ? ", block mask" : ""));
      checkClose(runKernel(mod, problem, operands, options), expected, problem, base.tf32, scoreError);
    }
  }
}

/// checkFamilies for a library mod at several shapes, the kernels compiled ahead in parallel.
void checkLibraryMod(const std::string& name, DType dtype, std::vector<ProblemShape> shapes, int headDim,
                     int headDimV) {
  INFO(name);
  const Mod mod = libraryMod(name);
  std::vector<Problem> problems;
  for (const ProblemShape& shape : shapes) {
    problems.push_back({shape, headDim, headDimV, dtype});
    problems.back().seed = uint64_t(shape.qLen * 1000 + shape.kvLen);
  }
  std::vector<std::pair<Mod, KernelOptions>> jobs;
  for (bool blockMask : {false, true})
    for (Family family : familiesFor(mod, problems[0], {.blockMask = blockMask}))
      jobs.emplace_back(mod, kernelOptions(mod, problems[0], {.family = family, .blockMask = blockMask}));
  compileAhead(jobs);
  for (const Problem& problem : problems) checkFamilies(mod, problem, {}, scoreErrorOf(name, problem.shape, dtype));
}

} // namespace

GPU_TEST_CASE("all families agree with the reference on every library mod in bf16", "[gpu]") {
  for (const std::string& name : libraryNames())
    for (int headDim : {64, 128})
      if (test::isCaseDue())
        checkLibraryMod(name, DType::BF16, {std::begin(kShapes), std::end(kShapes)}, headDim, headDim);
}

GPU_TEST_CASE("all families agree with the reference on every library mod in fp16", "[gpu]") {
  for (const std::string& name : libraryNames())
    if (test::isCaseDue()) checkLibraryMod(name, DType::F16, {std::begin(kShapes), std::end(kShapes)}, 128, 128);
}

GPU_TEST_CASE("all families agree with the reference on every library mod in fp32", "[gpu]") {
  for (const std::string& name : libraryNames())
    if (test::isCaseDue()) checkLibraryMod(name, DType::F32, {std::begin(kShapes), std::end(kShapes)}, 64, 64);
}

GPU_TEST_CASE("each mod of the library agrees with the reference in all families", "[gpu]") {
  for (const std::string& name : libraryNames(/*everywhere=*/false))
    checkLibraryMod(name, DType::BF16, {{2, 4, 2, 200, 200}, {1, 2, 1, 130, 257}}, 64, 64);
}

GPU_TEST_CASE("every head dim that is a multiple of 8 works, also with another one for v", "[gpu]") {
  for (DType dtype : {DType::BF16, DType::F32})
    for (auto [qk, v] : {std::pair{8, 8},
                         {16, 16},
                         {24, 40},
                         {32, 32},
                         {72, 40},
                         {80, 80},
                         {96, 96},
                         {104, 8},
                         {128, 64},
                         {136, 136},
                         {192, 128},
                         {192, 192},
                         {200, 256},
                         {256, 256}})
      checkLibraryMod("causal", dtype, {{1, 2, 1, 130, 190}}, qk, v);
}

GPU_TEST_CASE("more tiles than the GPU has room for at once", "[gpu]") {
  for (const char* name : {"causal", "alibi", "document", "prefix_lm", "sliding_window"})
    for (bool workspace : {false, true}) {
      INFO(name << (workspace ? ", workspace" : ""));
      checkFamilies(libraryMod(name), {{4, 24, 6, 600, 500}, 64, 64, DType::BF16}, {.workspace = workspace},
                    scoreErrorOf(name, {4, 24, 6, 600, 500}));
    }
}

GPU_TEST_CASE("tf32 is used only when asked for, and then within its error", "[gpu]") {
  const Mod mod = libraryMod("causal");
  const Problem problem{{1, 2, 2, 200, 200}, 64, 64, DType::F32};
  const HostOperands operands = draw(mod, problem);
  const Outcome expected = runReference(mod, problem, operands);
  const Outcome tf32 = runKernel(mod, problem, operands, {.tf32 = true});
  const Outcome exact = runKernel(mod, problem, operands, {});
  checkClose(tf32, expected, problem, true);
  checkClose(exact, expected, problem);
  double worst = 0;
  for (size_t i = 0; i < tf32.out.size(); ++i) worst = std::max(worst, std::abs(tf32.out[i] - expected.out[i]));
  CHECK(worst > 1e-5); // else the option does nothing
}

GPU_TEST_CASE("strides, unaligned rows and a broadcast KV batch give the same results", "[gpu]") {
  for (const char* name : {"noop", "alibi"})
    for (DType dtype : {DType::BF16, DType::F32})
      for (int64_t padding : {0, 1, 8})
        for (bool headsLast : {false, true})
          for (bool kvBatchOne : {false, true})
            checkFamilies(libraryMod(name), {{3, 4, 2, 70, 150}, 40, 40, dtype, kvBatchOne, headsLast, padding}, {},
                          scoreErrorOf(name, {3, 4, 2, 70, 150}));
}

GPU_TEST_CASE("unaligned rows are served where the family is left to the catalogue", "[gpu]") {
  for (const char* name : {"causal", "document"})
    for (bool headsLast : {false, true})
      for (bool blockMask : {false, true}) {
        const Mod mod = libraryMod(name);
        const Problem problem{.shape = {2, 4, 2, 130, 190}, .headDimV = 40, .headsLast = headsLast, .rowPadding = 1};
        const HostOperands operands = draw(mod, problem);
        INFO(name << ", " << problem.text() << (blockMask ? ", block mask" : ""));
        checkClose(runKernel(mod, problem, operands, {.family = Family::Auto, .blockMask = blockMask}),
                   runReference(mod, problem, operands), problem);
      }
}

GPU_TEST_CASE("fully masked rows give output 0, lse -inf and row max -inf", "[gpu]") {
  const Problem problem{{1, 2, 1, 150, 300}, 64, 64, DType::BF16};
  const Mod none = take(Mod::parse("q_idx % 3 == kv_idx % 2 + 5")); // no row has a column
  CHECK(runReference(none, problem, draw(none, problem)).lse[0] == -std::numeric_limits<double>::infinity());
  checkFamilies(none, problem);
  checkFamilies(take(Mod::parse("(q_idx % 3 > 0) & (kv_idx > 40)")),
                problem);                                            // two of three rows, from another tile on
  checkFamilies(take(Mod::parse("kv_idx + 100 <= q_idx")), problem); // the first rows none
}

GPU_TEST_CASE("row maxima of long rows are those of the reference where all scores are negative, or most", "[gpu]") {
  for (const char* name : {"noop", "causal", "sliding_window", "alibi", "softcap"})
    for (int headDim : {64, 128})
      for (int positives : {0, 3}) {
        const Mod mod = libraryMod(name);
        const Problem problem{{1, 4, 2, 300, 1500}, headDim, headDim, DType::BF16};
        HostOperands operands = draw(mod, problem);
        for (cli::HostTensor* tensor : {&operands.q, &operands.k})
          for (int64_t i = 0; i < tensor->elements(); ++i) {
            const bool isKey = tensor == &operands.k, isPositive = isKey && i / headDim % 500 < positives;
            const double size = std::fabs(readElement(tensor->bytes.data(), DType::BF16, i).real);
            writeElement(tensor->bytes.data(), DType::BF16, i, isKey && !isPositive ? -size : size);
          }
        const Outcome expected = runReference(mod, problem, operands);
        for (Family family : familiesFor(mod, problem)) {
          INFO(name << ", " << problem.text() << ", family " << int(family) << ", " << positives << " keys of 500");
          checkClose(runKernel(mod, problem, operands, {.family = family}), expected, problem, false,
                     scoreErrorOf(name, problem.shape));
        }
      }
}

GPU_TEST_CASE("block masks of every block size give the same as no block mask", "[gpu]") {
  for (const char* name : {"causal", "document", "neighborhood2d"})
    for (int qBlock : {64, 128, 256})
      for (int kvBlock : {64, 128, 256}) {
        INFO(name << ", blocks " << qBlock << " x " << kvBlock);
        checkFamilies(libraryMod(name), {{1, 2, 2, 515, 700}, 128, 128, DType::BF16},
                      {.qBlock = qBlock, .kvBlock = kvBlock});
      }
}

GPU_TEST_CASE("any scale is honoured, zero and negative ones too", "[gpu]") {
  for (const char* name : {"causal", "alibi", "softcap"})
    for (float scale : {0.f, -0.25f, 1e-3f, 1.f}) {
      INFO(name << ", scale " << scale);
      checkFamilies(libraryMod(name), {{1, 2, 2, 100, 100}, 64, 64, DType::BF16}, {.scale = scale},
                    scoreErrorOf(name, {1, 2, 2, 100, 100}));
    }
}

GPU_TEST_CASE("soft caps hold for scores near zero, far beyond the cap, and both in one tile", "[gpu]") {
  const ProblemShape shape{1, 2, 2, 300, 400};
  for (const char* name : {"softcap", "softcap_approx"})
    for (int headDim : {64, 128})
      for (float scale : {1e-4f, 0.004f, 0.01f, 0.02f, 1.f}) {
        INFO(name << ", scale " << scale);
        checkFamilies(libraryMod(name), {shape, headDim, headDim, DType::BF16}, {.scale = scale},
                      scoreErrorOf(name, shape));
      }
}

GPU_TEST_CASE("empty problems are legal for every library mod", "[gpu]") {
  const double minusInfinity = -std::numeric_limits<double>::infinity();
  for (const std::string& name : libraryNames()) {
    const Mod mod = libraryMod(name);
    for (const ProblemShape& shape :
         {ProblemShape{1, 2, 2, 128, 0}, {2, 4, 2, 5, 0}, {1, 2, 2, 0, 5}, {0, 2, 2, 5, 5}}) {
      const Problem problem{shape, 64, 64, DType::BF16};
      const HostOperands operands = draw(mod, problem);
      for (bool blockMask : {false, true}) {
        if (blockMask && !mod.hasMaskMod()) continue;
        for (Family family : familiesFor(mod, problem, {.blockMask = blockMask})) {
          INFO(name << ", " << problem.text() << ", family " << int(family) << (blockMask ? ", block mask" : ""));
          const Outcome outcome = runKernel(mod, problem, operands, {.family = family, .blockMask = blockMask});
          const auto all = [](const std::vector<double>& values, double expected) {
            return std::count(values.begin(), values.end(), expected) == std::ptrdiff_t(values.size());
          };
          CHECK(outcome.lse.size() == size_t(shape.batch * shape.qHeads * shape.qLen));
          CHECK(all(outcome.out, 0));
          CHECK(all(outcome.lse, minusInfinity));
          CHECK(all(outcome.rowMax, minusInfinity));
        }
      }
    }
  }
}

GPU_TEST_CASE("tensors without elements read as 0, whatever the index", "[gpu]") {
  const Mod mod = take(Mod::parse("none: f32[N, KV_LEN]\ntable: i64[M]\n"
                                  "def score_mod(score, b, h, q_idx, kv_idx):\n"
                                  "    return score + none[q_idx, kv_idx] + table[kv_idx - q_idx]\n"));
  const Problem problem{{1, 2, 1, 100, 150}, 64, 64, DType::BF16};
  HostOperands operands = draw(mod, problem);
  operands.captures.set("none", TensorView::contiguous(nullptr, DType::F32, {0, 150}));
  operands.captures.set("table", TensorView::contiguous(nullptr, DType::I64, {0}));
  const Outcome expected = runReference(mod, problem, operands);
  for (Family family : familiesFor(mod, problem)) {
    INFO("family " << int(family));
    checkClose(runKernel(mod, problem, operands, {.family = family}), expected, problem);
  }
}

GPU_TEST_CASE("every coordinate reaches the mod", "[gpu]") {
  // Each score names its own place; the row maximum and lse show what the mod was given.
  const Mod mod = take(Mod::parse("score * 0 + (b * 1000 + h * 100 + q_idx) * 0.01 + kv_idx * 0.1"));
  for (DType dtype : {DType::F32, DType::BF16}) checkFamilies(mod, {{3, 4, 2, 140, 135}, 64, 64, dtype});
}

GPU_TEST_CASE("kernels without asynchronous barriers, for the race checker", "[gpu]") {
  // racecheck does not follow an mbarrier by which one lane answers for its warp, as those of sm90 do.
  for (const char* name : {"causal", "document"})
    for (Family family : {Family::Naive, Family::Sm80})
      for (DType dtype : {DType::BF16, DType::F32})
        for (bool blockMask : {false, true}) {
          const Mod mod = libraryMod(name);
          const Problem problem{{1, 2, 1, 150, 300}, 64, 40, dtype};
          const HostOperands operands = draw(mod, problem);
          INFO(problem.text() << ", family " << int(family) << (blockMask ? ", block mask" : ""));
          checkClose(runKernel(mod, problem, operands, {.family = family, .blockMask = blockMask}),
                     runReference(mod, problem, operands), problem);
        }
}
