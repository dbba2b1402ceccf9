// The kernel that builds block masks, run on the host: its generated text on a stand-in for the GPU (host_gpu.h), next
// to the lists that the CPU builds.
#include "api/drawn_captures.h"
#include "api/mod_impl.h"
#include "helpers/plan_parts.h"
#include "ir/bind.h"
#include "ir/interpreter.h"
#include "kernels/findings.h"
#include "kernels/host_stage.h"
#include "launch/launch_operands.h"
#include "launch/mask_shape.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <llvm/ADT/ArrayRef.h>

#include <limits>

using namespace attnc;
using namespace attnc::test;

namespace {

/// A builder compiled for the host, of few warps, so that a row takes several rounds.
class Builder {
public:
  /// `groupBytes`: shared memory for ranges of groups of columns.
  Builder(const Mod& mod, int warps, int groupBytes, KernelOptions options = {})
      : mod(mod), threads(32 * warps), options(std::move(options)) {
    this->options.kind = KernelKind::BlockMask;
    this->options.arch = "sm_90a";
    auto sources = take(test::sourcesOf(compiler(), mod, this->options));
    KernelSource& source = sources.front();
    const auto replace = [](std::string& text, const std::string& from, const std::string& to) {
      const size_t at = text.find(from);
      REQUIRE(at != std::string::npos);
      text.replace(at, from.size(), to);
    };
    for (auto& [name, text] : source.headers)
      if (name == "attnc_config.cuh") replace(text, "kWarps = 16;", fmt::format("kWarps = {};", warps));
    replace(source.text, "24 * 1024", std::to_string(groupBytes));
    stage.emplace(source, "BlockMaskParams");
  }

  void check(const Captures& captures, const ProblemShape& problem, const BlockMaskShape& shape, unsigned ctas,
             unsigned seed) const {
    INFO(fmt::format("{} x {} in {} x {}, {} CTAs, seed {}", shape.qLen, shape.kvLen, shape.qBlock, shape.kvBlock, ctas,
                     seed));
    auto expected = take(BlockMask::build(mod, captures, problem, shape));
    std::vector<char> memory(BlockMask::storageBytes(shape), char(0x7f));
    const BlockMaskView lists = BlockMask::viewInto(memory.data(), shape), want = expected.view();
    run(captures, problem, lists, ctas, seed, nullptr);
    for (int64_t row = 0; row < shape.batch * shape.heads * shape.qBlocks(); ++row) {
      INFO("row " << row);
      REQUIRE(listed(lists, row, false) == listed(want, row, false));
      REQUIRE(listed(lists, row, true) == listed(want, row, true));
    }
  }

  /// Returns the partial or the full blocks of a row of blocks.
  static std::vector<int32_t> listed(const BlockMaskView& lists, int64_t row, bool full) {
    const int32_t count = (full ? lists.fullCount : lists.partialCount)[row];
    REQUIRE((count >= 0 && count <= lists.shape.kvBlocks()));
    const int32_t* index = (full ? lists.fullIndex : lists.partialIndex) + row * lists.indexStride;
    return {index, index + count};
  }

