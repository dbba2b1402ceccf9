// Neighborhood attention: each pixel of an image attends to the pixels around it. The mod declares the grid, so kernels
// read boxes of the image where they lie. Without a GPU the CPU reference computes.
#include "support.h"

#include <math.h>

enum { kHeads = 4, kHeight = 24, kWidth = 20, kTokens = kHeight * kWidth, kHeadDim = 64, kReach = 3 };

static const char kMod[] = "from attnc import grid\n"
                           "REACH: int\n"
                           "HEIGHT: int\n"
                           "WIDTH: int\n"
                           "image = grid(HEIGHT, WIDTH)\n"
                           "def mask_mod(b, h, q_idx, kv_idx):\n"
                           "    (qy, qx), (ky, kx) = image.coords(q_idx), image.coords(kv_idx)\n"
                           "    return (abs(qy - ky) <= REACH) & (abs(qx - kx) <= REACH)\n";

enum { kElements = kHeads * kTokens * kHeadDim };
static uint16_t q[kElements], k[kElements], v[kElements], out[kElements]; // bf16 [kHeads, kTokens, kHeadDim]

static double at(const uint16_t* values, int head, int token, int i) {
  return from_bf16(values[(head * kTokens + token) * kHeadDim + i]);
}

/// Computes a row of out by the definition.
static void expected_row(int head, int token, double* row) {
  double total = 0;
  memset(row, 0, kHeadDim * sizeof *row);
  for (int key = 0; key < kTokens; ++key) {
    if (abs(key / kWidth - token / kWidth) > kReach || abs(key % kWidth - token % kWidth) > kReach) continue;
    double score = 0;
    for (int i = 0; i < kHeadDim; ++i) score += at(q, head, token, i) * at(k, head, key, i);
    const double weight = exp(score / sqrt(kHeadDim));
    total += weight;
    for (int i = 0; i < kHeadDim; ++i) row[i] += weight * at(v, head, key, i);
  }
  for (int i = 0; i < kHeadDim; ++i) row[i] /= total;
}

static attnc_capture integer(const char* name, int64_t value) {
  return (attnc_capture){
      .struct_size = sizeof(attnc_capture), .name = name, .kind = ATTNC_CAPTURE_INT, .integer = value};
}

int main(int argc, char** argv) {
  device gpu;
  const int on_gpu = device_open(&gpu);
  printf(on_gpu ? "computing on the GPU\n" : "no GPU here: the CPU reference computes\n");
  attnc_mod* mod;
  check(attnc_mod_parse(kMod, ATTNC_WHOLE, NULL, &mod));
  attnc_compiler* compiler;
  check(attnc_compiler_create(NULL, &compiler));

  uint32_t state = 1;
  for (int i = 0; i < kElements; ++i) {
    q[i] = to_bf16(2 * draw(&state));
    k[i] = to_bf16(2 * draw(&state));
    v[i] = to_bf16(draw(&state));
  }
  const int64_t shape[] = {1, kHeads, kTokens, kHeadDim};
  attnc_tensor q_view = tensor(ATTNC_DTYPE_BF16, 4, shape), k_view = q_view, v_view = q_view, out_view = q_view;
  q_view.data = upload(&gpu, q, sizeof q), k_view.data = upload(&gpu, k, sizeof k);
  v_view.data = upload(&gpu, v, sizeof v), out_view.data = upload(&gpu, out, sizeof out);
  const attnc_capture captures[] = {integer("HEIGHT", kHeight), integer("WIDTH", kWidth), integer("REACH", kReach)};
  const attnc_operands operands = {.struct_size = sizeof operands,
                                   .q = &q_view,
                                   .k = &k_view,
                                   .v = &v_view,
                                   .captures = captures,
                                   .capture_count = 3};
  const attnc_outputs outputs = {.struct_size = sizeof outputs, .out = &out_view};

  // Which kernel: that of boxes, if the operands show that all tokens lie on the grid.
  const attnc_prepare_options options = {.struct_size = sizeof options,
                                         .arch = on_gpu     ? NULL
                                                 : argc > 1 ? argv[1]
                                                            : "sm_90a"};
  attnc_preparation* preparation;
  attnc_kernel_options kernel = {.struct_size = sizeof kernel};
  check(attnc_settle(compiler, mod, &operands, &outputs, &options, &preparation));
  check(attnc_plan_get_options(attnc_preparation_get_plan(preparation, 0), &kernel));
  printf("family %s for %s\n", attnc_family_name(kernel.family), kernel.arch);
  if (on_gpu) {
    attnc_prepared* attention;
    check(attnc_prepare(compiler, mod, &operands, &outputs, NULL, &attention));
    void* workspace = workspace_of(&gpu, attention);
    check(attnc_prepared_initialise(attention, &operands, workspace, NULL));
    check(attnc_prepared_launch(attention, &operands, &outputs, workspace, NULL));
    check_cuda(gpu.synchronize());
    attnc_prepared_destroy(attention);
  } else {
    check(attnc_compute_on_cpu(mod, &operands, &outputs));
  }
  check_cuda(gpu.download(out, (uint64_t)out_view.data, sizeof out));

  double worst = 0;
  for (int head = 0; head < kHeads; ++head)
    for (int token = 0; token < kTokens; ++token) {
      double row[kHeadDim];
      expected_row(head, token, row);
      for (int i = 0; i < kHeadDim; ++i) {
        const double apart = fabs(at(out, head, token, i) - row[i]);
        worst = fmax(worst, isnan(apart) ? HUGE_VAL : apart);
      }
    }
  const int is_right = worst < 0.02;
  printf("%d x %d pixels: largest difference %.4f, %s\n", kHeight, kWidth, worst,
         is_right ? "as the definition" : "WRONG");
  attnc_preparation_destroy(preparation);
  attnc_compiler_destroy(compiler);
  attnc_mod_destroy(mod);
  return !is_right; // the end frees the memory
}
