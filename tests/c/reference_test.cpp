// Attention on the CPU through the C interface.
#include "calls.h"

#include <cmath>
#include <vector>

using namespace ctest;

TEST_CASE("attention and its gradients are computed on the CPU", "[c]") {
  // One query; the second of two keys is masked, so out is v of the first one.
  std::vector<float> q = {1, 2}, k = {3, 4, 5, 6}, v = {7, 8, 9, 10}, out(2), lse(1), dOut = {1, 2}, dV(4), dQ(2),
                     dK(4);
  float slope = 0.5f, dSlope = -1;
  attnc_tensor qView = tensor(ATTNC_DTYPE_F32, {1, 1, 1, 2}, q.data()),
               kView = tensor(ATTNC_DTYPE_F32, {1, 1, 2, 2}, k.data()), vView = kView, dQView = qView, dKView = kView,
               dVView = kView, outView = qView, dOutView = qView,
               lseView = tensor(ATTNC_DTYPE_F32, {1, 1, 1}, lse.data()), slopes = tensor(ATTNC_DTYPE_F32, {1}, &slope),
               dSlopes = tensor(ATTNC_DTYPE_F32, {1}, &dSlope);
  vView.data = v.data(), outView.data = out.data(), dOutView.data = dOut.data();
  dQView.data = dQ.data(), dKView.data = dK.data(), dVView.data = dV.data();
  const attnc_capture captured = capture("slopes", &slopes), wanted = capture("slopes", &dSlopes);
  auto operands = sized<attnc_operands>();
  operands.q = &qView, operands.k = &kView, operands.v = &vView;
  operands.captures = &captured, operands.capture_count = 1;
  operands.scale = 1, operands.has_scale = 1;
  auto outputs = sized<attnc_outputs>();
  outputs.out = &outView, outputs.lse = &lseView;
  const Owned<attnc_mod> mod = parse("slopes: f32[H]\n"
                                     "def score_mod(s, b, h, q, k):\n    return s * slopes[h]\n"
                                     "def mask_mod(b, h, q, k):\n    return k < 1\n");
  TAKE(attnc_compute_on_cpu(mod.get(), &operands, &outputs));
  CHECK(out == std::vector<float>{7, 8});
  CHECK(lse[0] == 5.5f);

  auto backward = sized<attnc_backward_operands>();
  backward.forward = &operands;
  backward.out = &outView, backward.lse = backward.d_lse = &lseView, backward.d_out = &dOutView;
  auto gradients = sized<attnc_backward_outputs>();
  gradients.d_q = &dQView, gradients.d_k = &dKView, gradients.d_v = &dVView;
  gradients.captures = &wanted, gradients.capture_count = 1;
  TAKE(attnc_compute_backward_on_cpu(mod.get(), &backward, &gradients));
  CHECK(dV == std::vector<float>{1, 2, 0, 0});
  // Of lse alone, whose gradient is 5.5 here: the one weight is 1.
  CHECK(dSlope == 5.5f * 11);
  CHECK(dQ[0] == 5.5f * 0.5f * 3);
  CHECK(dK == std::vector<float>{5.5f * 0.5f, 5.5f, 0, 0});

  outView.shape[3] = 1;
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "out is [1, 1, 1, 1]", attnc_compute_on_cpu(mod.get(), &operands, &outputs));
  const Owned<attnc_mod> asserting = parse("slopes: f32[N]\nassert slopes.shape[0] == B + 1, 'one slope more'\n"
                                           "def score_mod(s, b, h, q, k):\n    return s * slopes[b + 1]\n");
  outView.shape[3] = 2;
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "one slope more", attnc_compute_on_cpu(asserting.get(), &operands, &outputs));
  REFUSED(ATTNC_ERROR_ARGUMENT, "mod is NULL", attnc_compute_on_cpu(nullptr, &operands, &outputs));
  REFUSED(ATTNC_ERROR_ARGUMENT, "operands is NULL", attnc_compute_on_cpu(mod.get(), nullptr, &outputs));
  REFUSED(ATTNC_ERROR_ARGUMENT, "mod is NULL", attnc_compute_backward_on_cpu(nullptr, &backward, &gradients));
  REFUSED(ATTNC_ERROR_ARGUMENT, "outputs is NULL", attnc_compute_backward_on_cpu(mod.get(), &backward, nullptr));
}
