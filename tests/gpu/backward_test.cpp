// Gradients of q, k and v of every family against the fp64 reference.
#include "gpu.h"
#include "helpers/plans.h"

using namespace attnc;
using namespace attnc::gputest;

namespace {

const Family kFamilies[] = {Family::Naive, Family::Sm80, Family::Sm90};

/// Returns the families of kFamilies that serve the mod and the operands.
std::vector<Family> servingFamilies(const Mod& mod, const Problem& problem) {
  std::vector<Family> families;
  for (Family family : kFamilies) {
    const KernelOptions options{.kind = KernelKind::Backward,
                                .family = family,
                                .arch = gpu()->context.info().arch,
                                .dtype = problem.dtype,
                                .headDim = problem.headDim,
                                .headDimV = problem.headDimV};
    const bool aligned = problem.rowPadding * dtypeBytes(problem.dtype) % 16 == 0;
    if ((family != Family::Sm90 || aligned) && test::sourcesOf(gpu()->compiler, mod, options))
      families.push_back(family);
  }
  return families;
}

const char* nameOf(Family family) {
  return family == Family::Naive ? "naive" : family == Family::Sm80 ? "sm80" : "sm90";
}

void checkAll(const Mod& mod, const Problem& problem, bool withLse = false) {
  const HostOperands operands = draw(mod, problem);
  const ResultGradients given = drawGradients(problem, withLse);
  const Gradients expected = runReferenceBackward(mod, operands, given);
  for (Family family : servingFamilies(mod, problem)) {
    INFO(nameOf(family) << ", " << mod.name() << ", " << problem.text());
    checkGradients(runBackward(mod, problem, operands, given, {.family = family}), expected, problem);
  }
}

/// Both passes of both families, for compileAhead().
void addJobs(std::vector<std::pair<Mod, KernelOptions>>& jobs, const Mod& mod, DType dtype, int headDim, int headDimV) {
  for (KernelKind kind : {KernelKind::Forward, KernelKind::Backward})
    for (Family family : kFamilies)
      jobs.push_back({mod, {.kind = kind, .family = family, .dtype = dtype, .headDim = headDim, .headDimV = headDimV}});
}

/// Shapes around the edges of tiles.
const ProblemShape kShapes[] = {{1, 1, 1, 1, 1},     {1, 2, 1, 63, 65},  {2, 4, 2, 128, 64},
                                {1, 6, 2, 130, 190}, {2, 3, 3, 65, 257}, {1, 2, 2, 200, 33}};

} // namespace

GPU_TEST_CASE("gradients of every library mod agree with the reference", "[gpu][backward]") {
  constexpr DType kTypes[] = {DType::BF16, DType::F16, DType::F32};
  std::vector<std::pair<Mod, KernelOptions>> jobs;
  for (const std::string& name : libraryNames())
    for (DType dtype : kTypes) addJobs(jobs, libraryMod(name), dtype, 64, 64);
  compileAhead(jobs);
  for (const std::string& name : libraryNames()) {
    const Mod mod = libraryMod(name);
    for (DType dtype : kTypes)
      for (const ProblemShape& shape : kShapes) checkAll(mod, {shape, 64, 64, dtype});
  }
}

GPU_TEST_CASE("gradients of each mod of the library agree with the reference", "[gpu][backward]") {
  std::vector<std::pair<Mod, KernelOptions>> jobs;
  const std::vector<std::string> names = libraryNames(/*everywhere=*/false);
  for (const std::string& name : names) addJobs(jobs, libraryMod(name), DType::BF16, 64, 64);
  compileAhead(jobs);
  for (const std::string& name : names) checkAll(libraryMod(name), {{2, 4, 2, 200, 200}, 64, 64, DType::BF16});
}

GPU_TEST_CASE("gradients at every kind of head dim agree with the reference", "[gpu][backward]") {
  const Mod mod = take(Mod::parse("q_idx >= kv_idx"));
  constexpr std::pair<int, int> kHeadDims[] = {{8, 8},     {40, 64},  {72, 16},  {128, 128},
                                               {192, 128}, {96, 256}, {256, 256}};
  std::vector<std::pair<Mod, KernelOptions>> jobs;
  for (DType dtype : {DType::BF16, DType::F32})
    for (auto [qk, v] : kHeadDims) addJobs(jobs, mod, dtype, qk, v);
  compileAhead(jobs);
  for (DType dtype : {DType::BF16, DType::F32})
    for (auto [qk, v] : kHeadDims) checkAll(mod, {{1, 4, 2, 130, 150}, qk, v, dtype});
}