  /// Fills the lists.
  void run(const Captures& captures, const ProblemShape& problem, const BlockMaskView& lists, unsigned ctas,
           unsigned seed, const plan::LaunchOperands* sequences) const {
    auto derived = take(derive(mod, options));
    auto plan = take(test::choosePlan(derived, options));
    const plan::Stage& builder = plan.stages.front();
    auto operands = take(plan::checkBlockMask(derived.module(), lists, problem, plan.options, sequences));
    auto params = take(builder.parameters(builder, operands, {}, {plan::WorkspaceLayout({}, operands), nullptr}));
    auto bindings = take(ir::bind(derived.module(), captures, problem, &operands));
    auto form = take(kernelModOf(derived, plan::formOf(builder)));
    uint64_t words[256] = {}, zero = 0;
    codegen::packArgs(form->source.slots, bindings, &zero, words);
    const int64_t rows = plan::ctasOf(builder, operands, {.multiprocessors = int(ctas)});
    const std::string error = stage->run(params.data(), words, unsigned(rows), unsigned(threads), seed);
    REQUIRE(error == "");
  }

private:
  const Mod& mod;
  const int threads;
  KernelOptions options;
  std::optional<HostStage> stage;
};

/// Holds a mod's lists against the CPU's for the first `count` of some sizes.
void check(const Mod& mod, int warps, int groupBytes, uint32_t seed, size_t count = 7) {
  const Builder builder(mod, warps, groupBytes);
  const std::tuple<int64_t, int64_t, int, int> sizes[] = {{1, 70, 64, 64},      {130, 517, 64, 64}, {300, 300, 128, 64},
                                                          {513, 257, 256, 128}, {0, 70, 64, 64},    {70, 0, 64, 64},
                                                          {65, 5000, 64, 64}};
  for (auto [qLen, kvLen, qBlock, kvBlock] : llvm::ArrayRef(sizes).take_front(count)) {
    const ProblemShape problem{.batch = 2, .qHeads = 2, .kvHeads = 1, .qLen = qLen, .kvLen = kvLen};
    DrawnCaptures drawn(mod, problem, 40, seed);
    const BlockMaskShape shape = plan::smallestMask(mod.module(), problem, qBlock, kvBlock);
    builder.check(drawn.captures, problem, shape, 1 + unsigned(qLen % 3), seed);
  }
}

/// Sequences of a batch, each with rows of q and of k, and the position of its first query.
struct Lengths {
  std::vector<int32_t> q, kv, first;
};

/// Holds lists of queries with offsets against the definition, block by block.
void checkSequences(const Mod& mod, KernelOptions options, const Lengths& of, int qBlock, int kvBlock, uint32_t seed) {
  const auto batch = int64_t(of.q.size());
  const bool isRagged = options.features.has(Feature::Ragged);
  const auto most = [](const std::vector<int32_t>& all) { return int64_t(*std::max_element(all.begin(), all.end())); };
  ProblemShape problem{.batch = batch, .qHeads = 2, .kvHeads = 1, .qLen = most(of.q), .kvLen = most(of.kv) + 70};
  const auto starts = [](const std::vector<int32_t>& lengths) {
    std::vector<int32_t> all{3}; // rows before the first sequence
    for (int32_t length : lengths) all.push_back(all.back() + length);
    return all;
  };
  std::vector<int32_t> kv = of.kv, first = of.first, qStarts = starts(of.q), kvStarts = starts(of.kv);
  const auto view = [](std::vector<int32_t>& of) {
    return TensorView::contiguous(of.data(), DType::I32, {int64_t(of.size())});
  };
  plan::LaunchOperands sequences;
  if (options.features.has(Feature::Lengths)) sequences.kvLengths = view(kv);
  if (options.offsets == QueryOffsets::Tensor) sequences.qOffsets = view(first);
  if (isRagged) sequences.cuSeqlensQ = view(qStarts);
  if (isRagged && !options.pageSize) sequences.cuSeqlensKv = view(kvStarts);
  DrawnCaptures drawn(mod, problem, 40, seed);
  BlockMaskShape shape = plan::smallestMask(mod.module(), problem, qBlock, kvBlock);
  shape.batch = batch;
  std::vector<char> memory(BlockMask::storageBytes(shape), char(0x7f));
  const BlockMaskView lists = BlockMask::viewInto(memory.data(), shape);
  Builder(mod, 2, 100, std::move(options)).run(drawn.captures, problem, lists, 3, seed, &sequences);
  auto bindings = take(ir::bind(mod.module(), drawn.captures, problem));
  const ir::Evaluator mask(mod.module(), bindings, *mod.module().output(ir::kMask));
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < shape.heads; ++h)
      for (int64_t block = 0; block < shape.qBlocks(); ++block) {
        std::vector<int32_t> partial, full;
        const int64_t begin = block * qBlock, end = std::min<int64_t>(of.q[b], begin + qBlock);
        for (int32_t column = 0; column < shape.kvBlocks(); ++column) {
          int64_t live = 0;
          for (int64_t i = begin; i < end; ++i)
            for (int64_t j = int64_t(column) * kvBlock; j < std::min<int64_t>(of.kv[b], (column + 1) * kvBlock); ++j)
              live += mask.evaluate(0, b, h, of.first[b] + i, j).integer != 0;
          if (live) (live == qBlock * kvBlock ? full : partial).push_back(column);
        }
        INFO(fmt::format("sequence {}, head {}, block {}", b, h, block));
        const int64_t row = (b * shape.heads + h) * shape.qBlocks() + block;
        REQUIRE(Builder::listed(lists, row, false) == partial);
        REQUIRE(Builder::listed(lists, row, true) == full);
      }
}

Mod parse(std::string_view text) { return take(Mod::parse(text)); }

} // namespace

TEST_CASE("the kernel's lists are the CPU's, whatever the mod knows of rows and columns", "[on-host]") {
  const char* texts[] = {
      "q_idx >= kv_idx",
      "abs(q_idx - kv_idx) <= 70",
      "(q_idx >= kv_idx) & (q_idx - kv_idx < 130) | (kv_idx < 3)",
      "(q_idx + kv_idx) % 97 != 0",
      "q_idx < 70",
      "kv_idx != 66",
      "h == 1",
      "doc: i32[B, KV_LEN]\ndef mask_mod(b, h, q, kv): return (doc[b, q] == doc[b, kv]) & (q >= kv)\n",
      "doc: i64[KV_LEN]\ndef mask_mod(b, h, q, kv): return doc[q] != doc[kv]\n",
      "end: i32[KV_LEN]\ndef mask_mod(b, h, q, kv): return (kv <= q) & (q < end[kv] * 9)\n",
      "at: f32[Q_LEN]\ndef mask_mod(b, h, q, kv): return at[q] * 100 < kv\n",
      "live: bool[KV_LEN]\ndef mask_mod(b, h, q, kv): return live[kv] & (kv < 400) | (q == kv)\n",
      "on: bool[H, 12, 12]\ndef mask_mod(b, h, q, kv): return on[h, q // 64, kv // 64]\n",
      "a: i32[KV_LEN]\ndef mask_mod(b, h, q, kv): return torch.where(kv > 100, a[q] <= a[kv], minimum(q, kv) > 2)\n",
      "a: i64[KV_LEN]\ndef mask_mod(b, h, q, kv): return a[q] - a[kv] + (1 << 62) > (1 << 62) - 3\n",
      "t: i32[KV_LEN, 3]\ndef mask_mod(b, h, q, kv): return (t[q] * t[kv]).sum() > 40\n"};
  uint32_t seed = 1;
  for (const char* text : texts) {
    INFO(text);
    const Mod mod = parse(text);
    check(mod, 2, 100, seed);
    check(mod, 3, 24 * 1024, ++seed);
  }
}

