// What prepare() settles, and why. Needs no GPU: the arch is given, and nothing is loaded.
#include "helpers/plans.h"
#include "tests/api/settled.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <limits>
#include <vector>

using namespace attnc;
using namespace attnc::test;

namespace {

/// Counters of the sm90 family, and a mask's lists behind them.
constexpr size_t kCounters = 8, kListsOffset = kWorkspaceAlignment;

} // namespace

TEST_CASE("operands say what is static in a kernel", "[api]") {
  Case c;
  SECTION("bf16, another head dim of v") {}
  SECTION("fp16, row max, pins") {
    c.operands = {.q = tensor(1, 4, 9, 128, DType::F16),
                  .k = tensor(1, 4, 9, 128, DType::F16),
                  .v = tensor(1, 4, 9, 128, DType::F16)};
    c.outputs = {.out = tensor(1, 4, 9, 128, DType::F16),
                 .rowMax = TensorView::contiguous(nullptr, DType::F32, {1, 4, 9})};
    c.options.pins = {{"KV_LEN", 9}};
  }
  const Preparation p = settled(Mod::identity(), c);
  CHECK(p.kernel.options().arch == "sm_90a");
  CHECK(p.kernel.options().family == Family::Sm90);
  CHECK(p.kernel.passedOver().empty());
  CHECK(p.kernel.options().dtype == c.operands.q.dtype);
  CHECK(p.kernel.options().headDim == c.operands.q.shape[3]);
  CHECK(p.kernel.options().headDimV == c.operands.v.shape[3]);
  CHECK(p.kernel.options().features.has(Feature::RowMax) == c.outputs.rowMax.has_value());
  CHECK(p.kernel.options().pins == c.options.pins);
  CHECK(p.problem == ProblemShape{c.operands.q.shape[0], c.operands.q.shape[1], c.operands.k.shape[1],
                                  c.operands.q.shape[2], c.operands.k.shape[2]});
}

TEST_CASE("a family that is passed over is told with the reason", "[api]") {
  Case c;
  SECTION("a layout") {
    c.operands.k.stride[2] = 65;
    const Preparation p = settled(Mod::identity(), c);
    CHECK(p.kernel.options().family == Family::Sm80);
    CHECK(p.kernel.passedOver() ==
          "k has a row stride of 65, sm90 takes multiples of 8 (16 bytes) above 0 and below 2^40 bytes");
    c.options.family = Family::Sm90;
    CHECK(errorOf(Mod::identity(), c) == p.kernel.passedOver());
  }
  SECTION("a dtype") {
    for (TensorView* view : {&c.operands.q, &c.operands.k, &c.operands.v, &*c.outputs.out}) view->dtype = DType::F32;
    const Preparation p = settled(Mod::identity(), c);
    CHECK(p.kernel.options().family == Family::Sm80);
    CHECK(p.kernel.passedOver() == "sm90 takes no f32");
    c.options.family = Family::Sm90;
    CHECK(errorOf(Mod::identity(), c) == "the sm90 family does not serve this request: it takes no f32");
  }
  SECTION("an arch of that GPU without its instructions") {
    c.options.arch = "compute_90";
    CHECK(settled(Mod::identity(), c).kernel.passedOver() == "sm90 needs arch sm_90a");
  }
  SECTION("that GPU by its number alone has them") {
    c.options.arch = "sm_90";
    const Preparation p = settled(Mod::identity(), c);
    CHECK(p.kernel.options().family == Family::Sm90);
    CHECK(p.kernel.options().arch == "sm_90a");
  }
  SECTION("another GPU has none to pass over") {
    c.options.arch = "sm_89";
    const Preparation p = settled(Mod::identity(), c);
    CHECK(p.kernel.options().family == Family::Sm80);
    CHECK(p.kernel.passedOver().empty());
  }
  SECTION("a family is asked for") {
    c.options.family = Family::Naive;
    const Preparation p = settled(Mod::identity(), c);
    CHECK(p.kernel.options().family == Family::Naive);
    CHECK(p.kernel.passedOver().empty());
  }
}

