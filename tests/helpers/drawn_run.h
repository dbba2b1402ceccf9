// Random runs of `attnc run`: a mod, a problem, and how its operands lie. For GPUs, and for what plans say of them.
//
//   attnc::test::DrawnRun drawn(seed);   // the same seed gives the same run everywhere
//   auto operands = cli::findOperands(drawn.mod(), drawn.options);
//
// Six seeds in a row are of six kinds. Some runs are refused, since no family combines what they need.
#pragma once

#include "tools/attnc/operands.h"
#include "tools/attnc/run_options.h"
#include "tools/attnc/shapes.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <random>
#include <string>
#include <vector>

namespace attnc::test {

class DrawnRun {
public:
  enum class Kind { Forward, ForwardFp8, Decode, DecodeFp8, Latent, Backward };
  static constexpr int kKinds = 6;

  const Kind kind;
  cli::RunOptions options;
  std::string modText;
  bool isLowRank = false; ///< whether the score has a low-rank term

  explicit DrawnRun(uint64_t seed) : kind(Kind(seed % kKinds)), random(seed) {
    options.seed = seed;
    options.verify = true;
    options.device = "cuda";
    options.noBlockMask = below(2);
    isInColumns = (kind == Kind::Forward || kind == Kind::Backward) && below(3) == 0;
    isLowRank = isInColumns || below(5) == 0;
    drawProblem();
    drawSequences();
    drawDTypes();
    drawMod();
  }

  Mod mod() const {
    auto parsed = Mod::parse(modText);
    if (!parsed) FAIL(parsed.error().message << "\n" << modText);
    return *std::move(parsed);
  }

  /// Returns what the planner says of the run.
  Expected<Preparation> settledFor(const std::string& arch, const Mod& mod, const cli::HostOperands& operands) const {
    PrepareOptions prepare = cli::prepareOptions(options);
    prepare.arch = arch;
    const cli::Shapes shapes = cli::shapesOf(operands, options);
    return options.backward ? Compiler().settleTraining(mod, shapes.operands, shapes.outputs, shapes.gradients, prepare)
                            : Compiler().settle(mod, shapes.operands, shapes.outputs, prepare);
  }

  std::string text() const {
    const ProblemShape& s = options.random->shape;
    const cli::SequenceOptions& sequences = options.sequences;
    return fmt::format(
        "seed {}: B{} H{} HKV{} Q{} KV{} D{} v in k {} {}{}, scales of {}, out {}; {}{}{}{} pages of {}, "
        "offsets {}\n{}",
        options.seed, s.batch, s.qHeads, s.kvHeads, s.qLen, s.kvLen, options.random->headDim, options.vInK,
        options.dtype, options.fp8.kv ? " with k and v of e4m3" : "", options.fp8.scales, options.fp8.outDType,
        options.backward ? "backward" : options.kernelKind.kind, options.noBlockMask ? ", no lists" : "",
        sequences.ragged ? ", ragged" : "", sequences.kvLengths ? ", lengths" : "", sequences.pageSize,
        sequences.qOffset, modText);
  }

private:
  bool isInColumns;       // whether families may compute the low-rank term as columns of q and k
  std::mt19937_64 random; // the same everywhere, unlike the standard distributions

  uint64_t below(uint64_t bound) { return random() % bound; }
  template <class T> T pick(std::initializer_list<T> from) { return from.begin()[below(from.size())]; }
  bool isDecode() const { return kind == Kind::Decode || kind == Kind::DecodeFp8 || kind == Kind::Latent; }

