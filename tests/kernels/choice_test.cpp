// Kernels of a mod for each sequence: run on the host, where they give what the kernel of each mod gives; and compiled.
#include "attnc/attnc.h"
#include "kernels/findings.h"
#include "kernels/host_launch.h"
#include "kernels/host_tensor.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <cmath>
#include <limits>

using namespace attnc;
using test::Tensor;

namespace {

const char* const kCausal = "q_idx >= kv_idx";
const char* const kAlibi = "slopes: f32[H]\n"
                           "def score_mod(s, b, h, q, k): return s + slopes[h] * (k - q)\n"
                           "def mask_mod(b, h, q, k): return q >= k\n";
const char* const kCapped = "def score_mod(s, b, h, q, k): return 2 * tanh(s / 2)\n"
                            "def mask_mod(b, h, q, k): return (q >= k) & (q - k < 70)\n";
const char* const kPrefix = "prefix: i32[B]\nmask_mod = lambda b, h, q, k: (q >= k) | (k < prefix[b])";
const char* const kDocument = "ids: i32[KV_LEN]\nmask_mod = lambda b, h, q, k: ids[q] == ids[k]";
const char* const kNoop = "score";

struct Case {
  std::vector<const char*> mods;
  std::vector<int32_t> which;
  KernelOptions options = {};
  int64_t qLen = 150, kvLen = 200;
  std::vector<int32_t> cuSeqlens = {}; ///< of a ragged batch
  std::vector<int32_t> lengths = {};   ///< of k and v
};

/// The operands of a case, and the results of kernels.
class Batch {
public:
  explicit Batch(const Case& of) : c(of), batch(int64_t(c.which.size())) {
    std::mt19937 random(5);
    const bool isRagged = !c.cuSeqlens.empty();
    for (int64_t rows : {c.qLen, c.kvLen, c.kvLen})
      tensors.emplace_back(
          c.options.dtype,
          std::vector<int64_t>{isRagged ? 1 : batch, kHeads, isRagged ? c.cuSeqlens.back() : rows, c.options.headDim},
          random);
    for (int64_t i = 0; i < c.kvLen; ++i) ids.push_back(int32_t(i / 64));
    for (int64_t b = 0; b < batch; ++b) prefix.push_back(int32_t(31 * b + 7));
  }

  struct Results {
    Tensor out, lse;
  };

  Results run(const Mod& mod, const KernelOptions& options, bool isReference = false) {
    std::mt19937 random(1);
    const auto& shape = tensors[0].view.shape;
    Results results{{DType::F32, {shape[0], kHeads, shape[2], shape[3]}, random},
                    {DType::F32, {shape[0], kHeads, shape[2]}, random}};
    if (!isReference) results.out = Tensor(options.dtype, {shape[0], kHeads, shape[2], shape[3]}, random);
    Captures captures;
    for (const CaptureInfo& capture : mod.captures()) {
      if (capture.name == "slopes") captures.set("slopes", TensorView::contiguous(slopes, DType::F32, {kHeads}));
      if (capture.name == "ids") captures.set("ids", TensorView::contiguous(ids.data(), DType::I32, {c.kvLen}));
      for (auto [name, data] : {std::pair("which", &c.which), {"prefix", &prefix}})
        if (capture.name == name) captures.set(name, TensorView::contiguous(data->data(), DType::I32, {batch}));
    }
    Operands operands{.q = tensors[0].view, .k = tensors[1].view, .v = tensors[2].view, .captures = &captures};
    if (!c.cuSeqlens.empty()) operands.cuSeqlensQ = TensorView::contiguous(c.cuSeqlens.data(), DType::I32, {batch + 1});
    if (!c.lengths.empty()) operands.kvLengths = TensorView::contiguous(c.lengths.data(), DType::I32, {batch});
    const Outputs outputs{.out = results.out.view, .lse = results.lse.view};
    if (isReference) {
      take(computeOnCpu(mod, operands, outputs));
      return results;
    }
    test::launchOnHost(mod, options, operands, outputs, {.multiprocessors = 2}, [&](const plan::Stage& stage) {
      const bool isSm90 = options.family == Family::Sm90;
      return stage.templateName == "decode_lists.cu" ? "DecodeListsParams"
             : options.kind == KernelKind::Decode    ? isSm90 ? "decode::CopiesOfEngine::Params" : "DecodeParams"
             : options.family == Family::Naive       ? "naive::Params"
             : isSm90                                ? "sm90::Params"
                                                     : "sm80::Params";
    });
    return results;
  }

  /// Calls check(tensor index) for each element of out, then of lse, of a sequence.
  template <class Check> void forEach(int64_t b, Check check) const {
    const bool isRagged = !c.cuSeqlens.empty();
    const int64_t begin = isRagged ? c.cuSeqlens[size_t(b)] : 0, end = isRagged ? c.cuSeqlens[size_t(b) + 1] : c.qLen;
    for (int64_t h = 0; h < kHeads; ++h)
      for (int64_t row = begin; row < end; ++row)
        for (int64_t d = -1; d < c.options.headDim; ++d) {
          const auto of = [&, h = h, row = row, d = d](const Results& results) {
            return d < 0 ? results.lse.at({isRagged ? 0 : b, h, row}) : results.out.at({isRagged ? 0 : b, h, row, d});
          };
          check(of, d < 0);
        }
  }

