// Lists of blocks that a caller made: they say what his mask_mod is, and nothing of the masks of a score_mod.
#include "settled.h"

#include "api/mod_impl.h"
#include "helpers/plans.h"
#include "ir/outputs.h"

#include <limits>
#include <random>
#include <string>
#include <vector>

using namespace attnc;
using namespace attnc::test;

namespace {

/// Masks in a score_mod, over the lengths of Attention. The last two have a NaN and an infinity where they mask.
const char* const kMasking[] = {
    "def score_mod(s, b, h, q, k):\n    return where(q >= k, s, -inf)\n",
    "def score_mod(s, b, h, q, k):\n    return s * 0.5 + where(q - k < 90, 0, -inf) - 0.01 * (q - k)\n"
    "def mask_mod(b, h, q, k):\n    return k % 7 != 3\n",
    "def score_mod(s, b, h, q, k):\n    return where(((q >= k) | (k < 9)) & (s > -1), s, -inf)\n",
    "bias: f32[Q_LEN, KV_LEN]\n"
    "def score_mod(s, b, h, q, k):\n    return s + bias[q, k] + where(bias[q, k] < 1, 0, -inf)\n",
    "bias: f32[Q_LEN, KV_LEN]\n"
    "def score_mod(s, b, h, q, k):\n    return minimum(s - bias[q, k], where(bias[q, k] < 1, inf, -inf))\n",
};

/// Operands and results in host memory: two heads of 256 queries and 256 keys.
struct Attention {
  static constexpr int64_t kHeads = 2, kLength = 256, kDim = 8;
  std::vector<float> q = draw(1), k = draw(2), v = draw(3), dOut = draw(4), bias;
  std::vector<float> out = q, lse = std::vector<float>(kHeads * kLength), dQ = q, dK = q, dV = q;
  Captures captures;
  BackwardOperands operands;

  explicit Attention(const BlockMaskView* lists = nullptr) {
    bias.resize(kLength * kLength);
    for (size_t i = 0; i < bias.size(); ++i) bias[i] = float(i % 17) / 16;
    for (size_t i = 0; i < bias.size(); i += 5)
      bias[i] = i % 2 ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
    captures.set("bias", TensorView::contiguous(bias.data(), DType::F32, {kLength, kLength}));
    operands.q = view(q), operands.k = view(k), operands.v = view(v), operands.dOut = view(dOut);
    operands.blockMask = lists;
  }

  void compute(const Mod& m) {
    if (!m.captures().empty()) operands.captures = &captures;
    auto status = computeOnCpu(
        m, operands, {.out = view(out), .lse = TensorView::contiguous(lse.data(), DType::F32, {1, kHeads, kLength})});
    if (!status) FAIL(status.error().message);
    status = computeBackwardOnCpu(m, operands, {.dQ = view(dQ), .dK = view(dK), .dV = view(dV)});
    if (!status) FAIL(status.error().message);
  }

private:
  static std::vector<float> draw(uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(kHeads * kLength * kDim);
    for (float& value : values) value = normal(random);
    return values;
  }
  static TensorView view(std::vector<float>& data) {
    return TensorView::contiguous(data.data(), DType::F32, {1, kHeads, kLength, kDim});
  }
};

/// Returns lists of mask_mod without score_mod, as FlexAttention's create_block_mask makes them.
BlockMask listsOfMask(const char* text, int block) {
  const std::string whole = text;
  const size_t at = whole.find("def mask_mod");
  const Mod mask = at == std::string::npos ? Mod::identity() : mod(whole.substr(at).c_str());
  const BlockMaskShape shape{.qLen = Attention::kLength, .kvLen = Attention::kLength, .qBlock = block, .kvBlock = 64};
  auto made =
      take(BlockMask::build(mask, {}, {1, Attention::kHeads, Attention::kHeads, shape.qLen, shape.kvLen}, shape));
  return take(BlockMask::fromLists(made.view()));
}

} // namespace

TEST_CASE("masks of a score_mod hold in full blocks of a caller's lists", "[api]") {
  for (const char* text : kMasking) {
    INFO(text);
    const Mod m = mod(text);
    CHECK(m.module().liftsMasks);
    Attention plain;
    plain.compute(m);
    for (int block : {64, 128}) {
      const BlockMask lists = listsOfMask(text, block);
      const BlockMaskView view = lists.view();
      CHECK_FALSE(view.ofWholeMod);
      Attention listed(&view);
      listed.compute(m);
      CHECK(listed.out == plain.out);
      CHECK(listed.lse == plain.lse);
      CHECK(listed.dQ == plain.dQ);
      CHECK(listed.dK == plain.dK);
      CHECK(listed.dV == plain.dV);
    }
  }
}

TEST_CASE("lists that attnc builds are of the whole mod", "[api]") {
  const ProblemShape problem{1, 2, 2, 256, 256};
  const BlockMaskShape shape{.qLen = 256, .kvLen = 256};
  const auto built = take(BlockMask::build(mod(kMasking[0]), {}, problem, shape));
  CHECK(built.view().ofWholeMod);
  CHECK(built.liveBlocks() == 3); // what score_mod masks counts
  CHECK(built.withColumns().view().ofWholeMod);
  CHECK(BlockMask::fromLists(built.view())->view().ofWholeMod);
  CHECK_FALSE(BlockMask::build(mod("q_idx >= kv_idx"), {}, problem, shape)->view().ofWholeMod);
}

TEST_CASE("kernels of a caller's lists keep the masks of a score_mod in the score", "[api]") {
  const Mod masking = mod(kMasking[0]), plain = mod("q_idx >= kv_idx");
  for (KernelKind kind : {KernelKind::Forward, KernelKind::Backward})
    for (const char* arch : {"sm_80", "sm_90a"}) {
      KernelOptions options{.kind = kind, .arch = arch, .blockSparse = true};
      const auto has = [&](const Mod& m, const ir::OutputRole& role) {
        auto derived = take(derive(m, options));
        return derived.module().output(role).has_value();
      };
      const auto text = [&](const Mod& m) {
        auto source = take(test::sourcesOf(Compiler(), m, options));
        return source.front().flattened();
      };
      CHECK_FALSE(has(masking, ir::kMask));
      const std::string foreign = text(masking), foreignPlain = text(plain);
      options.listsOfWholeMod = true;
      CHECK(has(masking, ir::kMask));
      CHECK(text(masking) != foreign);
      CHECK(text(plain) == foreignPlain); // without masks in the score, there is one kernel
      options.blockSparse = false;
      CHECK(has(masking, ir::kMask));
    }
}

TEST_CASE("preparing asks a block mask whose lists it has", "[api]") {
  const Mod m = mod("ids: i32[KV_LEN]\ndef score_mod(s, b, h, q, k):\n    return where(ids[q] == ids[k], s, -inf)\n");
  Case c;
  const Preparation own = settled(m, c);
  REQUIRE(own.blockMask);
  CHECK(own.kernel.options().listsOfWholeMod);
  CHECK(trained(m, c).backward->options().listsOfWholeMod);
  BlockMaskView lists{.shape = {.qLen = 1000, .kvLen = 3000}};
  c.operands.blockMask = &lists;
  CHECK_FALSE(settled(m, c).kernel.options().listsOfWholeMod);
  CHECK_FALSE(trained(m, c).backward->options().listsOfWholeMod);
  lists.ofWholeMod = true;
  CHECK(settled(m, c).kernel.options().listsOfWholeMod);
}
