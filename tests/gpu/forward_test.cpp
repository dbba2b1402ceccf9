// The forward kernels against the fp64 reference: every library mod, dtype, and awkward size.
#include "gpu.h"

using namespace attnc;
using namespace attnc::gputest;

namespace {

const char* const kLibrary[] = {"noop",         "causal",       "alibi",          "sliding_window",
                                "prefix_lm",    "softcap",      "document",       "relative_bias",
                                "learned_bias", "global_local", "softcap_approx", "neighborhood2d"};

const Family kFamilies[] = {Family::Naive, Family::Sm80};

/// tanh.approx is off by 2^-10.987 at most (PTX ISA), and a softcap multiplies that by its cap, drawn below 1.5.
double scoreErrorOf(const std::string& name) { return name == "softcap_approx" ? 1.5 * 0x1p-10 : 0; }

struct Size {
  int64_t batch, qHeads, kvHeads, qLen, kvLen;
};

/// Around the edges of every tile (16, 32, 64, 128), ragged, tiny, and GQA at ratios that are no power of two.
const Size kSizes[] = {{1, 1, 1, 1, 1},     {2, 4, 2, 129, 257}, {1, 3, 1, 64, 128}, {1, 6, 2, 127, 63},
                       {2, 5, 5, 300, 200}, {1, 2, 1, 17, 400},  {1, 1, 1, 256, 129}};

void checkAll(const std::string& name, DType dtype, const std::vector<Size>& sizes, int headDim, int headDimV) {
  const Mod mod = libraryMod(name);
  std::vector<std::pair<Mod, KernelOptions>> jobs;
  for (const Size& size : sizes)
    for (Family family : kFamilies)
      for (bool blockMask : {false, true}) {
        if (blockMask && !mod.hasMaskMod()) continue;
        Problem problem{{size.batch, size.qHeads, size.kvHeads, size.qLen, size.kvLen}, headDim, headDimV, dtype};
        const RunOptions options{.family = family, .blockMask = blockMask};
        jobs.emplace_back(mod, kernelOptions(mod, problem, options));
      }
  compileAhead(jobs);
  for (const Size& size : sizes) {
    Problem problem{{size.batch, size.qHeads, size.kvHeads, size.qLen, size.kvLen}, headDim, headDimV, dtype};
    problem.seed = uint64_t(size.qLen * 1000 + size.kvLen);
    const Operands operands = draw(mod, problem);
    const Outcome expected = runReference(mod, problem, operands);
    for (Family family : kFamilies)
      for (bool blockMask : {false, true}) {
        if (blockMask && !mod.hasMaskMod()) continue;
        INFO(name << ", " << problem.text() << ", family " << int(family) << (blockMask ? ", block mask" : ""));
        checkClose(runKernel(mod, problem, operands, {.family = family, .blockMask = blockMask}), expected, problem,
                   false, scoreErrorOf(name));
      }
  }
}

} // namespace

TEST_CASE("naive and sm80 agree with the reference on every library mod in bf16", "[gpu]") {
  ATTNC_NEED_GPU();
  for (const char* name : kLibrary)
    checkAll(name, DType::BF16, {std::begin(kSizes), std::end(kSizes)}, 64, 64);
}

TEST_CASE("naive and sm80 agree with the reference on every library mod in fp16", "[gpu]") {
  ATTNC_NEED_GPU();
  for (const char* name : kLibrary)
    checkAll(name, DType::F16, {std::begin(kSizes), std::end(kSizes)}, 128, 128);
}

TEST_CASE("naive and sm80 agree with the reference on every library mod in fp32", "[gpu]") {
  ATTNC_NEED_GPU();
  for (const char* name : kLibrary)
    checkAll(name, DType::F32, {std::begin(kSizes), std::end(kSizes)}, 64, 64);
}

TEST_CASE("every head dim that is a multiple of 8 works, also with another one for v", "[gpu]") {
  ATTNC_NEED_GPU();
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
      checkAll("causal", dtype, {{1, 2, 1, 130, 190}}, qk, v);
}

TEST_CASE("tf32 is used only when asked for, and then within its error", "[gpu]") {
  ATTNC_NEED_GPU();
  const Mod mod = libraryMod("causal");
  const Problem problem{{1, 2, 2, 200, 200}, 64, 64, DType::F32};
  const Operands operands = draw(mod, problem);
  const Outcome expected = runReference(mod, problem, operands);
  const Outcome tf32 = runKernel(mod, problem, operands, {.tf32 = true});
  const Outcome exact = runKernel(mod, problem, operands, {});
  checkClose(tf32, expected, problem, true);
  checkClose(exact, expected, problem);
  double worst = 0;
  for (size_t i = 0; i < tf32.out.size(); ++i)
    worst = std::max(worst, std::abs(tf32.out[i] - expected.out[i]));
  CHECK(worst > 1e-5); // else the option does nothing
}

