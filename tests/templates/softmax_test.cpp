// The online softmax (templates/algo/softmax.cuh) of a warp, run on the host against fp64: scores of any size, in any
// order.
#include "templates/host_cta.h"
#include "templates/host_math.h"

#include "algo/softmax.cuh"

#include "algo/exponents.cuh"

#include <catch2/catch.hpp>

#include <limits>
#include <random>

using namespace attnc;

namespace {

constexpr int kRows = 16, kColumns = 32;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Scores of a warp's tile, step by step, without what the row adds to all of them.
using Step = std::vector<float>; // [kRows][kColumns]

struct Problem {
  std::vector<Step> steps;
  std::vector<float> shifts; ///< of a row
  bool exact = false;
};

/// A score as its product, as kernels compute it without score_mod.
using Unbiased = AffineExponents<false, false>;
/// An exponent with the bias of its row, as soft caps compute it.
struct Biased {
  static constexpr bool kIsBiased = true, kIsLinear = false;
  bool may;
  static float unit() { return kLn2; }
  static float weight_factor() { return 1.f; }
  bool may_be_large() const { return may; }
  template <class Scores, int Rows> void to_scores(Scores& x, const StepBias<Biased, Rows>& step, float) const {
    x.for_each([&](float& element, int r) { element = element * kLog2e + step.bias[r]; });
  }
};

template <class Form> Form formOf(bool mayBeLarge) {
  if constexpr (Form::kIsBiased)
    return {mayBeLarge};
  else
    return Form(1.f, {.in = 1.f, .out = 1.f, .slope = 0.f});
}

template <class Form> struct FakePlace {
  Form own;
  float shift[2];
  const Form& form(int) const { return own; }
  float row_shift(int, int r) const { return shift[r]; }
};

struct Result {
  std::vector<float> out = std::vector<float>(kRows), lse = std::vector<float>(kRows), max = std::vector<float>(kRows);
};

float valueOf(size_t step, int column) { return std::cos(float(step) * 7 + float(column)); }

template <class Form, class Weight, class Range> Result run(const Problem& problem, bool mayBeLarge) {
  Result result;
  HostCta::run(32, [&] {
    Fragment<1, kColumns> x;
    Softmax<2, Range> softmax;
    const int row = Fragment<1, kColumns>::row(0);
    const FakePlace<Form> place{formOf<Form>(mayBeLarge),
                                {problem.shifts[size_t(row)], problem.shifts[size_t(row) + 8]}};
    float out[2] = {};
    for (size_t i = 0; i < problem.steps.size(); ++i) {
      const auto at = [&](int r, int n, int e) {
        return problem.steps[i][size_t((row + 8 * r) * kColumns + x.column(n, e))];
      };
      for (int n = 0; n < kColumns / 8; ++n)
        for (int r = 0; r < 2; ++r)
          for (int e = 0; e < 2; ++e) x.at(r, n, e) = at(r, n, e) == -kInfinity ? 0.f : at(r, n, e);
      StepBias<Form, 2> step(softmax, place);
      place.own.to_scores(x, step, 0.f);
      for (int n = 0; n < kColumns / 8; ++n)
        for (int r = 0; r < 2; ++r)
          for (int e = 0; e < 2; ++e)
            if (at(r, n, e) == -kInfinity) x.at(r, n, e) = -kInfinity;
      follow_maxima<Weight>(x, softmax, step, place, 0, problem.exact, [&](const float(&factors)[2]) {
        for (int r = 0; r < 2; ++r) out[r] *= factors[r];
      });
      weights_of(x, softmax, step, place);
      for (int n = 0; n < kColumns / 8; ++n)
        for (int r = 0; r < 2; ++r)
          for (int e = 0; e < 2; ++e) out[r] += x.at(r, n, e) * valueOf(i, x.column(n, e));
    }
    for (int r = 0; r < 2; ++r) {
      const float normalise = softmax.finish(r), whole = quad_sum(out[r]), shift = place.shift[r];
      const float lse = softmax.lse(r, place.own.weight_factor(), shift), max = softmax.max(r, place.own, shift);
      if (threadIdx.x % 4) continue;
      const size_t at = size_t(row + 8 * r);
      result.out[at] = whole * normalise, result.lse[at] = lse, result.max[at] = max;
    }
  });
  return result;
}

/// In fp64, of scores that are rounded to f32 as the definition says.
void check(const Problem& problem, const Result& got, bool hasMax) {
  for (int row = 0; row < kRows; ++row) {
    double most = -kInfinity, sum = 0, out = 0;
    const auto each = [&](auto function) {
      for (size_t i = 0; i < problem.steps.size(); ++i)
        for (int column = 0; column < kColumns; ++column) {
          const float score = problem.steps[i][size_t(row * kColumns + column)] + problem.shifts[size_t(row)];
          if (score != -kInfinity) function(double(score), double(valueOf(i, column)));
        }
    };
    each([&](double score, double) { most = std::max(most, score); });
    each([&](double score, double value) {
      sum += std::exp(score - most);
      out += std::exp(score - most) * value;
    });
    INFO("row " << row << ", most " << most);
    if (sum == 0) {
      CHECK(got.out[size_t(row)] == 0);
      CHECK(got.lse[size_t(row)] == -kInfinity);
      continue;
    }
    // Scores of some thousands are as exact as f32 in powers of two is there.
    CHECK(std::fabs(got.out[size_t(row)] - out / sum) < 6e-3);
    CHECK(std::fabs(got.lse[size_t(row)] - (most + std::log(sum))) < 4e-3 + 3e-7 * std::fabs(most));
    if (hasMax) CHECK(std::fabs(got.max[size_t(row)] - most) < 4e-3 + 3e-7 * std::fabs(most));
  }
}

/// Checks a problem; also that a softmax that keeps maxima changes nothing else.
template <class Form, class Weight> void checkBoth(const Problem& problem, bool mayBeLarge) {
  const Result plain = run<Form, Weight, WeightsFromOne>(problem, mayBeLarge),
               keeping = run<Form, Weight, WithMaxima<2, WeightsFromOne>>(problem, mayBeLarge);
  check(problem, plain, problem.exact);
  check(problem, keeping, true);
  CHECK((keeping.out == plain.out && keeping.lse == plain.lse));
}

/// Scores of each row and step are of one of a few kinds.
Problem draw(std::mt19937& random) {
  const auto below = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
  const float sizes[] = {1e2f, 6e3f, 1e4f, 1e6f, 1e9f, 1e30f, 3e38f};
  Problem problem;
  problem.exact = below(2);
  problem.shifts.assign(kRows, 0.f);
  const int shiftKind = below(4);
  for (float& shift : problem.shifts)
    if (shiftKind == 1)
      shift = below(3) ? 0.f : -1e9f;
    else if (shiftKind == 2)
      shift = float(below(200)) - 100;
    else if (shiftKind == 3)
      shift = below(4) ? 0.f : -kInfinity;
  std::normal_distribution<float> normal(0, 2);
  for (int steps = 1 + below(5), i = 0; i < steps; ++i) {
    Step step(size_t(kRows * kColumns));
    const int kind = below(6);
    const float size = sizes[below(7)] * (below(2) ? 1.f : -1.f);
    for (int row = 0; row < kRows; ++row) {
      const bool isOdd = kind == 5 ? below(2) : row % 3 == 1;
      for (int column = 0; column < kColumns; ++column) {
        float& score = step[size_t(row * kColumns + column)];
        score = normal(random);
        if (kind == 1 || (kind == 2 && isOdd) || (kind == 3 && below(8) == 0)) score += size;
        if ((kind == 4 && isOdd) || below(16) == 0) score = -kInfinity;
        if (kind == 5 && isOdd) score -= 30; // rows of small weights
      }
    }
    problem.steps.push_back(std::move(step));
  }
  return problem;
}

template <class Form, class Weight> void checkMany(uint32_t seed, bool mayBeLarge) {
  std::mt19937 random(seed);
  for (int i = 0; i < 40; ++i) {
    const Problem problem = draw(random);
    INFO("problem " << i << (problem.exact ? ", exact" : ""));
    checkBoth<Form, Weight>(problem, mayBeLarge);
  }
}

} // namespace

TEST_CASE("softmax: scores of any size, in any order of steps") { checkMany<Unbiased, Bf16>(1, false); }
TEST_CASE("softmax: scores of any size, with weights of half precision") { checkMany<Unbiased, F16>(2, false); }
TEST_CASE("softmax: exponents that have a bias, and rows that are shifted by any size") {
  std::mt19937 random(3);
  for (int i = 0; i < 40; ++i) {
    Problem problem = draw(random);
    for (Step& step : problem.steps)
      for (float& score : step)
        if (score != -kInfinity) score = std::fmod(score, 50.f); // as caps leave them
    INFO("problem " << i << (problem.exact ? ", exact" : ""));
    checkBoth<Biased, Bf16>(problem, i % 2);
  }
}
