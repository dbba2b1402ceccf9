// Neighborhood attention in C++ over the C library: each pixel of an image attends to the pixels around it. The mod
// declares the grid, so kernels read boxes of the image where they lie. Without a GPU the CPU reference computes.
#include <attnc/c.hpp>

#include "support.hpp"

#include <cmath>

namespace ac = attnc::c;

namespace {

constexpr int kHeads = 4, kHeight = 24, kWidth = 20, kTokens = kHeight * kWidth, kHeadDim = 64, kReach = 3;

constexpr const char* kMod = "from attnc import grid\n"
                             "HEIGHT: int\n"
                             "WIDTH: int\n"
                             "REACH: int\n"
                             "image = grid(HEIGHT, WIDTH)\n"
                             "def mask_mod(b, h, q_idx, kv_idx):\n"
                             "    (qy, qx), (ky, kx) = image.coords(q_idx), image.coords(kv_idx)\n"
                             "    return (abs(qy - ky) <= REACH) & (abs(qx - kx) <= REACH)\n";

using Values = std::vector<uint16_t>; // bf16 [kHeads, kTokens, kHeadDim]

double at(const Values& values, int head, int token, int i) {
  return from_bf16(values[size_t((head * kTokens + token) * kHeadDim + i)]);
}

/// Returns a row of out by the definition.
std::vector<double> expectedRow(const Values& q, const Values& k, const Values& v, int head, int token) {
  double total = 0;
  std::vector<double> row(kHeadDim);
  for (int key = 0; key < kTokens; ++key) {
    if (std::abs(key / kWidth - token / kWidth) > kReach || std::abs(key % kWidth - token % kWidth) > kReach) continue;
    double score = 0;
    for (int i = 0; i < kHeadDim; ++i) score += at(q, head, token, i) * at(k, head, key, i);
    const double weight = std::exp(score / std::sqrt(kHeadDim));
    total += weight;
    for (int i = 0; i < kHeadDim; ++i) row[size_t(i)] += weight * at(v, head, key, i);
  }
  for (double& value : row) value /= total;
  return row;
}

} // namespace

int main(int argc, char** argv) {
  device gpu;
  const bool onGpu = device_open(&gpu);
  std::puts(onGpu ? "computing on the GPU" : "no GPU here: the CPU reference computes");
  const ac::Mod mod = take(ac::Mod::parse(kMod));
  const ac::Compiler compiler = take(ac::Compiler::create());

  uint32_t state = 1;
  const int64_t elements = int64_t(kHeads) * kTokens * kHeadDim;
  const Values q = drawBf16(elements, state), k = drawBf16(elements, state), v = drawBf16(elements, state);
  Values out(q.size());
  const Buffer ofQ(gpu, q), ofK(gpu, k), ofV(gpu, v), ofOut(gpu, out);
  const auto view = [](const Buffer& buffer) {
    return ac::TensorView::contiguous(buffer.data(), ATTNC_DTYPE_BF16, {1, kHeads, kTokens, kHeadDim});
  };
  const ac::TensorView qView = view(ofQ), kView = view(ofK), vView = view(ofV), outView = view(ofOut);
  ac::Captures captures;
  captures.set("HEIGHT", kHeight).set("WIDTH", kWidth).set("REACH", kReach);
  ac::Operands operands;
  operands.q = &qView, operands.k = &kView, operands.v = &vView;
  operands.set(captures);
  ac::Outputs outputs;
  outputs.out = &outView;

  // Which kernel: that of boxes, if the operands show that all tokens lie on the grid.
  ac::PrepareOptions options;
  if (!onGpu) options.arch = argc > 1 ? argv[1] : "sm_90a";
  const ac::Plan plan = take(compiler.settle(mod, operands, outputs, options)).kernels().front();
  const auto kernel = plan.options();
  std::printf("family %s for %s\n", attnc_family_name(kernel.family), kernel.arch);
  if (onGpu) {
    const ac::Prepared attention = take(compiler.prepare(mod, operands, outputs));
    const Buffer workspace(gpu, attention.workspaceBytes());
    check(attention.initialise(operands, workspace.data(), nullptr));
    check(attention.launch(operands, outputs, workspace.data(), nullptr));
    checkCuda(gpu.synchronize());
  } else {
    check(ac::computeOnCpu(mod, operands, outputs));
  }
  ofOut.download(out);

  double worst = 0;
  for (int head = 0; head < kHeads; ++head)
    for (int token = 0; token < kTokens; ++token) {
      const std::vector<double> expected = expectedRow(q, k, v, head, token);
      for (int i = 0; i < kHeadDim; ++i) {
        const double apart = std::abs(at(out, head, token, i) - expected[size_t(i)]);
        worst = std::fmax(worst, std::isnan(apart) ? HUGE_VAL : apart);
      }
    }
  const bool isRight = worst < 0.02;
  std::printf("%d x %d pixels: largest difference %.4f, %s\n", kHeight, kWidth, worst,
              isRight ? "as the definition" : "WRONG");
  return isRight ? 0 : 1;
}