TEST_CASE("a block mask is prepared where the kernel gains from one", "[api]") {
  Case c;
  const Mod causal = mod("q_idx >= kv_idx"), gaps = mod("(kv_idx < 4) | (q_idx % 3 == 0)");
  const auto lists = [](int64_t batch, int64_t heads) {
    return BlockMask::storageBytes({batch, heads, 1000, 3000, 128, 128});
  };
  SECTION("not without a mask") {
    const Preparation p = settled(Mod::identity(), c);
    CHECK_FALSE(p.blockMask);
    CHECK_FALSE(p.kernel.options().blockSparse);
    CHECK(p.workspaceBytes == kCounters);
  }
  SECTION("not where the kernel bounds its loops") {
    for (const char* arch : {"sm_80", "sm_90a"}) {
      c.options.arch = arch;
      const Preparation p = settled(causal, c);
      CHECK_FALSE(p.blockMask);
      CHECK(p.workspaceBytes == (p.kernel.options().family == Family::Sm90 ? kCounters : 0));
    }
  }
  SECTION("where it does not, one for all batches and heads") {
    c.options.arch = "sm_80";
    const Preparation p = settled(gaps, c);
    REQUIRE(p.blockMask);
    CHECK(p.kernel.options().blockSparse);
    CHECK(p.blockMask->batch == 1);
    CHECK(p.blockMask->heads == 1);
    CHECK(p.workspaceBytes == lists(1, 1));
  }
  SECTION("or for each batch that mask_mod tells apart") {
    const Preparation p = settled(mod(kDocument), c);
    CHECK(p.kernel.options().family == Family::Sm90);
    REQUIRE(p.blockMask);
    CHECK(p.blockMask->batch == 2);
    CHECK(p.blockMask->heads == 1);
    CHECK(p.workspaceBytes == kListsOffset + lists(2, 1));
  }
  SECTION("not where none is wanted") {
    c.options.buildBlockMask = false;
    const Preparation p = settled(mod(kDocument), c);
    CHECK_FALSE(p.blockMask);
    CHECK_FALSE(p.kernel.options().blockSparse);
    CHECK(p.workspaceBytes == kCounters);
  }
  SECTION("the oracle walks lists alone") {
    c.options.family = Family::Naive;
    CHECK(settled(causal, c).blockMask);
  }
  SECTION("no rows, no lists") {
    c.options.arch = "sm_80";
    c.operands.q = tensor(2, 8, 0, 64);
    c.outputs.out = tensor(2, 8, 0, 32);
    const Preparation p = settled(gaps, c);
    CHECK(p.blockMask);
    CHECK(p.workspaceBytes == 0);
  }
}

TEST_CASE("a block mask that is given is walked, and none is built", "[api]") {
  Case c;
  const Mod causal = mod("q_idx >= kv_idx");
  std::vector<int32_t> storage(1 << 12);
  BlockMaskView mask = BlockMask::viewInto(storage.data(), {.qLen = 1000, .kvLen = 3000, .qBlock = 256, .kvBlock = 64});
  c.operands.blockMask = &mask;
  SECTION("blocks of its own size") {
    const Preparation p = settled(causal, c);
    CHECK_FALSE(p.blockMask);
    CHECK(p.kernel.options().blockSparse);
    CHECK(p.kernel.options().maskQBlock == 256);
    CHECK(p.kernel.options().maskKvBlock == 64);
    CHECK(p.workspaceBytes == kCounters);
  }
  SECTION("blocks that a family does not take") {
    mask.shape.qBlock = 64;
    const Preparation p = settled(causal, c);
    CHECK(p.kernel.options().family == Family::Sm80);
    CHECK(p.kernel.passedOver() == "sm90 takes block masks with q blocks of 128 or 256");
  }
  SECTION("lengths") {
    mask.shape.kvLen = 3001;
    CHECK(errorOf(causal, c) == "block mask: its lengths are 1000 x 3001, those of the problem 1000 x 3000");
  }
  SECTION("blocks that nothing takes") {
    mask.shape.kvBlock = 96;
    CHECK(errorOf(causal, c) == "block mask: blocks of 256 x 96 are not supported");
  }
}

