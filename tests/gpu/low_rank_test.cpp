// Low-rank terms of scores, in columns of q and k, against the reference: all dtypes of factors, heads that share k,
// lengths and offsets, lists, and mods that do more with the score afterwards.
#include "gpu.h"

#include <fmt/format.h>

#include <functional>

using namespace attnc;
using namespace attnc::gputest;

namespace {

Mod modOf(const std::string& text) { return take(Mod::parse(text)); }

/// score + u w, with factors of these dtypes. `after`: what becomes of the sum `s`.
std::string dotMod(int rank, const std::string& u, const std::string& w, const std::string& headOfW = "h",
                   const std::string& after = "s") {
  return fmt::format("import torch\nu: {1}[B, H, Q_LEN, {0}]\nw: {2}[B, H, KV_LEN, {0}]\ngain: float\n"
                     "def score_mod(score, b, h, q_idx, kv_idx):\n"
                     "    s = score + gain * (u[b, h, q_idx] @ w[b, {3}, kv_idx])\n    return {4}\n"
                     "def mask_mod(b, h, q_idx, kv_idx):\n    return (q_idx - kv_idx) % 5 != 1\n",
                     rank, u, w, headOfW, after);
}

/// Checks the families whose kernels take the term with the score. `change`: of what is drawn.
void check(
    const std::string& text, const Problem& problem, const RunOptions& base = {},
    const std::vector<int32_t>& lengths = {}, const std::function<void(HostOperands&)>& change = [](auto&) {}) {
  const Mod mod = modOf(text);
  HostOperands operands = draw(mod, problem);
  operands.kvLengths = lengths;
  change(operands);
  const std::optional<QueryOffsets> offsets = base.offsets;
  // Products with a query's numbers of bf16 may err by 2^-16 of themselves, others by what is allowed; their sizes add
  // up to 8.
  const double termError = base.lowRankError > 0                       ? 8 * double(base.lowRankError)
                           : text.find("u: bf16") != std::string::npos ? 8 * 0x1p-16
                                                                       : 0;
  const Outcome expected = runReference(mod, problem, operands, base.scale, offsets);
  for (Family family : familiesFor(mod, problem, base)) {
    RunOptions options = base;
    options.family = family;
    INFO(text << problem.text() << ", family " << int(family));
    checkClose(runKernel(mod, problem, operands, options), expected, problem, false, termError);
  }
}

} // namespace

GPU_TEST_CASE("low-rank terms in columns of q and k agree with the reference", "[gpu]") {
  check(dotMod(64, "bf16", "bf16"), {{2, 4, 4, 129, 257}, 64, 64});
  check(dotMod(64, "bf16", "bf16", "0"), {{1, 3, 1, 300, 200}, 128, 128});
  check(dotMod(16, "f32", "bf16", "0"), {{1, 6, 2, 127, 63}, 128, 128});
  check(dotMod(16, "bf16", "f32"), {{1, 4, 2, 65, 400}, 128, 64});
  check(dotMod(16, "f32", "f32"), {{2, 4, 2, 193, 191}, 128, 128});
  check(dotMod(20, "f16", "f32", "0"), {{1, 2, 1, 17, 400}, 72, 40});
  check(dotMod(16, "f32", "f32", "h", "torch.tanh(s / 3.0) * 3.0"), {{1, 2, 2, 256, 129}, 64, 64});
  check(dotMod(16, "bf16", "bf16", "h", "s + 0.125 * (kv_idx - q_idx)"), {{1, 2, 2, 256, 129}, 64, 64});
}

GPU_TEST_CASE("low-rank terms of f32 keep the error that is allowed", "[gpu]") {
  for (float error : {0.01f, 0.005f, 1e-4f, 2e-5f, 1e-6f}) {
    check(dotMod(16, "f32", "f32"), {{2, 4, 2, 129, 257}, 128, 128}, {.lowRankError = error});
    check(dotMod(16, "f32", "f32", "0"), {{1, 2, 1, 200, 63}, 72, 40}, {.lowRankError = error});
  }
  check(dotMod(64, "f32", "f32"), {{1, 4, 2, 130, 300}, 128, 128}, {.lowRankError = 0.005f});
  check(dotMod(64, "f32", "bf16", "0"), {{1, 4, 2, 130, 300}, 128, 128}, {.lowRankError = 0.005f});
  check(dotMod(64, "bf16", "bf16", "0"), {{1, 4, 2, 130, 300}, 128, 128}, {.lowRankError = 0.005f});
  check(dotMod(42, "f32", "f32", "0"), {{2, 2, 2, 65, 129}, 128, 64}, {.lowRankError = 1e-4f});
}

