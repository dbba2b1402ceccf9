// Kernels by boxes of a grid for f32, run on the host, against the fp64 reference.
#include "attnc/attnc.h"
#include "kernels/findings.h"
#include "kernels/host_gradients.h"
#include "kernels/host_launch.h"
#include "kernels/host_tensor.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <random>

using namespace attnc;
using test::Tensor;

namespace {

struct Case {
  std::string mod;  ///< what follows the declaration of `image`
  std::string grid; ///< extents
  int64_t tokens;
  int headDim = 16, headDimV = 16;
  bool tf32 = false;
  const char* arch = "sm_90a";
};

const std::string kNear = "def mask_mod(b, h, q_idx, kv_idx):\n"
                          "  (qy, qx), (ky, kx) = image.coords(q_idx), image.coords(kv_idx)\n"
                          "  return (abs(qy - ky) <= 3) & (abs(qx - kx) <= 5)\n";
const std::string kAsks = "slopes: f32[H]\n"
                          "def mask_mod(b, h, q_idx, kv_idx):\n"
                          "  (qy, qx), (ky, kx) = image.coords(q_idx), image.coords(kv_idx)\n"
                          "  return (abs(qy - ky) <= 3) & (abs(qx - kx) <= 5) & ((qx + ky * 3) % 4 != 1)\n"
                          "def score_mod(score, b, h, q_idx, kv_idx):\n"
                          "  return score * 0.7 + slopes[h] * image.coords(kv_idx)[1]\n";
const std::string kVolume = "def mask_mod(b, h, q_idx, kv_idx):\n"
                            "  (qz, qy, qx), (kz, ky, kx) = image.coords(q_idx), image.coords(kv_idx)\n"
                            "  return (kz <= qz) & (abs(qy - ky) <= 2) & (abs(qx - kx) <= 1)\n";
const std::string kDilated = "def mask_mod(b, h, q_idx, kv_idx):\n"
                             "  (q,), (k,) = image.coords(q_idx), image.coords(kv_idx)\n"
                             "  return (abs(q - k) <= 12) & (q % 3 == k % 3)\n";

/// Operands of 4 heads, of which two share k and v.
struct Drawn {
  Mod mod;
  Tensor q, k, v, slopes;
  Captures captures;
  BackwardOperands operands;

