// Gradients of padded batches: every family against the fp64 reference. Rows of k and v behind a length are NaN.
#include "gpu.h"

#include "helpers/turns.h"

#include "support/element.h"
#include "tools/attnc/commands/gpu.h"
#include "tools/attnc/commands/verify.h"
#include "tools/attnc/problem/operands.h"
#include "tools/attnc/problem/oracle.h"

#include <limits>

using namespace attnc;
using namespace attnc::gputest;

namespace {

/// Around the edges of tiles and blocks: none, one, all.
const std::vector<int32_t> kLengths = {0, 1, 64, 129, 256, 300};

const std::string kLearned = "slopes: f32[H]\n"
                             "def score_mod(score, b, h, q_idx, kv_idx):\n"
                             "  return score + 0.1 * slopes[h] * (kv_idx - q_idx)\n"
                             "def mask_mod(b, h, q_idx, kv_idx):\n  return q_idx >= kv_idx\n"
                             "def sink_mod(b, h, q_idx):\n  return slopes[h]\n";

struct Case {
  const char* family;
  const char* dtype;
  int64_t headDim;
  int headDimV;
};

void check(const Case& c, const std::string& text, const std::string& qOffset, bool deterministic, bool noBlockMask) {
  const Mod mod = take(Mod::parse(text));
  cli::ProblemOptions options;
  options.random = cli::RandomProblem{{int64_t(kLengths.size()), 4, 2, 190, 300}, c.headDim};
  options.target.dtype = c.dtype;
  options.kernel.family = c.family;
  options.sequences.kvLengths = true;
  options.sequences.qOffset = qOffset;
  options.gradients.deterministic = deterministic;
  options.noBlockMask = noBlockMask;
  options.backward = options.verify = true;
  cli::HostOperands operands = take(cli::findOperands(mod, options));
  for (cli::HostTensor* tensor : {&operands.v, &operands.dOut}) *tensor = firstColumns(*tensor, c.headDimV);
  std::copy(kLengths.begin(), kLengths.end(), reinterpret_cast<int32_t*>(operands.kvLengths->bytes.data()));
  const auto want = take(cli::runReference(mod, operands, options));
  for (cli::HostTensor* tensor : {&operands.k, &operands.v}) {
    const int64_t rows = tensor->shape[2], columns = tensor->shape[3];
    for (int64_t head = 0; head < tensor->shape[0] * tensor->shape[1]; ++head)
      for (int64_t i = kLengths[size_t(head / tensor->shape[1])] * columns; i < rows * columns; ++i)
        writeElement(tensor->bytes.data(), tensor->dtype, head * rows * columns + i,
                     std::numeric_limits<double>::quiet_NaN());
  }
  auto result = cli::runOnGpu(gpu()->context, mod, operands, options);
  if (!result && deterministic && result.error().message.find("in any order") != std::string::npos) return;
  const auto verification = take(cli::verify(mod, operands, options, take(std::move(result)), want));
  INFO(c.family << " " << c.dtype << " d" << c.headDim << "/" << c.headDimV << ", offsets " << qOffset
                << ", deterministic " << deterministic << ", no lists " << noBlockMask << "\n"
                << text << "\n"
                << verification.text());
  CHECK(verification.holds());
}

} // namespace

GPU_TEST_CASE("gradients of padded batches end at their KV lengths", "[gpu][backward]") {
  std::vector<Case> cases = {{"naive", "bf16", 64, 64},  {"naive", "fp32", 64, 64}, {"sm80", "bf16", 64, 64},
                             {"sm80", "fp16", 128, 128}, {"sm80", "fp32", 64, 64},  {"sm80", "bf16", 256, 256}};
  if (gpu()->context.info().arch == "sm_90a")
    for (auto [headDim, headDimV] : {std::pair(64, 64), {128, 128}, {192, 128}, {256, 256}})
      cases.push_back({"sm90", "bf16", headDim, headDimV});
  for (const Case& c : cases)
    for (const std::string& text :
         {std::string("q_idx >= kv_idx"), std::string("(q_idx // 128 + kv_idx // 128) % 2 == 0"), kLearned})
      for (const char* qOffset : {"", "none"})
        for (bool deterministic : {false, true})
          if (test::isCaseDue()) check(c, text, qOffset, deterministic, /*noBlockMask=*/deterministic);
}