GPU_TEST_CASE("low-rank terms go with strides, broadcast batches, lists and scales", "[gpu]") {
  check(dotMod(16, "bf16", "bf16"), {{2, 4, 2, 129, 257}, 64, 64, DType::BF16, true});
  check(dotMod(16, "bf16", "bf16"), {{2, 4, 2, 129, 257}, 64, 64, DType::BF16, false, true, 8});
  check(dotMod(16, "bf16", "f32", "0"), {{2, 4, 2, 129, 257}, 64, 64}, {.blockMask = true});
  for (float scale : {0.f, -0.25f, 1.f, 0x1p-80f})
    check(dotMod(16, "bf16", "bf16"), {{1, 2, 2, 130, 130}, 64, 64}, {.scale = scale});
  check(dotMod(16, "bf16", "bf16"), {{3, 2, 2, 40, 300}, 64, 64},
        {.offsets = QueryOffsets::FromLengths, .decode = false}, {300, 41, 0});
  check(dotMod(16, "bf16", "bf16"), {{1, 2, 2, 130, 130}, 64, 64}, {.launches = 3});
}

namespace {

/// How a capture lies in memory.
struct Layout {
  std::vector<int> order = {0, 1, 2, 3}; ///< axes, the slowest first; axes that are left out are broadcast
  int64_t before = 0, behind = 0;        ///< elements in front of those of the fastest axis, and behind them
};

/// Gives a capture of four axes new memory of this layout.
void put(HostOperands& operands, const std::string& name, const Layout& layout) {
  cli::HostTensor& tensor = operands.tensors.at(name);
  cli::HostTensor laid = {.dtype = tensor.dtype};
  TensorView view = tensor.view();
  std::fill(view.stride.begin(), view.stride.end(), 0);
  for (int axis : layout.order) laid.shape.push_back(view.shape[axis]);
  laid.shape.back() += layout.before + layout.behind;
  int64_t step = 1;
  for (size_t i = layout.order.size(); i-- > 0; step *= laid.shape[i]) view.stride[layout.order[i]] = step;
  const auto bytes = size_t(dtypeBytes(tensor.dtype));
  laid.bytes.assign(size_t(step) * bytes, char(0xff)); // NaN
  for (int64_t b = 0; b < view.shape[0]; ++b)
    for (int64_t h = 0; h < view.shape[1]; ++h)
      for (int64_t i = 0; i < view.shape[2]; ++i)
        for (int64_t r = 0; r < view.shape[3]; ++r) {
          const int64_t from = ((b * view.shape[1] + h) * view.shape[2] + i) * view.shape[3] + r;
          const int64_t to =
              layout.before + b * view.stride[0] + h * view.stride[1] + i * view.stride[2] + r * view.stride[3];
          std::copy_n(tensor.bytes.begin() + from * int64_t(bytes), bytes, laid.bytes.begin() + to * int64_t(bytes));
        }
  tensor = std::move(laid);
  view.data = tensor.bytes.data() + size_t(layout.before) * bytes;
  operands.captures.set(name, view);
}

} // namespace