TEST_CASE("strides, unaligned rows and a broadcast KV batch give the same results", "[gpu]") {
  ATTNC_NEED_GPU();
  for (const char* name : {"noop", "alibi"}) {
    const Mod mod = libraryMod(name);
    for (DType dtype : {DType::BF16, DType::F32})
      for (int64_t padding : {0, 1, 8})
        for (bool headsLast : {false, true})
          for (bool kvBatchOne : {false, true}) {
            Problem problem{{3, 4, 2, 70, 150}, 40, 40, dtype, kvBatchOne, headsLast, padding};
            const Operands operands = draw(mod, problem);
            const Outcome expected = runReference(mod, problem, operands);
            for (Family family : kFamilies) {
              INFO(name << ", " << problem.text() << ", family " << int(family));
              checkClose(runKernel(mod, problem, operands, {.family = family}), expected, problem);
            }
          }
  }
}

TEST_CASE("fully masked rows give output 0, lse -inf and row max -inf", "[gpu]") {
  ATTNC_NEED_GPU();
  const Mod mod = take(Mod::parse("q_idx % 3 == kv_idx % 2 + 5"));      // never: every row is masked
  const Mod some = take(Mod::parse("(q_idx % 3 > 0) & (kv_idx > 40)")); // every third row, and the first tile of all
  for (const Mod& m : {mod, some})
    for (Family family : kFamilies)
      for (bool blockMask : {false, true}) {
        const Problem problem{{1, 2, 1, 150, 300}, 64, 64, DType::BF16};
        const Operands operands = draw(m, problem);
        const Outcome expected = runReference(m, problem, operands);
        CHECK(expected.lse[0] == -std::numeric_limits<double>::infinity());
        INFO("family " << int(family) << (blockMask ? ", block mask" : ""));
        checkClose(runKernel(m, problem, operands, {.family = family, .blockMask = blockMask}), expected, problem);
      }
}

TEST_CASE("block masks of every block size give the same as no block mask", "[gpu]") {
  ATTNC_NEED_GPU();
  for (const char* name : {"causal", "document", "neighborhood2d"}) {
    const Mod mod = libraryMod(name);
    for (int qBlock : {64, 128, 256})
      for (int kvBlock : {64, 128, 256})
        for (Family family : kFamilies) {
          const Problem problem{{1, 2, 2, 515, 700}, 128, 128, DType::BF16};
          const Operands operands = draw(mod, problem);
          INFO(name << ", blocks " << qBlock << " x " << kvBlock << ", family " << int(family));
          checkClose(runKernel(mod, problem, operands,
                               {.family = family, .blockMask = true, .qBlock = qBlock, .kvBlock = kvBlock}),
                     runReference(mod, problem, operands), problem);
        }
  }
}

TEST_CASE("any scale is honoured, zero and negative ones too", "[gpu]") {
  ATTNC_NEED_GPU();
  for (const char* name : {"causal", "alibi"}) {
    const Mod mod = libraryMod(name);
    const Problem problem{{1, 2, 2, 100, 100}, 64, 64, DType::BF16};
    const Operands operands = draw(mod, problem);
    for (float scale : {0.f, -0.25f, 1e-3f, 1.f})
      for (Family family : kFamilies) {
        INFO(name << ", scale " << scale << ", family " << int(family));
        checkClose(runKernel(mod, problem, operands, {.family = family, .scale = scale}),
                   runReference(mod, problem, operands, scale), problem);
      }
  }
}

TEST_CASE("empty problems are legal", "[gpu]") {
  ATTNC_NEED_GPU();
  const Mod mod = libraryMod("causal");
  for (Family family : kFamilies)
    for (bool blockMask : {false, true}) {
      const Problem noKeys{{1, 2, 2, 5, 0}, 64, 64, DType::BF16};
      const Outcome outcome = runKernel(mod, noKeys, draw(mod, noKeys), {.family = family, .blockMask = blockMask});
      for (double x : outcome.out)
        CHECK(x == 0);
      for (double x : outcome.lse)
        CHECK(x == -std::numeric_limits<double>::infinity());
      const Problem noRows{{1, 2, 2, 0, 5}, 64, 64, DType::BF16};
      CHECK(runKernel(mod, noRows, draw(mod, noRows), {.family = family, .blockMask = blockMask}).out.empty());
    }
}

TEST_CASE("every coordinate reaches the mod", "[gpu]") {
  ATTNC_NEED_GPU();
  // Each score names its own place; with all keys alike the row maximum and lse show what the mod was given.
  const Mod mod = take(Mod::parse("score * 0 + (b * 1000 + h * 100 + q_idx) * 0.01 + kv_idx * 0.1"));
  for (Family family : kFamilies) {
    const Problem problem{{3, 4, 2, 140, 135}, 64, 64, DType::F32};
    const Operands operands = draw(mod, problem);
    checkClose(runKernel(mod, problem, operands, {.family = family}), runReference(mod, problem, operands), problem);
  }
}