TEST_CASE("the kernel's lists are the CPU's for data without order, and for NaN", "[on-host]") {
  constexpr int64_t kLength = 1500;
  const ProblemShape problem{.qLen = kLength, .kvLen = kLength};
  std::mt19937 random(7);
  std::vector<int32_t> integers(kLength), wild(kLength);
  std::vector<float> reals(kLength);
  for (size_t i = 0; i < kLength; ++i) {
    integers[i] = int32_t(random() % 5);
    wild[i] = random() % 9 ? int32_t(i / 200) : random() % 2 ? INT32_MAX : INT32_MIN;
    reals[i] = i % 500 == 3 ? std::numeric_limits<float>::quiet_NaN() : i % 7 ? -1e9f : float(i);
  }
  const std::tuple<const char*, const char*, TensorView> all[] = {
      {"x", "i32", TensorView::contiguous(integers.data(), DType::I32, {kLength})},
      {"wild", "i32", TensorView::contiguous(wild.data(), DType::I32, {kLength})},
      {"y", "f32", TensorView::contiguous(reals.data(), DType::F32, {kLength})}};
  for (const char* rule : {"x[q] == x[kv]", "wild[q] == wild[kv]", "wild[q] - wild[kv] < 2", "y[q] <= y[kv]",
                           "y[q] != y[kv]", "(y[q] > -1e9) & (y[kv] < 900)", "abs(wild[q] - wild[kv]) < 1"}) {
    INFO(rule);
    std::string text = "def mask_mod(b, h, q, kv): return " + std::string(rule) + "\n";
    Captures captures;
    for (const auto& [name, type, data] : all) {
      if (text.find(std::string(name) + "[") == std::string::npos) continue;
      text = fmt::format("{}: {}[KV_LEN]\n", name, type) + text;
      captures.set(name, data);
    }
    const Mod mod = parse(text);
    Builder(mod, 2, 100)
        .check(captures, problem, {.qLen = kLength, .kvLen = kLength, .qBlock = 64, .kvBlock = 128}, 2, 3);
  }
}

TEST_CASE("lists of queries with offsets are of each sequence's own rows and keys", "[on-host]") {
  const char* texts[] = {
      "(q_idx >= kv_idx) & ((kv_idx < 3) | (q_idx - kv_idx < 130))", "(q_idx + kv_idx + b) % 97 != 0", "h == 1",
      "doc: i32[B, KV_LEN]\ndef mask_mod(b, h, q, kv): return (doc[b, q] == doc[b, kv]) & (q >= kv)\n",
      "on: bool[H, 20, 20]\ndef mask_mod(b, h, q, kv): return on[h, q // 64, kv // 64]\n"};
  const Features lengths{Feature::Lengths}, ragged{Feature::Ragged};
  constexpr QueryOffsets kAtEnd = QueryOffsets::FromLengths, kTold = QueryOffsets::Tensor;
  const Lengths differ{{200, 0, 1, 129, 64, 64}, {700, 90, 517, 129, 300, 40}, {500, 90, 516, 0, 236, -24}};
  const std::pair<int, int> blocks[] = {{64, 64}, {128, 128}, {64, 256}};
  uint32_t seed = 1;
  for (size_t i = 0; i < std::size(texts); ++i) {
    INFO(texts[i]);
    const Mod mod = parse(texts[i]);
    const auto [qBlock, kvBlock] = blocks[i % std::size(blocks)];
    checkSequences(mod, {.features = ragged, .offsets = kAtEnd}, differ, qBlock, kvBlock, ++seed);
    checkSequences(mod, {.features = ragged | lengths, .offsets = kAtEnd, .pageSize = 16}, differ, qBlock, kvBlock,
                   ++seed);
    checkSequences(mod, {.features = lengths, .offsets = kAtEnd}, {{130, 130, 130}, {700, 130, 390}, {570, 0, 260}},
                   qBlock, kvBlock, ++seed);
    checkSequences(mod, {.features = lengths, .offsets = kTold}, {{70, 70, 70}, {600, 0, 81}, {5, 400, 64}}, qBlock,
                   kvBlock, ++seed);
  }
}

TEST_CASE("the kernel's lists are the CPU's for mods of the library", "[on-host]") {
  int masks = 0;
  for (const std::string& path : libraryMods()) {
    auto mod = take(Mod::load(path));
    if (!mod.hasMaskMod() || ++masks % 2) continue; // the CPU takes a second for each
    INFO(path);
    check(mod, 2, 100, 5, 3);
  }
}