GPU_TEST_CASE("gradients of every library mod agree with the reference at wide heads", "[gpu][backward]") {
  constexpr std::pair<int, int> kHeadDims[] = {{192, 128}, {256, 256}};
  std::vector<std::pair<Mod, KernelOptions>> jobs;
  for (const std::string& name : libraryNames())
    for (auto [qk, v] : kHeadDims) addJobs(jobs, libraryMod(name), DType::BF16, qk, v);
  compileAhead(jobs);
  for (const std::string& name : libraryNames())
    for (auto [qk, v] : kHeadDims) {
      checkAll(libraryMod(name), {{1, 4, 2, 200, 330}, qk, v, DType::BF16});
      checkAll(libraryMod(name), {{2, 2, 1, 65, 1}, qk, v, DType::BF16});
    }
  const Mod mod = libraryMod("softcap");
  checkAll(mod, {{2, 4, 2, 100, 150}, 256, 256, DType::F16}, /*withLse=*/true);
  checkAll(mod, {{3, 4, 2, 100, 150}, 256, 256, DType::BF16, /*kvBatchOne=*/true});
  checkAll(mod, {{1, 2, 2, 0, 150}, 256, 256, DType::BF16});
  const Mod adding = libraryMod("alibi"); // backward_192_sm90.cu
  checkAll(adding, {{2, 4, 2, 200, 300}, 192, 128, DType::F16}, /*withLse=*/true);
  checkAll(adding, {{3, 4, 2, 200, 300}, 192, 128, DType::BF16, /*kvBatchOne=*/true});
  checkAll(adding, {{1, 2, 2, 0, 150}, 192, 128, DType::BF16});
  for (auto [qk, v] : {std::pair{136, 64}, {144, 128}, {160, 96}, {176, 8}})
    checkAll(libraryMod("causal"), {{1, 4, 1, 300, 333}, qk, v, DType::BF16});
}

GPU_TEST_CASE("gradients through lse, of broadcast keys and of any strides agree with the reference",
              "[gpu][backward]") {
  const Mod mod = libraryMod("alibi");
  checkAll(mod, {{2, 4, 2, 100, 150}, 64, 64, DType::BF16}, /*withLse=*/true);
  checkAll(mod, {{3, 4, 2, 100, 150}, 64, 64, DType::BF16, /*kvBatchOne=*/true});
  checkAll(mod, {{2, 4, 2, 100, 150}, 64, 64, DType::F16, false, /*headsLast=*/true});
  checkAll(mod, {{2, 4, 2, 100, 150}, 64, 64, DType::BF16, false, false, /*rowPadding=*/1});
}

GPU_TEST_CASE("rows and columns without live elements have gradients 0, and equal launches equal bits",
              "[gpu][backward]") {
  const Mod mod = take(Mod::parse("(q_idx % 3 != 0) & (kv_idx % 5 != 0)"));
  for (const Problem& problem :
       {Problem{{1, 2, 2, 70, 90}, 64, 64, DType::BF16}, Problem{{1, 4, 2, 700, 900}, 192, 128, DType::BF16}}) {
    INFO(problem.text());
    checkAll(mod, problem);
    const HostOperands operands = draw(mod, problem);
    const ResultGradients given = drawGradients(problem, true);
    const Gradients expected = runReferenceBackward(mod, operands, given);
    for (Family family : servingFamilies(mod, problem)) {
      const Gradients first = runBackward(mod, problem, operands, given, {.family = family});
      const int64_t rows = problem.shape.qLen, dim = problem.headDim;
      for (int64_t head = 0; head < problem.shape.qHeads; ++head)
        for (int64_t row = 0; row < rows; row += 3)
          for (int64_t d = 0; d < dim; ++d) CHECK(first.dQ[size_t((head * rows + row) * dim + d)] == 0);
      const auto deterministic = [&] {
        return runBackward(mod, problem, operands, given, {.family = family, .deterministic = true});
      };
      const Gradients exact = deterministic();
      checkGradients(exact, expected, problem);
      for (int i = 0; i < 5; ++i) {
        const Gradients again = deterministic();
        CHECK((again.dQ == exact.dQ));
        CHECK((again.dK == exact.dK));
        CHECK((again.dV == exact.dV));
      }
    }
  }
}

GPU_TEST_CASE("a mod that is infinite at 0, as rows past the end are, leaves gradients finite", "[gpu][backward]") {
  for (const char* text : {"torch.where(score == 0.0, 1.0 / score, score)",
                           "import torch\n\n\ndef score_mod(score, b, h, q_idx, kv_idx):\n"
                           "    return torch.where(score == 0.0, 1.0 / score, score)\n\n\n"
                           "def mask_mod(b, h, q_idx, kv_idx):\n"
                           "    return q_idx >= kv_idx\n"})
    for (int headDim : {64, 128, 192})
      checkAll(take(Mod::parse(text)), {{1, 2, 1, 150, 140}, headDim, headDim, DType::BF16});
}

GPU_TEST_CASE("backward kernels without asynchronous barriers, for the race checker", "[gpu][backward]") {
  for (const char* name : {"causal", "softcap"})
    for (int headDim : {64, 128}) {
      const Mod mod = libraryMod(name);
      const Problem problem{{1, 2, 1, 150, 200}, headDim, headDim, DType::BF16};
      const HostOperands operands = draw(mod, problem);
      const ResultGradients given = drawGradients(problem, true);
      const Gradients expected = runReferenceBackward(mod, operands, given);
      for (Family family : {Family::Naive, Family::Sm80})
        for (bool deterministic : {false, true}) {
          INFO(nameOf(family) << ", " << mod.name() << ", " << problem.text()
                              << (deterministic ? ", deterministic" : ""));
          checkGradients(runBackward(mod, problem, operands, given, {.family = family, .deterministic = deterministic}),
                         expected, problem);
        }
    }
}
