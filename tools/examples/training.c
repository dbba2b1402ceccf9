// Learns a bias by relative position: forward pass, loss, backward pass, a step of descent. The gradient of the
// captured bias comes from backward kernels on a GPU, else from the CPU reference. It is compared with differences of
// the loss.
#include "support.h"

#include <math.h>

enum { kHeads = 4, kLength = 64, kHeadDim = 32, kElements = kHeads * kLength * kHeadDim, kSteps = 20 };

static const char kMod[] = "bias: f32[H, Q_LEN]\n"
                           "def score_mod(score, b, h, q_idx, kv_idx):\n"
                           "    return score + bias[h, q_idx - kv_idx]\n"
                           "def mask_mod(b, h, q_idx, kv_idx):\n"
                           "    return q_idx >= kv_idx\n";

// Host memory. The forward pass reads q, k, v and bias; the loss is the mean square of out - target.
static float q[kElements], k[kElements], v[kElements], target[kElements], out[kElements], dout[kElements];
static float bias[kHeads * kLength], gradient[kHeads * kLength];

static attnc_tensor view_of(attnc_tensor like, void* data) {
  like.data = data;
  return like;
}

/// Computes the loss for a bias by the CPU reference, in host memory; writes out to `to`.
static double reference_loss(const attnc_mod* mod, const attnc_tensor* like, float* with, float* to) {
  const int64_t extents[] = {kHeads, kLength};
  const attnc_tensor q_view = view_of(*like, q), k_view = view_of(*like, k), v_view = view_of(*like, v),
                     out_view = view_of(*like, to), values = view_of(tensor(ATTNC_DTYPE_F32, 2, extents), with);
  const attnc_capture capture = {.struct_size = sizeof capture, .name = "bias", .tensor = &values};
  const attnc_operands operands = {.struct_size = sizeof operands,
                                   .q = &q_view,
                                   .k = &k_view,
                                   .v = &v_view,
                                   .captures = &capture,
                                   .capture_count = 1};
  const attnc_outputs outputs = {.struct_size = sizeof outputs, .out = &out_view};
  check(attnc_compute_on_cpu(mod, &operands, &outputs));
  double sum = 0;
  for (int i = 0; i < kElements; ++i) sum += ((double)to[i] - target[i]) * ((double)to[i] - target[i]);
  return sum / kElements;
}

/// Returns how far the gradient along itself is from differences of the loss, relative.
static double gradient_error(const attnc_mod* mod, const attnc_tensor* like) {
  static float moved[kHeads * kLength], ignored[kElements];
  double square = 0, losses[2];
  for (int i = 0; i < kHeads * kLength; ++i) square += (double)gradient[i] * gradient[i];
  const double step = 0.01 / sqrt(square);
  for (int side = 0; side < 2; ++side) {
    for (int i = 0; i < kHeads * kLength; ++i) moved[i] = (float)(bias[i] + (side ? step : -step) * gradient[i]);
    losses[side] = reference_loss(mod, like, moved, ignored);
  }
  return fabs((losses[1] - losses[0]) / (2 * step * square) - 1);
}

