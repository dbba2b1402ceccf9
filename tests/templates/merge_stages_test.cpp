// How the attention of two sets of keys becomes that of both (templates/algo/merge_stages.cuh), on the host against
// fp64.
#include "templates/host_cta.h"
#include "templates/host_math.h"

#include "algo/merge_stages.cuh"

#include <catch2/catch.hpp>

#include <limits>

using namespace attnc;

TEST_CASE("the factors of two partial results sum to one, and their lse is that of the whole", "[templates]") {
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  for (const float before : {kNothing, -1e9f, -80.f, 0.f, 3.5f, 1e4f})
    for (const float part : {kNothing, -1e9f, -80.f, 0.f, 3.25f, 1e4f}) {
      CAPTURE(before, part);
      const MergedStages merged = MergedStages::of(before, part);
      const double larger = std::max(before, part);
      if (larger == kNothing) {
        CHECK(merged.lse == kNothing);
        CHECK((merged.before == 0 && merged.part == 0)); // memory without results is then not read
        continue;
      }
      const double a = std::exp(double(before) - larger), b = std::exp(double(part) - larger);
      CHECK(merged.before == Approx(a / (a + b)).margin(1e-7));
      CHECK(merged.part == Approx(b / (a + b)).margin(1e-7));
      CHECK(merged.lse == Approx(larger + std::log(a + b)).margin(1e-6));
      if (before == kNothing) CHECK(merged.before == 0);
      if (part == kNothing) CHECK(merged.part == 0);
    }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const MergedStages& merged :
       {MergedStages::of(nan, 1), MergedStages::of(1, nan), MergedStages::of(kNothing, nan)})
    CHECK(std::isnan(merged.lse));
}