TEST_CASE("operands that no kernel serves are refused by name when they are prepared", "[api]") {
  Case c;
  SECTION("no output") {
    c.outputs = {};
    CHECK(errorOf(Mod::identity(), c) == "out is not given, expected Outputs::out, which a forward kernel writes");
  }
  SECTION("nothing at all") {
    c.operands = {};
    CHECK(errorOf(Mod::identity(), c) == "q has rank 0, expected [batch, heads, length, head_dim]");
  }
  SECTION("a head dim") {
    c.operands.q = tensor(2, 8, 1000, 60);
    c.operands.k = tensor(2, 2, 3000, 60);
    CHECK(errorOf(Mod::identity(), c) == "head dim 60 is not supported");
  }
  SECTION("a dtype") {
    for (TensorView* view : {&c.operands.q, &c.operands.k, &c.operands.v, &*c.outputs.out}) view->dtype = DType::I32;
    CHECK(errorOf(Mod::identity(), c) == "q, k and v of i32 are not supported");
  }
  SECTION("heads") {
    c.operands.k = tensor(2, 3, 3000, 64);
    CHECK(errorOf(Mod::identity(), c) == "k has 3 heads, expected a divisor of q's 8");
  }
  SECTION("lse") {
    c.outputs.lse = TensorView::contiguous(nullptr, DType::F32, {2, 8, 999});
    CHECK(errorOf(Mod::identity(), c) == "lse is f32 [2, 8, 999], expected f32 [2, 8, 1000]");
  }
  SECTION("tf32 of bf16") {
    c.options.tf32 = true;
    CHECK(errorOf(Mod::identity(), c) == "tf32 is an option of f32 kernels alone");
  }
  SECTION("an error that is no part") {
    for (auto [error, text] :
         {std::pair(-0.5f, "-0.5"), {1.f, "1"}, {std::numeric_limits<float>::quiet_NaN(), "nan"}}) {
      c.options.lowRankError = error;
      CHECK(errorOf(Mod::identity(), c) == std::string("lowRankError is ") + text);
    }
    c.options.lowRankError = 0.25f;
    CHECK(settled(Mod::identity(), c).kernel.options().lowRankError == 0.25f);
  }
}

TEST_CASE("captures and pins are checked when they are prepared, if they are given", "[api]") {
  const Mod windowed = mod("window: int\ndef mask_mod(b, h, q_idx, kv_idx):\n    return q_idx - kv_idx <= window\n");
  Case c;
  CHECK(settled(windowed, c).kernel.options().family == Family::Sm90);
  Captures captures;
  c.operands.captures = &captures;
  CHECK(errorOf(windowed, c).find("'window'") != std::string::npos);
  captures.set("window", 5);
  CHECK(settled(windowed, c).kernel.options().family == Family::Sm90);
  c.options.pins = {{"window", 6}};
  CHECK(errorOf(windowed, c) == "window is 5, but the kernel was compiled with it pinned to 6");
}

TEST_CASE("narrow windows get tiles of fewer rows, if the host knows how narrow they are", "[api]") {
  const auto tileOf = [](const std::string& text, int64_t window, int64_t dim = 64) {
    Case c;
    c.operands = {.q = tensor(2, 8, 1000, dim), .k = tensor(2, 8, 1000, dim), .v = tensor(2, 8, 1000, dim)};
    c.outputs = {.out = tensor(2, 8, 1000, dim)};
    c.options.buildBlockMask = false;
    Captures captures;
    captures.set("window", window);
    if (window >= 0) c.operands.captures = &captures;
    const Preparation p = settled(mod(text.c_str()), c);
    CHECK(p.kernel.tileFrom() == TileFrom::Model);
    return p.kernel.tile();
  };
  const std::string window = "window: int\ndef mask_mod(b, h, q_idx, kv_idx):\n"
                             "    return (q_idx >= kv_idx) & (q_idx - kv_idx < window)\n";
  CHECK(tileOf(window, 0) == "128x128x8");
  CHECK(tileOf(window, 128) == "128x128x8");
  CHECK(tileOf(window, 640) == "192x128x12"); // the row in the middle sees all before it
  CHECK(tileOf(window, 400) == "128x128x8");
  CHECK(tileOf(window, -1) == "192x128x12"); // no value yet
  CHECK(tileOf(window, 128, 128) == "128x128x8");
  CHECK(tileOf("def mask_mod(b, h, q_idx, kv_idx):\n    return (q_idx >= kv_idx) & (q_idx - kv_idx < 128)\n", -1) ==
        "128x128x8");
  CHECK(tileOf("def mask_mod(b, h, q_idx, kv_idx):\n    return q_idx >= kv_idx\n", -1) == "192x128x12");
}

