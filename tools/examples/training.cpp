// Learns a bias by relative position: forward pass, loss, backward pass, a step of descent. The gradient of the
// captured bias comes from backward kernels on a GPU, else from the CPU reference. It is compared with differences of
// the loss.
#include <attnc/attnc.h>

#include "support.hpp"

#include <cmath>

using attnc::DType;
using attnc::TensorView;

namespace {

constexpr int64_t kHeads = 4, kLength = 64, kHeadDim = 32;
constexpr int kSteps = 20;

constexpr const char* kMod = "bias: f32[H, Q_LEN]\n"
                             "def score_mod(score, b, h, q_idx, kv_idx):\n"
                             "    return score + bias[h, q_idx - kv_idx]\n"
                             "def mask_mod(b, h, q_idx, kv_idx):\n"
                             "    return q_idx >= kv_idx\n";

using Values = std::vector<float>;

TensorView rows(void* data) { return TensorView::contiguous(data, DType::F32, {1, kHeads, kLength, kHeadDim}); }

attnc::Captures biasOf(void* data) {
  attnc::Captures captures;
  captures.set("bias", TensorView::contiguous(data, DType::F32, {kHeads, kLength}));
  return captures;
}

/// What attention reads besides the bias, on the host. The loss is the mean square of out - target.
struct Problem {
  attnc::Mod mod = take(attnc::Mod::parse(kMod));
  Values q, k, v, target;

  /// Returns out for a bias, by the CPU reference.
  Values attend(Values bias) {
    Values out(q.size());
    const attnc::Captures captures = biasOf(bias.data());
    const attnc::Operands operands{
        .q = rows(q.data()), .k = rows(k.data()), .v = rows(v.data()), .captures = &captures};
    check(attnc::computeOnCpu(mod, operands, {.out = rows(out.data())}));
    return out;
  }
  double loss(const Values& out) const {
    double sum = 0;
    for (size_t i = 0; i < out.size(); ++i) sum += std::pow(double(out[i]) - target[i], 2);
    return sum / double(out.size());
  }
  /// Returns how far the gradient along itself is from differences of the loss, relative.
  double gradientError(const Values& bias, const Values& gradient) {
    double square = 0;
    for (float value : gradient) square += double(value) * value;
    const double step = 0.01 / std::sqrt(square);
    Values up = bias, down = bias;
    for (size_t i = 0; i < bias.size(); ++i) {
      up[i] += float(step * gradient[i]);
      down[i] -= float(step * gradient[i]);
    }
    return std::abs((loss(attend(up)) - loss(attend(down))) / (2 * step * square) - 1);
  }
};

Values drawn(size_t count, float scale, uint32_t& state) {
  Values values(count);
  for (float& value : values) value = scale * draw(&state);
  return values;
}

} // namespace

int main() {
  device gpu;
  const bool onGpu = device_open(&gpu);
  std::puts(onGpu ? "training on the GPU" : "no GPU here: the CPU reference computes");
  Problem problem;
  uint32_t state = 1;
  const size_t elements = kHeads * kLength * kHeadDim;
  problem.q = drawn(elements, 2, state), problem.k = drawn(elements, 2, state), problem.v = drawn(elements, 1, state);
  Values bias(kHeads * kLength), gradient(bias.size());
  for (size_t i = 0; i < bias.size(); ++i) bias[i] = -0.3f * float(i % kLength); // what is to be learned
  problem.target = problem.attend(bias);
  bias.assign(bias.size(), 0);

  // The same tensors where attention is computed.
  Values out(elements), dOut(elements);
  const Buffer q(gpu, problem.q), k(gpu, problem.k), v(gpu, problem.v), ofOut(gpu, out), lse(gpu, bias.size() * 4),
      ofGradient(gpu, gradient);
  Buffer ofDOut(gpu, dOut), ofBias(gpu, bias);
  const attnc::Captures captures = biasOf(ofBias.data()), wanted = biasOf(ofGradient.data());
  const attnc::Outputs outputs{.out = rows(ofOut.data()),
                               .lse = TensorView::contiguous(lse.data(), DType::F32, {1, kHeads, kLength})};
  attnc::BackwardOperands operands;
  operands.q = rows(q.data()), operands.k = rows(k.data()), operands.v = rows(v.data());
  operands.captures = &captures;
  operands.out = *outputs.out, operands.lse = *outputs.lse, operands.dOut = rows(ofDOut.data());
  // Here only the bias is learned, so gradients of q, k and v are left out.
  const attnc::BackwardOutputs results{.captures = &wanted};

  const attnc::Compiler compiler;
  std::optional<attnc::Prepared> attention;
  if (onGpu) attention = take(compiler.prepareTraining(problem.mod, operands, outputs, results));
  const Buffer workspace(gpu, attention ? attention->workspaceBytes() : 0);
  if (attention) check(attention->initialise(operands, workspace.data(), nullptr));
  double first = 0, loss = 0, worst = 0;
  for (int step = 0; step <= kSteps; ++step) {
    check(attention ? attention->launch(operands, outputs, workspace.data(), nullptr)
                    : attnc::computeOnCpu(problem.mod, operands, outputs));
    ofOut.download(out);
    loss = problem.loss(out);
    if (step == 0) first = loss;
    for (size_t i = 0; i < elements; ++i) dOut[i] = 2 * (out[i] - problem.target[i]) / float(elements);
    ofDOut.upload(dOut);
    check(attention ? attention->launchBackward(operands, results, workspace.data(), nullptr)
                    : attnc::computeBackwardOnCpu(problem.mod, operands, results));
    ofGradient.download(gradient);
    if (step % 5 == 0) worst = std::fmax(worst, problem.gradientError(bias, gradient));
    for (size_t i = 0; i < bias.size(); ++i) bias[i] -= 200 * gradient[i];
    ofBias.upload(bias);
  }
  const bool isRight = loss < first / 2 && worst < 0.01;
  std::printf("loss %.5f to %.5f in %d steps, gradients off by %.1e: %s\n", first, loss, kSteps, worst,
              isRight ? "as differences of the loss" : "WRONG");
  return isRight ? 0 : 1;
}
