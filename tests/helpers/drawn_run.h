// Random runs of `attnc run`: a mod, a problem, and how its operands lie. For GPUs, and for what plans say of them.
//
//   attnc::test::DrawnRun drawn(seed);   // the same seed gives the same run everywhere
//   auto operands = cli::findOperands(drawn.mod(), drawn.options);
//
// Six seeds in a row are of six kinds. Some runs are refused, since no family combines what they need. Of 2000 seeds in
// a row, those 480 apart have the same mod, dtypes and layouts, and so mostly the same kernel, with other lengths and
// numbers.
#pragma once

#include "helpers/take.h"
#include "tools/attnc/problem/operands.h"
#include "tools/attnc/problem/problem_options.h"
#include "tools/attnc/problem/shapes.h"

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
  cli::ProblemOptions options;
  std::string modText;
  bool isLowRank = false;  ///< whether the score has a low-rank term
  bool amplifies = false;  ///< whether the mod amplifies errors of the score
  bool hasOutputs = false; ///< whether the mod declares outputs
  bool walksTwice = false; ///< whether prob_mod is no multiple of the weight

  explicit DrawnRun(uint64_t seed) : DrawnRun(seed, seed / 2000 * 480 + seed % 2000 % 480) {}

  /// Returns a name of what the run is of, for counts.
  std::string kindName() const {
    static constexpr const char* kNames[] = {"forward", "forward fp8", "decode", "decode fp8", "latent", "backward"};
    return kNames[size_t(kind)];
  }
  /// Returns the features that the run has: dtype, scales, layouts, terms.
  std::vector<std::string> features() const {
    std::vector<std::string> all = {options.target.dtype};
    const auto add = [&](bool has, std::string what) {
      if (has) all.push_back(std::move(what));
    };
    add(!options.target.fp8.scales.empty(), "scales of " + options.target.fp8.scales);
    add(options.target.fp8.outDType == "fp16", "out of fp16");
    add(options.kernel.tf32, "tf32");
    add(options.target.vInK, fmt::format("{} / {}", options.random->headDim, options.target.vInK));
    add(isLowRank, "low rank");
    add(amplifies, "amplifying");
    add(walksTwice, "two walks");
    add(options.sequences.ragged, "ragged");
    add(options.sequences.pageSize, "pages");
    add(options.sequences.kvLengths, "lengths");
    add(options.noBlockMask, "no lists");
    add(options.gradients.deterministic, "deterministic");
    add(options.backward && hasCaptures, "gradients of captures");
    add(hasOutputs, options.backward ? "gradients of outputs" : "outputs");
    return all;
  }

private:
  DrawnRun(uint64_t seed, uint64_t ofKernel) : kind(Kind(ofKernel % kKinds)), random(ofKernel), ofProblem(~seed) {
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

public:
  Mod mod() const { return take(Mod::parse(modText)); }

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
        options.seed, s.batch, s.qHeads, s.kvHeads, s.qLen, s.kvLen, options.random->headDim, options.target.vInK,
        options.target.dtype, options.target.fp8.kv ? " with k and v of e4m3" : "", options.target.fp8.scales,
        options.target.fp8.outDType, options.backward ? "backward" : options.kernelKind.kind,
        options.noBlockMask ? ", no lists" : "", sequences.ragged ? ", ragged" : "",
        sequences.kvLengths ? ", lengths" : "", sequences.pageSize, sequences.qOffset, modText);
  }