  Case c;
  static constexpr int64_t kHeads = 2;

private:
  int64_t batch;
  std::vector<Tensor> tensors;
  std::vector<int32_t> ids, prefix;
  float slopes[kHeads] = {0.25f, 0.0625f};
};

/// Whether the kernel computes only the mod that a sequence has.
void check(Case c, bool isExact) {
  if (!test::isCaseDue()) return;
  INFO(fmt::format("{} mods, {} {} d{} tile {}, ragged {}, lengths {}", c.mods.size(), familyName(c.options.family),
                   kindName(c.options.kind), c.options.headDim, c.options.tile, !c.cuSeqlens.empty(),
                   !c.lengths.empty()));
  c.options.headDimV = c.options.headDim;
  std::vector<Mod> mods;
  for (const char* text : c.mods) mods.push_back(take(Mod::parse(text)));
  const Mod mod = take(Mod::choice(mods, "which: i32[B]"));
  Batch batch(c);
  const Batch::Results got = batch.run(mod, c.options);
  std::vector<std::optional<Batch::Results>> alone(mods.size());
  for (size_t b = 0; b < c.which.size(); ++b) {
    const int32_t which = c.which[b];
    const bool isDead = which < 0 || which >= int32_t(mods.size());
    if (!isDead && !alone[size_t(which)])
      alone[size_t(which)] = batch.run(mods[size_t(which)], c.options, /*isReference=*/!isExact);
    int64_t wrong = 0;
    batch.forEach(int64_t(b), [&](auto of, bool isLse) {
      const double is = of(got), want = !isDead ? of(*alone[size_t(which)]) : isLse ? -INFINITY : 0;
      const double most = isExact || isDead ? 0 : 0x1p-7 * std::max(1.0, std::fabs(want));
      if (!(is == want || std::fabs(is - want) <= most) && ++wrong == 1)
        WARN(fmt::format("sequence {}: {} instead of {}", b, is, want));
    });
    INFO("sequence " << b << " with mod " << which);
    CHECK(wrong == 0);
  }
}

KernelOptions forward(Family family, int headDim, const char* tile = "") {
  return {.family = family,
          .arch = family == Family::Sm90 ? "sm_90a" : "sm_80",
          .dtype = family == Family::Naive ? DType::F32 : DType::BF16,
          .headDim = headDim,
          .tile = tile};
}

} // namespace

TEST_CASE("Hopper's forward kernel gives each sequence what the kernel of its mod gives", "[on-host][choice]") {
  const std::vector<const char*> intervals = {kCausal, kAlibi, kCapped}, others = {kDocument, kAlibi, kNoop, kPrefix};
  check({intervals, {2, 0, 1, 1, 7, 0}, forward(Family::Sm90, 64, "128x128x8")}, true);
  check({intervals, {0, -1, 1, 2}, forward(Family::Sm90, 128, "128x128x8")}, true);
  check({intervals, {1, 2, 1, 2}, forward(Family::Sm90, 64, "192x128x12")}, true);
  check({others, {1, 0, 3, 2, 4, 0}, forward(Family::Sm90, 64, "128x128x8")}, true);
  check({others, {-1, 1, 1, 0}, forward(Family::Sm90, 192, "128x64x8")}, true);
  KernelOptions ragged = forward(Family::Sm90, 64, "128x128x8");
  ragged.features.set(Feature::Ragged);
  check({intervals, {2, 0, 9, 1, 1}, ragged, 300, 300, {0, 130, 131, 160, 300, 310}}, true);
  KernelOptions lengths = forward(Family::Sm90, 64, "128x128x8");
  lengths.features.set(Feature::Lengths);
  check({others, {0, 1, 2, 3}, lengths, 40, 200, {}, {200, 0, 77, 130}}, true);
}

TEST_CASE("decode kernels compute the mod of an item's sequence", "[on-host][choice]") {
  for (Family family : {Family::Sm80, Family::Sm90}) {
    KernelOptions options = forward(family, 64);
    options.kind = KernelKind::Decode;
    options.packedRows = 16;
    check({{kCausal, kAlibi, kCapped}, {2, 0, 1, 7, 1}, options, 3, 700}, false);
    options.features.set(Feature::Lengths), options.offsets = QueryOffsets::FromLengths;
    check({{kPrefix, kAlibi, kNoop}, {2, 0, 1, -1, 1}, options, 3, 700, {}, {700, 0, 333, 500, 64}}, false);
    options.features.set(Feature::Lengths, false), options.features.set(Feature::Ragged);
    check({{kDocument, kAlibi, kNoop}, {1, 3, 2, 0}, options, 100, 100, {0, 5, 60, 61, 100}}, false);
  }
}

TEST_CASE("kernels that choose score by score give each sequence its mod", "[on-host][choice]") {
  for (Family family : {Family::Naive, Family::Sm80}) {
    check({{kCausal, kAlibi, kCapped}, {2, 0, 1, 7}, forward(family, 64)}, false);
    check({{kDocument, kAlibi, kNoop, kPrefix}, {1, 0, 3, 2, -1}, forward(family, 64)}, false);
  }
}

NVRTC_TEST_CASE("kernels of a mod for each sequence compile without spills or advisories", "[kernels][choice]") {
  std::vector<Mod> mods;
  for (const char* text : {kCausal, kAlibi, kCapped, kPrefix}) mods.push_back(take(Mod::parse(text)));
  std::vector<test::Job> jobs;
  for (auto [headDim, count] : {std::pair(128, 2), {128, 4}, {256, 3}}) {
    const Mod mod = take(Mod::choice({mods.begin(), mods.begin() + count}, "which: i32[B]"));
    KernelOptions options = forward(Family::Sm90, headDim);
    options.headDimV = headDim;
    jobs.push_back({fmt::format("choice of {} d{}", count, headDim), mod, options});
  }
  CHECK(test::findings(jobs) == "");
}
