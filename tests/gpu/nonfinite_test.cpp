// Scores of +inf, -inf and NaN from the mod itself: what a row gives, in every family.
#include "gpu.h"

#include <cmath>
#include <limits>

using namespace attnc;
using namespace attnc::gputest;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

/// What replaces the score in one column of a row.
struct Special {
  int32_t column = -1; ///< none
  float score = 0;
  bool isMasked = false; ///< the element does not live
};

/// Mods whose rows have at most one special column each, by captures.
struct Variant {
  const char* score;
  const char* mask;        ///< empty: none
  int64_t reach = 1 << 24; ///< columns further behind the row than this are masked
  double scoreError = 0;   ///< see checkClose()
};
const Variant kVariants[] = {
    {"torch.where(kv_idx == column[q_idx], special[q_idx], score)", ""},
    {"torch.where(kv_idx == column[q_idx], special[q_idx], score)",
     "(kv_idx <= q_idx + 200) & ((kv_idx != column[q_idx]) | ~hidden[q_idx])", 200},
    {"score + torch.where(kv_idx == column[q_idx], special[q_idx], 0.0)", "(kv_idx != column[q_idx]) | ~hidden[q_idx]"},
    // A row's term apart: 0.125 times a distance below 640, and back again.
    {"score + 0.125 * (kv_idx - q_idx) + torch.where(kv_idx == column[q_idx], special[q_idx], 0.0)",
     "(kv_idx != column[q_idx]) | ~hidden[q_idx]", 1 << 24, 0.125 * 640 * 0x1p-22},
    // A factor apart.
    {"2.0 * torch.where(kv_idx == column[q_idx], special[q_idx], score)", "(kv_idx != column[q_idx]) | ~hidden[q_idx]"},
    {"5.0 * torch.tanh(score / 5.0) + torch.where(kv_idx == column[q_idx], special[q_idx], 0.0)",
     "(kv_idx != column[q_idx]) | ~hidden[q_idx]"},
};

Mod modOf(const Variant& variant) {
  std::string text = "import torch\ncolumn: i32[Q_LEN]\nspecial: f32[Q_LEN]\nhidden: bool[Q_LEN]\n"
                     "def score_mod(score, b, h, q_idx, kv_idx):\n  return ";
  text += variant.score;
  if (*variant.mask) text += std::string("\ndef mask_mod(b, h, q_idx, kv_idx):\n  return ") + variant.mask;
  return take(Mod::parse(text + "\n"));
}

/// Rows in turn: nothing, +inf, NaN, -inf, and the first two masked; columns in the first, a middle and the last tile,
/// at their edges, and the last column of all.
std::vector<Special> specialsOf(const ProblemShape& shape) {
  const int64_t last = shape.kvLen - 1;
  const int64_t columns[] = {0, 1, 15, 63, 64, last / 2, 127, 128, last - 1, last};
  const Special kinds[] = {{}, {0, kInfinity}, {0, kNan}, {0, -kInfinity}, {0, kInfinity, true}, {0, kNan, true}};
  std::vector<Special> specials;
  for (int64_t row = 0; row < shape.qLen; ++row) {
    Special special = kinds[row % 7 % std::size(kinds)];
    if (special.score != 0) special.column = int32_t(std::clamp<int64_t>(columns[row % std::size(columns)], 0, last));
    specials.push_back(special);
  }
  return specials;
}

cli::HostTensor tensorOf(DType dtype, const void* data, int64_t count) {
  cli::HostTensor tensor = cli::HostTensor::make(dtype, {count});
  std::copy_n(static_cast<const char*>(data), tensor.bytes.size(), tensor.bytes.data());
  return tensor;
}

HostOperands drawWith(const Mod& mod, const Problem& problem, const std::vector<Special>& specials) {
  HostOperands operands = draw(mod, problem);
  std::vector<int32_t> column;
  std::vector<float> score;
  std::vector<uint8_t> hidden;
  for (const Special& special : specials) {
    column.push_back(special.column);
    score.push_back(special.score);
    hidden.push_back(special.isMasked);
  }
  const int64_t rows = int64_t(specials.size());
  operands.tensors["column"] = tensorOf(DType::I32, column.data(), rows);
  operands.tensors["special"] = tensorOf(DType::F32, score.data(), rows);
  operands.tensors["hidden"] = tensorOf(DType::Bool, hidden.data(), rows);
  for (const char* name : {"column", "special", "hidden"}) operands.captures.set(name, operands.tensors[name].view());
  return operands;
}

