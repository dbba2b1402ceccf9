// Backward kernels by boxes of a grid, run on the host, against the fp64 reference. Several CTAs run at a time, in an
// order that is drawn: deterministic kernels give the same bits in each.
#include "attnc/attnc.h"
#include "kernels/findings.h"
#include "kernels/host_launch.h"
#include "kernels/host_tensor.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

using namespace attnc;
using test::Tensor;

namespace {

struct Case {
  const char* arch;
  std::string grid, mask; ///< extents; by qy, qx, ky, kx
  int64_t tokens, heads = 2;
  int headDim = 16;
  bool deterministic = true;
};

std::string paramsOf(const plan::Stage& stage, const std::string& mod) {
  const bool hasText = mod.find("before") != std::string::npos;
  if (stage.templateName.find("grid_sm80") != std::string::npos ||
      stage.templateName.find("grid_finish_sm80") != std::string::npos)
    return "BackwardGridParamsSm80";
  if (stage.templateName.find("grid") == std::string::npos) return "BackwardParams";
  return hasText ? "BackwardGridBesideParamsSm90" : "BackwardGridParamsSm90";
}

using Gradients = std::array<Tensor, 3>;

/// Checks gradients, and whether the bits of two runs are equal: CTAs of sm_90a run one at a time, or several.
void check(const Case& c) {
  if (!test::isCaseDue()) return;
  const std::string text = "from attnc import grid\nimage = grid(" + c.grid +
                           ")\ndef mask_mod(b, h, q_idx, kv_idx):\n"
                           "  (qy, qx), (ky, kx) = image.coords(q_idx), image.coords(kv_idx)\n"
                           "  return " +
                           c.mask + "\n";
  INFO(c.arch << " d" << c.headDim << (c.deterministic ? ", deterministic\n" : "\n") << text);
  std::mt19937 random(3);
  const Mod mod = take(Mod::parse(text));
  const auto drawn = [&](int64_t heads) { return Tensor(DType::F16, {1, heads, c.tokens, c.headDim}, random); };
  const Tensor q = drawn(c.heads), k = drawn(1), v = drawn(1), out = drawn(c.heads), dOut = drawn(c.heads);
  const Tensor lse(DType::F32, {1, c.heads, c.tokens}, random);
  const BackwardOperands operands{{.q = q.view, .k = k.view, .v = v.view}, out.view, lse.view, dOut.view, {}};
  take(computeOnCpu(mod, operands, {.out = out.view, .lse = lse.view}));
  const auto gradients = [&] { return Gradients{drawn(c.heads), drawn(1), drawn(1)}; };
  const Gradients want = gradients(), got[2] = {gradients(), gradients()};
  take(computeBackwardOnCpu(mod, operands, {want[0].view, want[1].view, want[2].view, nullptr}));
  KernelOptions options = optionsOf(operands, {}, {.arch = c.arch});
  options.kind = KernelKind::Backward, options.family = Family::Grid;
  options.features.set(Feature::Deterministic, c.deterministic);
  std::vector<char> left[2]; // with dq in fp32
  for (unsigned run : {0u, 1u})
    test::launchOnHost(
        mod, options, operands, {}, {got[run][0].view, got[run][1].view, got[run][2].view, nullptr},
        {.multiprocessors = run ? 3 : 1, .resident = run ? 2u : 1u, .workspace = &left[run]}, // others wait
        [&](const plan::Stage& stage) { return paramsOf(stage, text); });
  for (size_t i : {0, 1, 2}) {
    const auto at = [](const TensorView& of, int64_t j) -> double {
      return readElement(static_cast<const char*>(of.data), of.dtype, j).real;
    };
    double largest = 0, error = 0;
    for (int64_t j = 0; j < want[i].view.elements(); ++j) {
      const double x = at(want[i].view, j), y = at(got[0][i].view, j);
      largest = std::max(largest, std::fabs(x));
      error = std::max(error, std::isfinite(y) ? std::fabs(y - x) : std::numeric_limits<double>::infinity());
    }
    INFO("gradient " << i << ": " << error << " of " << largest);
    CHECK(largest > 0);
    CHECK(error <= 6e-3 * largest);
  }
  size_t differing = 0; // words; one is the number of boxes dealt, which each CTA exceeds by 1
  for (size_t at = 0; at < left[0].size(); at += 4) differing += std::memcmp(&left[0][at], &left[1][at], 4) != 0;
  CHECK((differing <= 1) == c.deterministic);
}

} // namespace

TEST_CASE("deterministic gradients by boxes have equal bits, in whatever order CTAs run", "[on-host][grid]") {
  const std::string near = "(abs(qy - ky) <= 3) & (abs(qx - kx) <= 5)";
  check({.arch = "sm_80", .grid = "9, 21", .mask = near, .tokens = 9 * 21, .heads = 1});
  for (bool deterministic : {false, true})
    check({.arch = "sm_90a", .grid = "17, 21", .mask = near, .tokens = 17 * 21, .deterministic = deterministic});
  check({.arch = "sm_90a",
         .grid = "9, 13, before=70",
         .mask = "(" + near + ") | ~image.contains(q_idx) | ~image.contains(kv_idx)",
         .tokens = 70 + 9 * 13 + 3,
         .headDim = 72});
}
