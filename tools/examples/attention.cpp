// ALiBi with a causal mask, from C++: on the GPU if there is one, else compiled for another machine.
//   attention_cpp [arch, default sm_90a]
#include <attnc/attnc.h>

#include "support.hpp"

namespace {

constexpr int64_t kBatch = 1, kHeads = 4, kLength = 256, kHeadDim = 64;

constexpr std::string_view kMod = "slopes: f32[H]\n"
                                  "def score_mod(score, b, h, q_idx, kv_idx):\n"
                                  "    return score + slopes[h] * (kv_idx - q_idx)\n"
                                  "def mask_mod(b, h, q_idx, kv_idx):\n"
                                  "    return q_idx >= kv_idx\n";

void printStages(const attnc::CompiledStages& stages) {
  for (const auto& stage : stages)
    std::printf("%s: %zu bytes of cubin, %d registers, %d bytes of spills\n", stage->templateName.c_str(),
                stage->cubin.size(), stage->registers, stage->spillBytes);
}

} // namespace

int main(int argc, char** argv) {
  const attnc::Mod mod = take(attnc::Mod::parse(kMod, {.name = "alibi"}));
  std::printf("attnc " ATTNC_VERSION ": %s captures %zu\n", mod.name().c_str(), mod.captures().size());
  const attnc::Compiler compiler;

  const auto view = [](void* data) {
    return attnc::TensorView::contiguous(data, attnc::DType::BF16, {kBatch, kHeads, kLength, kHeadDim});
  };
  attnc::Operands operands{.q = view(nullptr), .k = view(nullptr), .v = view(nullptr)};
  attnc::Outputs outputs{.out = view(nullptr)};

  device gpu;
  if (!device_open(&gpu)) {
    const std::string arch = argc > 1 ? argv[1] : "sm_90a";
    const attnc::Preparation settled = take(compiler.settle(mod, operands, outputs, {.arch = arch}));
    std::printf("no GPU here, compiling for %s\nfamily %s\n", arch.c_str(),
                std::string(attnc::familyName(settled.kernel.options().family)).c_str());
    printStages(take(compiler.compile(settled.kernel)));
    return 0;
  }

  std::vector<uint16_t> host(size_t(kBatch * kHeads * kLength * kHeadDim)), computed(host.size());
  for (size_t i = 0; i < host.size(); ++i) host[i] = to_bf16(float(i % 17) / 16 - 0.5f);
  const std::vector<float> slope{0.25f, 0.0625f, 0.015625f, 0.00390625f};
  Buffer qkv(gpu, host), out(gpu, computed), slopes(gpu, slope);
  attnc::Captures captures;
  captures.set("slopes", attnc::TensorView::contiguous(slopes.data(), attnc::DType::F32, {kHeads}));
  operands.captures = &captures;
  operands.q = operands.k = operands.v = view(qkv.data());
  outputs.out = view(out.data());

  const attnc::Prepared attention = take(compiler.prepare(mod, operands, outputs));
  std::printf("family %s\n", std::string(attnc::familyName(attention.preparation().kernel.options().family)).c_str());
  printStages(attention.kernel().compiled());
  Buffer workspace(gpu, attention.workspaceBytes());
  check(attention.initialise(operands, workspace.data(), nullptr));
  check(attention.launch(operands, outputs, workspace.data(), nullptr)); // any number of times
  checkCuda(gpu.synchronize());
  out.download(computed);
  // The first query sees only the first key, so its output is the first row of v.
  bool isRight = true;
  for (size_t i = 0; i < size_t(kHeadDim); ++i) isRight = isRight && computed[i] == host[i];
  std::printf("out[0, 0, 0]: %g, %g, %g, ...: %s\n", from_bf16(computed[0]), from_bf16(computed[1]),
              from_bf16(computed[2]), isRight ? "as v[0, 0, 0]" : "WRONG");
  return isRight ? 0 : 1;
}