TEST_CASE("short queries get tiles of fewer rows", "[api]") {
  const auto tileOf = [](const std::string& expression, int64_t length, DType dtype = DType::BF16,
                         int64_t kvLength = 0) {
    Case c;
    const auto of = [&](int64_t rows) { return TensorView::contiguous(nullptr, dtype, {2, 8, rows, 64}); };
    const TensorView keys = of(kvLength ? kvLength : length);
    c.operands = {.q = of(length), .k = keys, .v = keys};
    c.outputs = {.out = tensor(2, 8, length, 64)};
    return settled(mod(expression.c_str()), c).kernel.tile();
  };
  CHECK(tileOf("score", 128) == "128x128x8");
  CHECK(tileOf("score", 129) == "192x128x12");
  CHECK(tileOf("score", 256) == "128x128x8");
  CHECK(tileOf("score", 257) == "192x128x12");
  CHECK(tileOf("q_idx >= kv_idx", 640) == "128x128x8"); // tiles end at the last row
  CHECK(tileOf("q_idx >= kv_idx", 576) == "192x128x12");
  CHECK(tileOf("q_idx >= kv_idx", 641) == "192x128x12");
  CHECK(tileOf("q_idx + 4000 >= kv_idx", 640, DType::BF16, 4640) == "192x128x12");
  CHECK(tileOf("score", 256, DType::E4M3) == "192x128x12");
}

TEST_CASE("CTAs of short backward walks take turns, unless they walk several heads", "[api]") {
  const auto tileOf = [](const std::string& expression, int64_t length, int64_t kvHeads = 8, int64_t dim = 128) {
    const TensorView q = tensor(1, 8, length, dim), k = tensor(1, kvHeads, length, dim);
    const TensorView lse = TensorView::contiguous(nullptr, DType::F32, {1, 8, length});
    const Operands tensors{.q = q, .k = k, .v = k};
    const BackwardOperands operands{{tensors}, q, lse, q, {}};
    const auto training = take(Compiler().settleTraining(mod(expression.c_str()), operands, {.out = q, .lse = lse},
                                                         {.dQ = q, .dK = k, .dV = k}, {.arch = "sm_90a"}));
    return training.backward->tile();
  };
  CHECK(tileOf("score", 2048) == "64x128x8-turns");
  CHECK(tileOf("score", 2049) == "64x128x8");
  CHECK(tileOf("q_idx >= kv_idx", 4095) == "64x128x8-turns"); // the row in the middle sees half
  CHECK(tileOf("q_idx >= kv_idx", 8192) == "64x128x8");
  CHECK(tileOf("(q_idx >= kv_idx) & (q_idx - kv_idx <= 1024)", 8192) == "64x128x8-turns");
  CHECK(tileOf("score", 512, 2) == "64x128x8");
  CHECK(tileOf("score", 512, 8, 64) == "128x128x8"); // takes turns whatever the walk
  CHECK(tileOf("score", 512, 8, 192) == "64x64x8");  // v is as wide
  const std::string lowRank = "u: bf16[B, H, Q_LEN, 16]\nw: bf16[B, H, KV_LEN, 16]\n"
                              "def score_mod(score, b, h, q_idx, kv_idx):\n"
                              "    return score + u[b, h, q_idx] @ w[b, h, kv_idx]\n";
  CHECK(tileOf(lowRank, 512) == "64x128x8"); // the kernel of 144 columns takes no turns
  CHECK(tileOf(lowRank, 512, 8, 64) == "64x128x8-turns");
}