int main(void) {
  device gpu;
  const int on_gpu = device_open(&gpu);
  printf(on_gpu ? "training on the GPU\n" : "no GPU here: the CPU reference computes\n");
  attnc_mod* mod;
  check(attnc_mod_parse(kMod, ATTNC_WHOLE, NULL, &mod));
  attnc_compiler* compiler;
  check(attnc_compiler_create(NULL, &compiler));

  // The target is attention with the bias that is to be learned.
  const int64_t shape[] = {1, kHeads, kLength, kHeadDim}, rows[] = {1, kHeads, kLength}, extents[] = {kHeads, kLength};
  const attnc_tensor like = tensor(ATTNC_DTYPE_F32, 4, shape);
  uint32_t state = 1;
  for (int i = 0; i < kElements; ++i) q[i] = 2 * draw(&state), k[i] = 2 * draw(&state), v[i] = draw(&state);
  for (int i = 0; i < kHeads * kLength; ++i) bias[i] = -0.3f * (float)(i % kLength);
  reference_loss(mod, &like, bias, target);
  memset(bias, 0, sizeof bias);

  // The same tensors where attention is computed.
  attnc_tensor q_view = view_of(like, upload(&gpu, q, sizeof q)), k_view = view_of(like, upload(&gpu, k, sizeof k)),
               v_view = view_of(like, upload(&gpu, v, sizeof v)),
               out_view = view_of(like, upload(&gpu, out, sizeof out)),
               dout_view = view_of(like, upload(&gpu, dout, sizeof dout)), lse_view = tensor(ATTNC_DTYPE_F32, 3, rows),
               values = tensor(ATTNC_DTYPE_F32, 2, extents), gradients = values;
  lse_view.data = upload(&gpu, out, kHeads * kLength * sizeof(float));
  values.data = upload(&gpu, bias, sizeof bias), gradients.data = upload(&gpu, gradient, sizeof gradient);
  const attnc_capture capture = {.struct_size = sizeof capture, .name = "bias", .tensor = &values},
                      wanted = {.struct_size = sizeof wanted, .name = "bias", .tensor = &gradients};
  const attnc_operands operands = {.struct_size = sizeof operands,
                                   .q = &q_view,
                                   .k = &k_view,
                                   .v = &v_view,
                                   .captures = &capture,
                                   .capture_count = 1};
  const attnc_outputs outputs = {.struct_size = sizeof outputs, .out = &out_view, .lse = &lse_view};
  const attnc_backward_operands backward = {
      .struct_size = sizeof backward, .forward = &operands, .out = &out_view, .lse = &lse_view, .dout = &dout_view};
  // Here only the bias is learned, so gradients of q, k and v are left out.
  const attnc_backward_outputs results = {.struct_size = sizeof results, .captures = &wanted, .capture_count = 1};

  attnc_prepared* attention = NULL;
  void* workspace = NULL;
  if (on_gpu) {
    check(attnc_prepare_training(compiler, mod, &backward, &outputs, &results, NULL, &attention));
    workspace = workspace_of(&gpu, attention);
    check(attnc_prepared_initialise(attention, &operands, workspace, NULL));
  }
  double first = 0, loss = 0, worst = 0;
  for (int step = 0; step <= kSteps; ++step) {
    check(on_gpu ? attnc_prepared_launch(attention, &operands, &outputs, workspace, NULL)
                 : attnc_compute_on_cpu(mod, &operands, &outputs));
    check_cuda(gpu.download(out, (uint64_t)out_view.data, sizeof out));
    loss = 0;
    for (int i = 0; i < kElements; ++i) {
      dout[i] = 2 * (out[i] - target[i]) / kElements;
      loss += ((double)out[i] - target[i]) * ((double)out[i] - target[i]) / kElements;
    }
    if (step == 0) first = loss;
    check_cuda(gpu.upload((uint64_t)dout_view.data, dout, sizeof dout));
    check(on_gpu ? attnc_prepared_launch_backward(attention, &backward, &results, workspace, NULL)
                 : attnc_compute_backward_on_cpu(mod, &backward, &results));
    check_cuda(gpu.download(gradient, (uint64_t)gradients.data, sizeof gradient));
    if (step % 5 == 0) worst = fmax(worst, gradient_error(mod, &like));
    for (int i = 0; i < kHeads * kLength; ++i) bias[i] -= 200 * gradient[i];
    check_cuda(gpu.upload((uint64_t)values.data, bias, sizeof bias));
  }
  const int is_right = loss < first / 2 && worst < 0.01;
  printf("loss %.5f to %.5f in %d steps, gradients off by %.1e: %s\n", first, loss, kSteps, worst,
         is_right ? "as differences of the loss" : "WRONG");
  attnc_prepared_destroy(attention);
  attnc_compiler_destroy(compiler);
  attnc_mod_destroy(mod);
  return !is_right; // the end frees the memory
}
