// What a CTA adds to gradients of captures (templates/algo/capture_reduction.cuh), run on the host against plain sums.
#include "templates/host_cta.h"

#include "algo/capture_reduction.cuh"

#include <catch2/catch.hpp>

#include <vector>

using namespace attnc;

namespace {

using Reduction = CaptureReduction<kBlockN, kWarps>;

/// An integer; 0 for some elements.
float gradOf(int q, int kv) { return float((q * 7 + kv * 3) % 9 - 4); }
float productOf(int q, int kv) { return float((q + 2 * kv) % 4); }

} // namespace

TEST_CASE("a CTA adds each element of attention where the mod reads, once", "[captures]") {
  const ModArgs args{70, 150}; // beyond tiles of 32 rows and steps of 64 columns
  const int b = 1, h = 2;
  CaptureParams p{};
  p.backward.forward.q_len = args.q_len;
  p.backward.forward.kv_len = args.kv_len;
  p.backward.forward.scale = 2;
  const size_t slots = size_t(args.q_len * args.kv_len + args.q_len + args.kv_len) * 3 * size_t(b + h + 1);
  std::vector<std::vector<float>> got(Mod::kGradients, std::vector<float>(slots)), want = got;
  for (int i = 0; i < Mod::kGradients; ++i) p.sums[i] = {got[size_t(i)].data(), (long long)slots, 0};
  p.sums[4].owned = 1; // each element of attention has one of its own

  for (int q_start = 0; q_start < args.q_len; q_start += kBlockM) {
    std::vector<float> scratch(Reduction::kScratch);
    HostCta::run(32 * kWarps, [&] {
      const int warp_row = int(threadIdx.x) / 32 * 16;
      const Place<1> place(p.backward.forward, args, b, h, q_start, warp_row + Reduction::Scores::row(0));
      Reduction reduction(p, p.backward.forward, args, place, b, h, q_start, scratch.data());
      for (int start = 128; start >= 0; start -= kBlockN) {
        Reduction::Scores products, grads;
        for (int r = 0; r < 2; ++r)
          for (int n = 0; n < kBlockN / 8; ++n)
            for (int e = 0; e < 2; ++e) {
              const int q = place.q_first + place.offset(r), kv = start + Reduction::Scores::column(n, e);
              const bool inside = q < args.q_len && kv < args.kv_len;
              products.at(r, n, e) = productOf(q, kv);
              grads.at(r, n, e) = inside ? gradOf(q, kv) : 0;
            }
        reduction.add({start, 0}, products, grads);
      }
      reduction.finish();
    });
  }

  const Mod::Head head{b, h};
  for (int q = 0; q < args.q_len; ++q)
    for (int kv = 0; kv < args.kv_len; ++kv)
      Mod::gradients([&](auto gradient) {
        using Gradient = decltype(gradient);
        const Coord at{b, h, q, kv};
        for (int round = 0; round < Gradient::kRounds && gradOf(q, kv) != 0; ++round)
          want[Gradient::kIndex][size_t(Gradient::offset(args, head, {q}, {kv}, at, round))] +=
              Gradient::value(args, head, {q}, {kv}, at, 2 * productOf(q, kv), gradOf(q, kv), round);
      });
  for (int i = 0; i < Mod::kGradients; ++i) {
    INFO("place " << i);
    CHECK(got[size_t(i)] == want[size_t(i)]);
  }
}