/// Holds every family to the reference, and that to what the language says.
void checkVariant(const Variant& variant, const Problem& problem) {
  const Mod mod = modOf(variant);
  const std::vector<Special> specials = specialsOf(problem.shape);
  const HostOperands operands = drawWith(mod, problem, specials);
  const Outcome expected = runReference(mod, problem, operands);
  for (size_t i = 0; i < expected.lse.size(); ++i) {
    const size_t row = i % specials.size();
    const Special& special = specials[row];
    const bool isMasked = *variant.mask && (special.isMasked || special.column > int64_t(row) + variant.reach);
    const bool isBad = !isMasked && (std::isnan(special.score) || special.score == kInfinity);
    CHECK(std::isnan(expected.lse[i]) == isBad);
  }
  for (bool blockMask : {false, true}) {
    if (blockMask && !mod.hasMaskMod()) continue;
    for (bool rowMax : {true, false}) {
      RunOptions options{.blockMask = blockMask, .rowMax = rowMax};
      for (Family family : familiesFor(mod, problem, options)) {
        options.family = family;
        INFO(variant.score << ", " << problem.text() << ", family " << int(family) << (blockMask ? ", block mask" : "")
                           << (rowMax ? ", row max" : ""));
        checkClose(runKernel(mod, problem, operands, options), expected, problem, false, variant.scoreError);
      }
    }
  }
}

} // namespace

GPU_TEST_CASE("rows with a live score of +inf or NaN are NaN in every family, and masked ones do not matter", "[gpu]") {
  const ProblemShape shapes[] = {{1, 2, 1, 150, 300}, {1, 2, 2, 129, 257}, {2, 1, 1, 70, 33}, {1, 1, 1, 64, 640}};
  for (auto [dtype, headDim] : {std::pair{DType::BF16, 64}, {DType::BF16, 128}, {DType::F16, 128}, {DType::F32, 64}}) {
    std::vector<std::pair<Mod, KernelOptions>> jobs;
    for (const Variant& variant : kVariants)
      for (bool blockMask : {false, true})
        for (bool rowMax : {true, false}) {
          const Mod mod = modOf(variant);
          const Problem problem{shapes[0], headDim, headDim, dtype};
          RunOptions options{.blockMask = blockMask, .rowMax = rowMax};
          for (Family family : familiesFor(mod, problem, options)) {
            options.family = family;
            jobs.emplace_back(mod, kernelOptions(mod, problem, options));
          }
        }
    compileAhead(jobs);
    for (const Variant& variant : kVariants)
      for (const ProblemShape& shape : shapes) checkVariant(variant, {shape, headDim, headDim, dtype});
  }
}

GPU_TEST_CASE("a row of one column alone is NaN, or empty, by its score", "[gpu]") {
  const Variant alone{"torch.where(kv_idx == column[q_idx], special[q_idx], -torch.inf)", ""};
  for (DType dtype : {DType::BF16, DType::F32})
    for (int64_t kvLen : {int64_t(1), int64_t(130)}) checkVariant(alone, {{1, 2, 2, 140, kvLen}, 64, 64, dtype});
}

GPU_TEST_CASE("scores that a mod takes beyond the range of f32 are infinite", "[gpu]") {
  const Mod mod = take(Mod::parse("import torch\ndef score_mod(score, b, h, q_idx, kv_idx):\n"
                                  "  return torch.where(q_idx % 3 == 0, score, score * 1e30 * 1e30)\n"
                                  "def mask_mod(b, h, q_idx, kv_idx):\n  return q_idx >= kv_idx\n"));
  for (DType dtype : {DType::BF16, DType::F32}) {
    const Problem problem{{1, 2, 2, 130, 200}, 64, 64, dtype};
    const HostOperands operands = draw(mod, problem);
    const Outcome expected = runReference(mod, problem, operands);
    REQUIRE(std::isnan(expected.lse[100]));
    for (Family family : familiesFor(mod, problem)) {
      INFO(problem.text() << ", family " << int(family));
      checkClose(runKernel(mod, problem, operands, {.family = family}), expected, problem);
    }
  }
}
