// Decode kernels of masks whose live columns are no interval: steps without a live column are never read, and the
// others are dealt by lists that each launch makes.
#include "gpu.h"

#include "support/element.h"

#include <limits>

using namespace attnc;
using namespace attnc::gputest;

namespace {

constexpr int64_t kStripe = 768; ///< of whole steps, whatever their size
constexpr int kPeriod = 5;

/// Of five stripes one lives, another one in each sequence and KV head of four query heads.
Mod stripedMod(bool isCausal) {
  return take(Mod::parse(std::string("def mask_mod(b, h, q_idx, kv_idx):\n"
                                     "    lives = (kv_idx // 768) % 5 == (b + h // 4) % 5\n") +
                         "    return lives" + (isCausal ? " & (q_idx >= kv_idx)\n" : "\n")));
}

/// NaN in the rows of K and V that no query sees.
void poisonStripes(HostOperands& operands) {
  for (cli::HostTensor* tensor : {&operands.k, &operands.v}) {
    const int64_t batch = tensor->shape[0], heads = tensor->shape[1], rows = tensor->shape[2],
                  columns = tensor->shape[3];
    for (int64_t i = 0; i < batch * heads * rows; ++i) {
      const int64_t b = i / rows / heads, h = i / rows % heads, row = i % rows;
      const bool isLive = row / kStripe % kPeriod == (b + h) % kPeriod;
      const bool isBehind = !operands.kvLengths.empty() && row >= operands.kvLengths[size_t(b)];
      for (int64_t column = 0; (!isLive || isBehind) && column < columns; ++column)
        writeElement(tensor->bytes.data(), tensor->dtype, i * columns + column,
                     std::numeric_limits<double>::quiet_NaN());
    }
  }
}

} // namespace

GPU_TEST_CASE("decode kernels read no step without a live column", "[gpu]") {
  for (bool isCausal : {false, true})
    for (int64_t qLen : {1, 3, 16, 40}) // tiles of 16 and 64 rows; several of them
      for (int headDim : {64, 128}) {
        const Mod mod = stripedMod(isCausal);
        Problem problem{{6, 8, 2, qLen, 7001}, headDim, headDim, DType::BF16};
        HostOperands operands = draw(mod, problem);
        operands.kvLengths = {7001, 0, 1, 768, 769, 5000};
        const Outcome expected = runReference(mod, problem, operands);
        poisonStripes(operands);
        INFO(problem.text() << (isCausal ? ", causal" : ""));
        const Outcome outcome = runKernel(mod, problem, operands, {.family = Family::Auto, .decode = true});
        checkClose(outcome, expected, problem);
        const Outcome again =
            runKernel(mod, problem, operands, {.family = Family::Auto, .decode = true, .launches = 3});
        CHECK(again.out == outcome.out);
        CHECK(again.lse == outcome.lse);
      }
}

GPU_TEST_CASE("decode kernels list the steps of one long sequence, and of wide heads", "[gpu]") {
  const Mod mod = stripedMod(true);
  for (const Problem& problem :
       {Problem{{1, 8, 2, 1, 1 << 20}, 64, 64, DType::F16},  // many words, which the last CTA joins
        Problem{{2, 8, 2, 2, 20000}, 256, 256, DType::BF16}, // short steps
        Problem{{700, 4, 1, 1, 1000}, 64, 64, DType::BF16}}) {
    HostOperands operands = draw(mod, problem);
    const std::optional<QueryOffsets> offsets = QueryOffsets::FromLengths;
    const Outcome expected = runReference(mod, problem, operands, {}, offsets);
    poisonStripes(operands);
    INFO(problem.text());
    checkClose(runKernel(mod, problem, operands, {.family = Family::Auto, .offsets = offsets, .decode = true}),
               expected, problem);
  }
}