private:
  bool isInColumns; // whether families may compute the low-rank term as columns of q and k
  bool hasCaptures = false;
  std::mt19937_64 random, ofProblem; // the same everywhere, unlike the standard distributions

  uint64_t below(uint64_t bound) { return random() % bound; }
  int64_t length(uint64_t bound) { return int64_t(1 + ofProblem() % bound); }
  template <class T> T pick(std::initializer_list<T> from) { return from.begin()[below(from.size())]; }
  bool isDecode() const { return kind == Kind::Decode || kind == Kind::DecodeFp8 || kind == Kind::Latent; }

  void drawProblem() {
    ProblemShape shape;
    shape.batch = length(3);
    shape.kvHeads = kind == Kind::Latent ? 1 : int64_t(1 + below(2));
    shape.qHeads = shape.kvHeads * (kind == Kind::Latent ? 16 : pick<int64_t>({1, 2, 3, 4}));
    shape.qLen = isDecode() ? int64_t(1 + below(8)) : length(260);
    shape.kvLen = shape.qLen - 1 + length(isDecode() ? 1500 : 300);
    const bool isSquare = !isDecode() && below(2);
    if (isSquare) shape.kvLen = shape.qLen;
    int64_t headDim = isInColumns ? pick<int64_t>({64, 96, 128}) : pick<int64_t>({64, 96, 128, 192, 256});
    if (kind == Kind::Latent) {
      headDim = pick<int64_t>({576, 512});
      options.target.vInK = 512;
    } else if (headDim == 192 && kind != Kind::Backward && below(2)) {
      options.target.vInK = 128;
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
    if (!options.backward && below(2)) sequences.pageSize = pick({8, 16, 64, 128});
    sequences.kvLengths = !sequences.ragged && below(3) == 0;
    if (const int rows = sequences.pageSize) {
      int64_t& length = options.random->shape.kvLen;
      length = (length + rows - 1) / rows * rows;
    }
    if (sequences.lengths() && below(3) == 0) sequences.qOffset = pick({"none", "lengths", "tensor"});
  }

  void drawDTypes() {
    const bool isFp8 = kind == Kind::ForwardFp8;
    options.target.dtype = isFp8         ? "e4m3"
                           : isInColumns ? "bf16"
                           : isDecode()  ? pick({"bf16", "fp16"})
                                         : pick({"bf16", "bf16", "fp16", "fp32"});
    options.kernel.tf32 = options.target.dtype == "fp32" && below(2);
    options.target.fp8.kv = kind == Kind::DecodeFp8;
    if (isFp8) options.target.fp8.outDType = pick({"", "fp16"});
    if (!isFp8 && !options.target.fp8.kv) return;
    const char* const ofPages = options.sequences.pageSize ? "pages" : "rows";
    options.target.fp8.scales =
        isFp8 ? pick({"heads", "blocks", "rows", ofPages, ofPages}) : pick({"heads", "rows", ofPages, ofPages});
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
    amplifies = below(3) == 0;
    if (amplifies) {
      drawAmplifier(declarations, add);
    } else {
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
    }
    hasCaptures = declarations.find(": ") != std::string::npos;
    const char* const mask =
        pick({"", "", "q_idx >= kv_idx", "q_idx >= kv_idx", "(q_idx >= kv_idx) & (q_idx - kv_idx < 70)",
              "q_idx // 48 == kv_idx // 48", "(q_idx + 2 * kv_idx) % 5 != 1"});
    modText = declarations;
    if (!body.empty() || !*mask)
      modText += "def score_mod(score, b, h, q_idx, kv_idx):\n" + body + "    return score\n";
    if (*mask) modText += fmt::format("def mask_mod(b, h, q_idx, kv_idx):\n    return {}\n", mask);
    hasOutputs = !isInColumns && (kind == Kind::Forward ? !amplifies : kind == Kind::Backward) && below(2);
    if (hasOutputs) drawOutputs();
    walksTwice = !isLowRank && kind != Kind::ForwardFp8 && below(4) == 0;
    if (!walksTwice) return;
    const std::string prob = pick({"prob * prob", "where(prob > 0.01, prob, 0.0)", "sqrt(prob)", "minimum(prob, 0.1)",
                                   "prob ** 1.5 * of_probs[h]"});
    modText += "def prob_mod(prob, b, h, q_idx, kv_idx):\n    return " + prob + "\n";
    if (prob.find("of_probs") == std::string::npos) return;
    modText = "of_probs: f32[H]\n" + modText;
    hasCaptures = true;
  }

  /// Adds one or two outputs: of weights, or also of scores.
  void drawOutputs() {
    const auto add = [&](const char* name, const char* axes, const char* kind, const std::string& value) {
      modText += fmt::format("def of_{0}(prob, score, b, h, q_idx, kv_idx):\n    return {3}\n"
                             "{0}: f32[B, H{1}] = reduce_{2}(of_{0})\n",
                             name, axes, kind, value);
    };
    switch (below(5)) {
    case 0: add("sums", ", KV_LEN", "sum", "prob"); break;
    case 1: add("entropy", ", Q_LEN", "sum", "where(prob > 0, -prob * log(prob), 0.0)"); break;
    case 2: add("mass", "", "sum", "prob * (q_idx >= kv_idx + 20)"); break;
    case 3: add("squares", ", Q_LEN", "sum", "prob * prob"); break;
    default: add("logits", "", "sum", "0.01 * score * score"); break;
    }
    if (below(2)) add("top", "", "max", "score");
    if (below(3) == 0) add("far", ", KV_LEN", "sum", "prob * tanh(0.1 * (q_idx - kv_idx))");
  }

  /// Adds a line that multiplies errors of the score, or has a step where its last place decides.
  template <class Add> void drawAmplifier(std::string& declarations, const Add& add) {
    switch (below(14)) {
    case 0: add("score * score"); break;
    case 1: add("8.0 * score"); break;
    case 2: add("torch.exp(0.75 * score)"); break;
    case 3: add("torch.floor(4.0 * score) / 4.0 + 0.5 * score"); break;
    case 4: add("torch.round(score * 2.0)"); break;
    case 5: add("torch.where(score > 0.25, score, 3.0 * score - 1.0)"); break;
    case 6: add("1.0 / (torch.abs(score) + 0.05)"); break;
    case 7: add("torch.sign(score) * torch.abs(score) ** 1.5"); break;
    case 8: add("(score + 3000.0) - 3000.0"); break;
    case 9: add("torch.sin(6.0 * score) * 2.0"); break;
    case 10: add("torch.tanh(4.0 * score) * 5.0 - torch.clamp(score, -1.0, 0.5)"); break;
    case 11:
      declarations += "temperature: f32[H]\n";
      add("score * (4.0 + temperature[h])");
      break;
    case 12:
      declarations += "gain: float\nbias: f32[H, KV_LEN]\n";
      add("gain * score * score + 12.0 * bias[h, kv_idx] * score");
      break;
    default:
      declarations += "centre: f32[KV_LEN]\n";
      add("-4.0 * (score - centre[kv_idx]) ** 2");
      break;
    }
  }
};

} // namespace attnc::test