  explicit Drawn(const Case& c, std::mt19937 random = std::mt19937(3))
      : mod(take(Mod::parse("from attnc import grid\nimage = grid(" + c.grid + ")\n" + c.mod))),
        q(DType::F32, {1, 4, c.tokens, c.headDim}, random), k(DType::F32, {1, 2, c.tokens, c.headDim}, random),
        v(DType::F32, {1, 2, c.tokens, c.headDimV}, random), slopes(DType::F32, {4}, random) {
    if (!mod.captures().empty()) captures.set("slopes", slopes.view);
    operands = {{.q = q.view, .k = k.view, .v = v.view, .captures = &captures}};
  }
};

KernelOptions optionsOf(const Case& c, KernelKind kind) {
  return {.kind = kind,
          .family = Family::Grid,
          .arch = c.arch,
          .dtype = DType::F32,
          .headDim = c.headDim,
          .headDimV = c.headDimV,
          .tf32 = c.tf32};
}

void checkForward(const Case& c) {
  if (!test::isCaseDue()) return;
  INFO(c.arch << " " << c.grid << " d" << c.headDim << "/" << c.headDimV << " tf32 " << c.tf32 << "\n" << c.mod);
  const Drawn drawn(c);
  std::mt19937 random(5);
  struct Results {
    Tensor out, lse, rowMax;
    Results(const Case& c, std::mt19937& random)
        : out(DType::F32, {1, 4, c.tokens, c.headDimV}, random), lse(DType::F32, {1, 4, c.tokens}, random),
          rowMax(DType::F32, {1, 4, c.tokens}, random) {}
    Outputs views() const { return {.out = out.view, .lse = lse.view, .rowMax = rowMax.view}; }
  } const want(c, random), got(c, random);
  take(computeOnCpu(drawn.mod, drawn.operands, want.views()));
  KernelOptions options = optionsOf(c, KernelKind::Forward);
  options.features.set(Feature::RowMax, true);
  test::launchOnHost(drawn.mod, options, drawn.operands, got.views(), {}, {},
                     [](const plan::Stage&) { return "ForwardGridParamsSm80"; });
  for (const auto& [name, result, expected] :
       {std::tuple("out", &got.out, &want.out), {"lse", &got.lse, &want.lse}, {"row max", &got.rowMax, &want.rowMax}})
    test::compareToLargest(name, result->view, expected->view, c.tf32 ? 2e-3 : 2e-6);
}

void checkGradients(const Case& c) {
  if (!test::isCaseDue()) return;
  INFO(c.arch << " " << c.grid << " d" << c.headDim << "/" << c.headDimV << " tf32 " << c.tf32 << "\n" << c.mod);
  Drawn drawn(c);
  std::mt19937 random(7);
  const auto like = [&](int64_t heads, int64_t columns) {
    return Tensor(DType::F32, {1, heads, c.tokens, columns}, random);
  };
  const Tensor out = like(4, c.headDimV), dOut = like(4, c.headDimV), lse(DType::F32, {1, 4, c.tokens}, random);
  BackwardOperands& operands = drawn.operands;
  operands.out = out.view, operands.lse = lse.view, operands.dOut = dOut.view;
  take(computeOnCpu(drawn.mod, operands, {.out = out.view, .lse = lse.view}));
  struct Gradients {
    Tensor dQ, dK, dV;
    BackwardOutputs views() const { return {dQ.view, dK.view, dV.view, nullptr}; }
  };
  const auto gradients = [&] { return Gradients{like(4, c.headDim), like(2, c.headDim), like(2, c.headDimV)}; };
  const Gradients want = gradients(), got = gradients();
  take(computeBackwardOnCpu(drawn.mod, operands, want.views()));
  test::launchOnHost(
      take(gradientMod(drawn.mod, {}, false)), optionsOf(c, KernelKind::Backward), operands, {}, got.views(), {},
      [](const plan::Stage& stage) { return stage.onGrid ? "BackwardGridParamsSm80" : "BackwardParams"; });
  for (const auto& [name, result, expected] :
       {std::tuple("dq", &got.dQ, &want.dQ), {"dk", &got.dK, &want.dK}, {"dv", &got.dV, &want.dV}})
    test::compareToLargest(name, result->view, expected->view, c.tf32 ? 4e-3 : 4e-6);
}

} // namespace

TEST_CASE("f32 by boxes of a grid: attention, by three products of TF32 or by one", "[on-host][grid]") {
  checkForward({kNear, "9, 21", 9 * 21});
  checkForward({kNear, "17, 5", 17 * 5, 40, 24});
  checkForward({kAsks, "9, 21", 9 * 21, 16, 8, false, "sm_80"});
  checkForward({kVolume, "5, 6, 7", 5 * 6 * 7});
  checkForward({kDilated, "200", 200});
  checkForward({kDilated, "210", 210});
  checkForward({kNear, "9, 21", 9 * 21, 16, 16, true});
}

TEST_CASE("f32 by boxes of a grid: gradients, by three products of TF32 or by one", "[on-host][grid]") {
  checkGradients({kNear, "9, 21", 9 * 21});
  checkGradients({kNear, "17, 5", 17 * 5, 40, 72});
  checkGradients({kAsks, "9, 21", 9 * 21, 16, 8, false, "sm_80"});
  checkGradients({kVolume, "5, 6, 7", 5 * 6 * 7});
  checkGradients({kDilated, "210", 210}); // remainders are an axis
  checkGradients({kNear, "9, 21", 9 * 21, 16, 16, true});
}