TEST_CASE("forward kernels share loads between heads, or between tiles without a mask", "[api]") {
  const auto tileOf = [](const std::string& expression, int64_t length, int64_t kvHeads = 8, int64_t dim = 128) {
    const TensorView q = tensor(1, 8, length, dim), k = tensor(1, kvHeads, length, dim);
    const auto prepared =
        take(Compiler().settle(mod(expression.c_str()), {.q = q, .k = k, .v = k}, {.out = q}, {.arch = "sm_90a"}));
    return prepared.kernel.tile();
  };
  const char* causal = "q_idx >= kv_idx";
  CHECK(tileOf("score", 8192) == "128x128x8-2tiles");
  CHECK(tileOf("score", 8192, 2) == "128x128x8-2heads");
  CHECK(tileOf("score", 8192, 8, 64) == "192x128x12");
  CHECK(tileOf("score", 300) == "128x128x8"); // one tile of four would have no rows
  CHECK(tileOf(causal, 8192) == "128x128x8"); // neighbouring tiles have different steps
  CHECK(tileOf(causal, 2048, 4) == "128x128x8-2heads");
  CHECK(tileOf(causal, 512, 4) == "128x128x8");
  CHECK(tileOf("kv_idx <= q_idx + 1", 8192, 4) == "128x128x8-2heads");
  CHECK(tileOf("kv_idx <= q_idx + h", 8192, 4) == "128x128x8"); // heads have other steps
  Case odd;
  odd.operands = {.q = tensor(1, 6, 512, 128), .k = tensor(1, 2, 512, 128), .v = tensor(1, 2, 512, 128)};
  odd.outputs = {.out = odd.operands.q};
  odd.options.tile = "128x128x8-2heads";
  CHECK(errorOf(mod(causal), odd) == "the tile wants 2 query heads, or a multiple, for each KV head");
}

TEST_CASE("what the mod asserts of the launch is asked when it is prepared, with its captures", "[api]") {
  const Mod asserting = mod("window: int\nassert 0 < window <= KV_LEN, 'the window lies outside'\n"
                            "def mask_mod(b, h, q_idx, kv_idx):\n    return q_idx - kv_idx <= window\n");
  Case c;
  CHECK(settled(asserting, c).kernel.options().family == Family::Sm90);
  Captures captures;
  c.operands.captures = &captures.set("window", 3000);
  CHECK(settled(asserting, c).kernel.options().family == Family::Sm90);
  captures.set("window", 3001);
  CHECK_THAT(errorOf(asserting, c), Catch::Contains("the window lies outside (") && Catch::Contains("window = 3001"));
}

TEST_CASE("how the loop over columns is bounded is told", "[api]") {
  Case c;
  const Mod causal = mod("q_idx >= kv_idx");
  CHECK(settled(Mod::identity(), c).kernel.kvLoop() == KvLoop::AllTiles);
  CHECK(settled(causal, c).kernel.kvLoop() == KvLoop::Bounds);
  CHECK(settled(mod(kDocument), c).kernel.kvLoop() == KvLoop::BlockMask);
  c.options.buildBlockMask = false;
  CHECK(settled(mod(kDocument), c).kernel.kvLoop() == KvLoop::AllTiles);
  std::vector<int32_t> storage(1 << 12);
  const BlockMaskView mask = BlockMask::viewInto(storage.data(), {.qLen = 1000, .kvLen = 3000});
  c.operands.blockMask = &mask;
  CHECK(settled(causal, c).kernel.kvLoop() == KvLoop::BlockMask);
}