  void drawProblem() {
    ProblemShape shape;
    shape.batch = int64_t(1 + below(3));
    shape.kvHeads = kind == Kind::Latent ? 1 : int64_t(1 + below(2));
    shape.qHeads = shape.kvHeads * (kind == Kind::Latent ? 16 : pick<int64_t>({1, 2, 3, 4}));
    shape.qLen = isDecode() ? int64_t(1 + below(8)) : int64_t(1 + below(260));
    shape.kvLen = isDecode() ? int64_t(shape.qLen + below(1500)) : int64_t(shape.qLen + below(300));
    const bool isSquare = !isDecode() && below(2);
    if (isSquare) shape.kvLen = shape.qLen;
    int64_t headDim = isInColumns ? pick<int64_t>({64, 96, 128}) : pick<int64_t>({64, 96, 128, 192, 256});
    if (kind == Kind::Latent) {
      headDim = pick<int64_t>({576, 512});
      options.vInK = 512;
    } else if (headDim == 192 && kind != Kind::Backward && below(2)) {
      options.vInK = 128;
    }
    options.random = {shape, headDim};
    options.backward = kind == Kind::Backward;
    if (options.backward) options.gradients.deterministic = below(3) == 0;
    options.kernelKind.kind = isDecode() ? "decode" : options.backward ? "auto" : "forward";
  }

  void drawSequences() {
    if (isInColumns) return;
    cli::SequenceOptions& sequences = options.sequences;
    sequences.ragged = below(3) == 0;
    if (options.backward) return;
    if (below(3) == 0) sequences.pageSize = pick({8, 16, 64, 128});
    sequences.kvLengths = !sequences.ragged && below(3) == 0;
    if (const int rows = sequences.pageSize) {
      int64_t& length = options.random->shape.kvLen;
      length = (length + rows - 1) / rows * rows;
    }
    if (sequences.lengths() && below(3) == 0) sequences.qOffset = pick({"none", "lengths", "tensor"});
  }

  void drawDTypes() {
    const bool isFp8 = kind == Kind::ForwardFp8;
    options.dtype = isFp8         ? "e4m3"
                    : isInColumns ? "bf16"
                    : isDecode()  ? pick({"bf16", "fp16"})
                                  : pick({"bf16", "bf16", "fp16", "fp32"});
    options.fp8.kv = kind == Kind::DecodeFp8;
    if (isFp8) options.fp8.outDType = pick({"", "fp16"});
    if (!isFp8 && !options.fp8.kv) return;
    const char* const ofPages = options.sequences.pageSize ? "pages" : "rows";
    options.fp8.scales = isFp8 ? pick({"heads", "blocks", "rows", ofPages}) : pick({"heads", "rows", ofPages});
  }

  void drawMod() {
    std::string declarations = "import torch\n", body;
    const auto add = [&](const std::string& line) { body += "    score = " + line + "\n"; };
    if (isLowRank) {
      const char* const dtypes[] = {"bf16", "bf16", "f32", "f16"};
      const std::string head = pick({"h", "h", "0"});
      declarations += fmt::format("u: {1}[B, H, Q_LEN, {0}]\nw: {2}[B, H, KV_LEN, {0}]\n", pick({8, 16, 20, 64}),
                                  dtypes[below(4)], dtypes[below(4)]);
      add(fmt::format("score {} {} * (u[b, h, q_idx] @ w[b, {}, kv_idx])", pick({"+", "-"}),
                      pick({"0.5", "0.3", "1.0"}), head));
    }
    switch (below(5)) {
    case 0:
      declarations += "slopes: f32[H]\n";
      add("score + 0.125 * slopes[h] * (kv_idx - q_idx)");
      break;
    case 1: add("20.0 * torch.tanh(score / 20.0)"); break;
    case 2:
      declarations += "bias: f32[H, KV_LEN]\n";
      add("score + bias[h, kv_idx]");
      break;
    default: break;
    }
    const char* const mask =
        pick({"", "", "q_idx >= kv_idx", "q_idx >= kv_idx", "(q_idx >= kv_idx) & (q_idx - kv_idx < 70)",
              "q_idx // 48 == kv_idx // 48", "(q_idx + 2 * kv_idx) % 5 != 1"});
    modText = declarations;
    if (!body.empty() || !*mask)
      modText += "def score_mod(score, b, h, q_idx, kv_idx):\n" + body + "    return score\n";
    if (*mask) modText += fmt::format("def mask_mod(b, h, q_idx, kv_idx):\n    return {}\n", mask);
  }
};

} // namespace attnc::test
