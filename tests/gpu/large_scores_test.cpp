// Scores of any size: rows, halves, tiles and single elements of 1e4 to the largest f32, both signs, as masks of -1e9
// and finfo.min are written. Products of q and k are exact, so all routes have the same f32 scores, and results are as
// near to the reference as those of small scores.
#include "large_scores.h"

#include "helpers/turns.h"

#include <cmath>

using namespace attnc;
using namespace attnc::gputest;

namespace {

void checkRows(const char* what, const std::vector<double>& actual, const std::vector<double>& expected) {
  REQUIRE(actual.size() == expected.size());
  size_t wrong = 0, first = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const bool holds = std::isfinite(expected[i]) && std::isfinite(actual[i])
                           ? std::abs(actual[i] - expected[i]) <= 2e-5 + 0x1p-21 * std::abs(expected[i])
                           : actual[i] == expected[i] || (std::isnan(actual[i]) && std::isnan(expected[i]));
    if (!holds && wrong++ == 0) first = i;
  }
  INFO(what << " of row " << first << " is " << actual[first] << ", should be " << expected[first]);
  CHECK(wrong == 0);
}

void checkCase(const LargeCase& large, const Problem& problem, RunOptions options,
               const std::vector<Family>& families) {
  const HostOperands operands = drawLarge(large, problem);
  const Outcome expected = runReference(large.mod(), problem, operands, kLargeScale);
  options.scale = kLargeScale;
  for (Family family : families) {
    options.family = family;
    INFO(large.text() << ", " << problem.text() << ", family " << int(family) << ", row max " << options.rowMax);
    const Outcome actual = runKernel(large.mod(), problem, operands, options);
    checkClose({actual.out}, {expected.out}, problem); // without row maxima: as if scores were small
    checkRows("lse", actual.lse, expected.lse);
    if (options.rowMax) checkRows("row max", actual.rowMax, expected.rowMax);
  }
}

} // namespace

GPU_TEST_CASE("forward kernels are exact for scores of any size", "[gpu]") {
  for (const Problem& problem :
       {Problem{{1, 2, 1, 300, 700}, 64, 64, DType::BF16}, Problem{{2, 2, 2, 130, 520}, 128, 128, DType::F16}})
    for (const LargeCase& large : largeCases())
      if (problem.dtype == DType::BF16 || large.way != LargeCase::Way::Product) // f16 ends at 65504
        for (bool rowMax : {false, true})
          if (test::isCaseDue()) checkCase(large, problem, {.rowMax = rowMax}, familiesFor(large.mod(), problem));
}

GPU_TEST_CASE("forward kernels are exact for scores of any size with fp32 operands and wide heads", "[gpu]") {
  for (const Problem& problem :
       {Problem{{1, 1, 1, 70, 300}, 64, 64, DType::F32}, Problem{{1, 1, 1, 140, 400}, 256, 256, DType::BF16}})
    for (const LargeCase& large : largeCases())
      if (large.way != LargeCase::Way::Product)
        checkCase(large, problem, {.rowMax = false}, familiesFor(large.mod(), problem));
}

GPU_TEST_CASE("gradients are exact for scores of any size", "[gpu][backward]") {
  for (const Problem& problem :
       {Problem{{1, 4, 2, 300, 420}, 64, 64, DType::BF16}, Problem{{2, 2, 2, 130, 300}, 128, 128, DType::F16},
        Problem{{1, 1, 1, 140, 200}, 256, 256, DType::BF16}, Problem{{1, 2, 1, 70, 130}, 64, 64, DType::F32}})
    for (const LargeCase& large : largeCases()) {
      if (large.way == LargeCase::Way::Product) continue; // gradients would be as long as rows of k
      // Rows of any size below kLargestLse have weights that are off by the rounding of their lse.
      if (problem.dtype == DType::F32 && large.where == LargeCase::Where::Mixed) continue;
      if (!test::isCaseDue()) continue;
      const HostOperands operands = drawLarge(large, problem);
      const ResultGradients given = drawGradients(problem, /*withLse=*/true);
      const Gradients expected = runReferenceBackward(large.mod(), operands, given, kLargeScale);
      for (Family family : {Family::Naive, Family::Sm80, Family::Sm90})
        for (bool deterministic : {false, true}) {
          if (family == Family::Sm90 && (gpu()->context.info().arch != "sm_90a" || problem.dtype == DType::F32))
            continue;
          if (deterministic && (family != Family::Sm90 || problem.headDim > 128)) continue;
          INFO(large.text() << ", " << problem.text() << ", family " << int(family) << ", deterministic "
                            << deterministic);
          checkGradients(runBackward(large.mod(), problem, operands, given,
                                     {.family = family, .scale = kLargeScale, .deterministic = deterministic}),
                         expected, problem);
        }
    }
}

GPU_TEST_CASE("decode kernels are exact for scores of any size", "[gpu]") {
  for (const LargeCase& large : largeCases())
    for (bool rowMax : {false, true})
      if (test::isCaseDue())
        checkCase(large, {{2, 8, 2, 3, 5000}, 128, 128, DType::BF16}, {.rowMax = rowMax, .decode = true},
                  {Family::Auto, Family::Sm80});
}