TEST_CASE("extents that overflow somewhere are refused, not wrapped", "[api]") {
  Case c;
  const auto resize = [&](int64_t batch, int64_t heads, int64_t length) {
    for (TensorView* view : {&c.operands.q, &c.operands.k, &c.operands.v, &*c.outputs.out}) {
      view->shape = {batch, heads, length, view->shape[3]};
      view->stride = {64, 64, 64, 1};
    }
  };
  const Mod everywhere = mod("(q_idx * 7 + kv_idx) % 5 < 1 + b + h");
  constexpr int64_t kMost = int64_t(1) << 24;
  SECTION("heads of a mask") {
    resize(kMost, 256, 128);
    CHECK(errorOf(everywhere, c) == "block mask: batch 16777216 times heads 256 is beyond 2^31 - 1");
  }
  SECTION("blocks of a mask") {
    resize(kMost, 64, kMost);
    CHECK(errorOf(everywhere, c) == "block mask: it has more than 2^59 blocks");
  }
  SECTION("head dim") {
    c.operands.q.shape[3] = (int64_t(1) << 32) + 64;
    CHECK(errorOf(Mod::identity(), c).find("q has shape") == 0);
  }
  SECTION("a batch of none still has a mask to build") {
    resize(0, 8, 1000);
    CHECK(settled(everywhere, c).blockMask->batch == 1);
  }
}

TEST_CASE("families say of themselves where they run and what they take", "[api]") {
  const std::vector<FamilyInfo> families = forwardFamilies();
  REQUIRE(families.size() == kAllFamilies.size()); // Grid is made for sm_90a, and for others
  bool any = false;
  for (const FamilyInfo& info : families) {
    INFO(familyName(info.family));
    CHECK(std::count_if(families.begin(), families.end(), [&](const FamilyInfo& other) {
            return other.family == info.family && other.arch == info.arch;
          }) == 1);
    Case c;
    c.options = {.family = info.family, .arch = std::string(info.arch)};
    const Mod m = info.family == Family::Grid ? mod(kNeighborhood) : Mod::identity();
    CHECK(settled(m, c).kernel.options().family == info.family);
    c.operands.k.stride[2] = 65; // unaligned rows
    CHECK(bool(Compiler().settle(m, c.operands, c.outputs, c.options)) == info.takesAnyLayout);
    any = any || info.takesAnyLayout;
  }
  CHECK(any); // whatever the layout, there is a kernel
}

TEST_CASE("what prepare() settles is what the finer calls settle", "[api]") {
  const Compiler compiler;
  for (const char* text : {"score * 0.5", "q_idx >= kv_idx", kDocument})
    for (const char* arch : {"sm_80", "sm_90a"})
      for (int64_t rowStride : {64, 65}) {
        const Mod m = mod(text);
        Case c;
        c.options.arch = arch;
        c.operands.q.stride[2] = rowStride;
        const Preparation p = settled(m, c);
        KernelOptions asked{.family = p.kernel.options().family, .arch = arch, .headDim = 64, .headDimV = 32};
        auto wants = take(test::gainsFromBlockMask(compiler, m, asked));
        asked.blockSparse = wants;
        auto byHand = take(test::sourcesOf(compiler, m, asked)),
             prepared = take(test::sourcesOf(compiler, m, p.kernel.options()));
        CHECK(prepared.front().flattened() == byHand.front().flattened());
        CHECK(p.blockMask.has_value() == wants);
      }
}

TEST_CASE("without a GPU nothing can be prepared, and the error says so", "[api]") {
  Case c;
  c.options.arch.clear();
  const Compiler compiler({.cacheMode = CompilerOptions::CacheMode::Off});
  auto prepared = compiler.prepare(Mod::identity(), c.operands, c.outputs, c.options);
  if (prepared) return; // there is one
  CHECK(prepared.error().blame == Blame::Environment);
  CHECK_FALSE(prepared.error().message.empty());
}