GPU_TEST_CASE("captures of any layout are factors of a low-rank term", "[gpu]") {
  const Layout dense, headsLast{{0, 2, 1, 3}}, ranksFirst{{0, 1, 3, 2}}, sliced{{0, 1, 2, 3}, 8, 16},
      unaligned{{0, 1, 2, 3}, 3, 5}, oneBatch{{1, 2, 3}}, oneHead{{0, 2, 3}}, oneRow{{0, 1, 3}}, one{{2, 3}},
      padded{{2, 0, 1, 3}, 0, 11};
  struct Row {
    Layout u, w;
    int rank = 16;
    double gain = 0.3f; // the scale is 0.3: with the same gain, captures may serve as they lie
    const char* headOfW = "h";
    const char *dtypeOfU = "bf16", *dtypeOfW = "bf16";
  };
  for (const Row& row : std::initializer_list<Row>{{dense, dense},
                                                   {dense, dense, 64},
                                                   {headsLast, headsLast, 64},
                                                   {ranksFirst, dense},
                                                   {dense, ranksFirst},
                                                   {sliced, sliced},
                                                   {unaligned, sliced},
                                                   {sliced, unaligned},
                                                   {oneBatch, oneHead},
                                                   {oneHead, oneBatch},
                                                   {one, one, 64},
                                                   {oneRow, oneRow},
                                                   {dense, dense, 5},
                                                   {padded, padded, 5},
                                                   {padded, padded, 5, -0.6f},
                                                   {dense, dense, 64, -0.3f},
                                                   {dense, dense, 64, 0.15f, "0"},
                                                   {dense, dense, 64, 0.25, "0"},
                                                   {dense, oneHead, 16, 0.3f, "0", "bf16", "f16"},
                                                   {dense, headsLast, 16, 0.3f, "0", "f16", "bf16"}})
    for (const Problem& problem : {Problem{{2, 4, 2, 129, 257}, 64, 64}, {{1, 2, 1, 63, 191}, 128, 128}}) {
      INFO("gain " << row.gain);
      check(dotMod(row.rank, row.dtypeOfU, row.dtypeOfW, row.headOfW), problem, {.scale = 0.3f}, {},
            [&](HostOperands& operands) {
              put(operands, "u", row.u), put(operands, "w", row.w);
              operands.captures.set("gain", row.gain);
            });
    }
  const auto sameGain = [](HostOperands& operands) { operands.captures.set("gain", double(0.3f)); };
  check(dotMod(16, "bf16", "bf16"), {{3, 2, 2, 40, 300}, 64, 64},
        {.scale = 0.3f, .offsets = QueryOffsets::FromLengths, .decode = false}, {300, 41, 0}, sameGain);
  check(dotMod(16, "bf16", "bf16"), {{2, 4, 2, 129, 257}, 64, 64}, {.blockMask = true, .scale = 0.3f}, {}, sameGain);
  check(dotMod(16, "bf16", "bf16"), {{2, 4, 2, 129, 257}, 64, 64, DType::BF16, true}, {.scale = 0.3f}, {}, sameGain);
  for (float scale : {0.f, 0x1p-80f, 1e20f})
    check(dotMod(16, "bf16", "bf16"), {{2, 4, 2, 130, 130}, 128, 128}, {.scale = scale}, {},
          [](HostOperands& operands) { operands.captures.set("gain", 0x1p-48); });
}

GPU_TEST_CASE("gradients of q, k and v with a low-rank term in columns agree with the reference", "[gpu][backward]") {
  const auto checkBackward = [](const std::string& text, const Problem& problem, std::optional<float> scale = {},
                                bool deterministic = false, float error = 0) {
    const Mod mod = modOf(text);
    const HostOperands operands = draw(mod, problem);
    const ResultGradients given = drawGradients(problem, /*withLse=*/true);
    const Gradients expected = runReferenceBackward(mod, operands, given, scale);
    for (Family family : familiesFor(mod, problem)) {
      INFO(text << problem.text() << ", family " << int(family) << (deterministic ? ", deterministic" : ""));
      checkGradients(
          runBackward(mod, problem, operands, given,
                      {.family = family, .scale = scale, .deterministic = deterministic, .lowRankError = error}),
          expected, problem);
    }
  };
  checkBackward(dotMod(64, "bf16", "bf16"), {{2, 4, 4, 129, 257}, 128, 128});
  checkBackward(dotMod(64, "bf16", "bf16", "0"), {{1, 3, 1, 300, 200}, 64, 64});
  checkBackward(dotMod(16, "f32", "f32"), {{2, 4, 2, 193, 191}, 128, 128});
  checkBackward(dotMod(16, "bf16", "f32"), {{2, 4, 2, 65, 400}, 72, 40, DType::BF16, true});
  checkBackward(dotMod(16, "bf16", "bf16"), {{2, 4, 2, 129, 257}, 64, 64, DType::BF16, false, true, 8});
  checkBackward(dotMod(16, "f32", "f32", "h", "torch.tanh(s / 3.0) * 3.0"), {{1, 2, 2, 256, 129}, 64, 64});
  checkBackward(dotMod(16, "bf16", "bf16", "h", "s + 0.125 * (kv_idx - q_idx)"), {{1, 2, 2, 256, 129}, 64, 64});
  for (float scale : {0.f, -0.25f, 0x1p-80f})
    checkBackward(dotMod(16, "bf16", "bf16"), {{1, 2, 2, 130, 130}, 64, 64}, scale);
  for (const ProblemShape& shape : {ProblemShape{1, 2, 2, 0, 5}, {1, 2, 2, 5, 0}, {1, 2, 2, 1, 1}})
    checkBackward(dotMod(16, "bf16", "bf16"), {shape, 64, 64});
  checkBackward(dotMod(16, "bf16", "bf16"), {{1, 2, 2, 130, 130}, 64, 64}, {}, /*deterministic=*/true);
  checkBackward(dotMod(42, "f32", "f32"), {{1, 4, 2, 130, 190}, 128, 128}, {}, false, 1e-4f);
  checkBackward(dotMod(16, "f32", "f32", "0"), {{2, 4, 2, 129, 257}, 64, 64}, {}, false, 0.005f);
}