TEST_CASE("training settles both passes, and one workspace for them", "[api]") {
  Case c;
  BackwardOperands operands;
  static_cast<Operands&>(operands) = c.operands;
  operands.out = operands.dOut = *c.outputs.out;
  operands.lse = TensorView::contiguous(nullptr, DType::F32, {2, 8, 1000});
  BackwardOutputs gradients{.dQ = c.operands.q, .dK = c.operands.k, .dV = c.operands.v};
  c.outputs.lse = operands.lse;
  const auto settle = [&](const Mod& m) {
    return Compiler().settleTraining(m, operands, c.outputs, gradients, c.options);
  };
  const auto errorOf = [&] { return environmentErrorOf(settle(Mod::identity())); };
  constexpr size_t kDelta = 2 * 8 * 1000 * sizeof(float);
  SECTION("a pass has its own family") {
    const Mod causal = mod("q_idx >= kv_idx");
    auto both = take(settle(causal));
    const Preparation forward = settled(causal, c);
    CHECK(both.kernel.options().family == forward.kernel.options().family);
    CHECK(both.kernel.kvLoop() == KvLoop::Bounds);
    REQUIRE(both.backward);
    CHECK_FALSE(forward.backward);
    CHECK(both.backward->options().kind == KernelKind::Backward);
    CHECK(both.backward->options().headDimV == 32);
    CHECK(both.backward->kvLoop() == KvLoop::Bounds);
    CHECK(both.workspaceBytes >= kWorkspaceAlignment + kDelta); // behind the counters
  }
  SECTION("gradients that the copy engine cannot describe are left to another family") {
    for (TensorView* tensor : {&operands.dOut, &*gradients.dQ, &*gradients.dK, &*gradients.dV}) {
      const TensorView aligned = *tensor;
      CHECK(settle(Mod::identity())->backward->options().family == Family::Sm90);
      tensor->stride[2] += 1;
      CHECK(settle(Mod::identity())->backward->options().family == Family::Sm80);
      *tensor = aligned;
    }
  }
  SECTION("row maxima are the forward's alone") {
    c.outputs.rowMax = operands.lse;
    auto both = take(settle(Mod::identity()));
    CHECK(both.kernel.options().features.has(Feature::RowMax));
    CHECK_FALSE(both.backward->options().features.has(Feature::RowMax));
  }
  SECTION("the workspace of the backward pass lies behind the forward's lists") {
    const Mod document = mod(kDocument);
    auto both = settle(document);
    REQUIRE(both);
    const size_t forward = settled(document, c).workspaceBytes;
    CHECK(both->workspaceBytes >= forward + kDelta);
    c.options.family = Family::Naive; // only needs sums of rows
    both = settle(document);
    REQUIRE(both);
    const BlockMaskShape shape = *both->blockMask;
    CHECK(settled(document, c).workspaceBytes == BlockMask::storageBytes(shape));
    CHECK(both->workspaceBytes == BlockMask::storageBytes(shape, BlockMask::Lists::ByRowAndColumn) + kDelta);
  }
  SECTION("both passes walk the lists of one mask, or none") {
    const Mod document = mod(kDocument);
    auto both = settle(document);
    REQUIRE(both);
    CHECK(both->backward->kvLoop() == KvLoop::BlockMask);
    CHECK(both->backward->options().blockSparse);
    CHECK(both->backward->options().maskQBlock == both->blockMask->qBlock);
    c.options.buildBlockMask = false;
    both = settle(document);
    REQUIRE(both);
    CHECK_FALSE(both->blockMask);
    CHECK(both->backward->kvLoop() == KvLoop::AllTiles);
    CHECK_FALSE(both->backward->options().blockSparse);
    const BlockMaskView own{.shape = {.qLen = 1000, .kvLen = 3000, .qBlock = 256, .kvBlock = 64}};
    operands.blockMask = &own;
    both = settle(document);
    REQUIRE(both);
    CHECK_FALSE(both->blockMask);
    CHECK(both->backward->kvLoop() == KvLoop::BlockMask);
    CHECK(both->backward->options().maskQBlock == 256);
    CHECK(both->backward->options().maskKvBlock == 64);
  }
  SECTION("what flows back and what it gives must fit") {
    operands.dOut = tensor(2, 8, 1000, 64);
    CHECK(errorOf() == "dout has shape [2, 8, 1000, 64], expected [2, 8, 1000, 32]");
    operands.dOut = *c.outputs.out;
    operands.dLse = TensorView::contiguous(nullptr, DType::F32, {2, 8, 999});
    CHECK(errorOf() == "dlse is f32 [2, 8, 999], expected f32 [2, 8, 1000]");
    operands.dLse.reset();
    gradients.dK->dtype = DType::F32;
    CHECK(errorOf() == "dk is f32, expected bf16, which the kernel was compiled for");
  }
}
