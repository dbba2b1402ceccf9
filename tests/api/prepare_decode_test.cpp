// Which problems prepare() settles with decode kernels. Needs no GPU.
#include "tests/api/settled.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace attnc;
using Catch::Matchers::Contains;
using namespace attnc::test;

TEST_CASE("few queries over long KV go to a decode kernel", "[api]") {
  const auto of = [](int64_t qLen, int64_t kvLen) {
    Case c;
    c.operands = {.q = tensor(64, 8, qLen, 64), .k = tensor(64, 2, kvLen, 64), .v = tensor(64, 2, kvLen, 64)};
    c.outputs = {.out = tensor(64, 8, qLen, 64)};
    return c;
  };
  const Mod causal = mod("q_idx >= kv_idx");
  for (auto [qLen, rows] : {std::pair{1, 16}, {4, 16}, {5, 32}, {9, 64}, {16, 64}}) {
    const Preparation p = settled(causal, of(qLen, 4096));
    INFO(qLen << " queries");
    CHECK(p.kernel.options().kind == KernelKind::Decode);
    CHECK(p.kernel.options().family == Family::Sm90);
    CHECK(p.kernel.options().packedRows == rows);
    // A counter for each of 128 items, and two parts for each of 512 CTAs: out and four numbers a row.
    const size_t parts = 2 * 512 * size_t(4 * qLen) * (64 + 4) * sizeof(float);
    CHECK(p.workspaceBytes == 128 * sizeof(int) + parts);
  }
  CHECK(settled(causal, of(4, 4096)).whyKind ==
        "K and V are read once for the 16 rows of q that share a KV head, and divided among CTAs");
  for (const auto& [c, why] :
       {std::pair(of(17, 4096),
                  "68 rows of q share a KV head, a tile of a decode kernel takes 64, and 512 (batch, head) "
                  "keep a GPU busy"),
        {of(1, 511), "KV_LEN 511, decode kernels gain from 512"},
        {of(128, 4096), "128 queries, decode kernels gain up to 127"},
        {of(0, 4096), "there are no queries"}}) {
    const Preparation p = settled(causal, c);
    CHECK(p.kernel.options().kind == KernelKind::Forward);
    CHECK(p.whyKind == why);
  }
  Case c = of(1, 4096);
  c.options.decode = false;
  CHECK(settled(causal, c).kernel.options().kind == KernelKind::Forward);
  CHECK(settled(causal, c).whyKind.empty());
  c = of(17, 4096);
  c.options.decode = true;
  CHECK(settled(causal, c).kernel.options().kind == KernelKind::Decode);
  c.options.family = Family::Naive;
  CHECK(errorOf(causal, c) == "the naive family has no decode kernels");
  // Where live columns are no interval, each launch lists the steps that live: by item a count, a word of 32 steps and
  // their 32 numbers; and a counter more.
  const Preparation listed = settled(mod("(kv_idx < 4) | (q_idx % 3 == 0)"), of(1, 4096)),
                    plain = settled(causal, of(1, 4096));
  CHECK(listed.kernel.options().kind == KernelKind::Decode);
  CHECK(listed.kernel.kvLoop() == KvLoop::Listed);
  CHECK(!listed.blockMask);
  CHECK(listed.workspaceBytes == plain.workspaceBytes + 128 * sizeof(int) + 128 * (1 + 33) * sizeof(int));
}

TEST_CASE("k and v of e4m3 go to a decode kernel, whatever the lengths", "[api]") {
  const auto of = [](int64_t qLen) {
    Case c;
    c.operands = {.q = tensor(4, 8, qLen, 64), .k = tensor(4, 2, 300, 64), .v = tensor(4, 2, 300, 64)};
    c.operands.k.dtype = c.operands.v.dtype = DType::E4M3;
    c.outputs = {.out = tensor(4, 8, qLen, 64)};
    return c;
  };
  for (int64_t qLen : {1, 300}) {
    const Preparation p = settled(Mod::identity(), of(qLen));
    CHECK(p.kernel.options().kind == KernelKind::Decode);
    CHECK(p.kernel.options().features.has(Feature::Fp8Kv));
  }
  Case c = of(1);
  const auto scales = [](std::initializer_list<int64_t> shape) {
    return TensorView::contiguous(nullptr, DType::F32, shape);
  };
  const std::string tile = settled(Mod::identity(), c).kernel.tile();
  for (const TensorView& given :
       {scales({2}), scales({1, 2}), scales({4, 2}), scales({1, 2, 300}), scales({4, 2, 300})}) {
    c.operands.kScales = c.operands.vScales = given;
    const Preparation p = settled(Mod::identity(), c);
    CHECK(p.kernel.tile() == tile);
    CHECK(p.kernel.tileFrom() == TileFrom::Model);
  }
  for (auto [given, text] : {std::pair(scales({4}), "[4]"), {scales({4, 2, 3}), "[4, 2, 3]"}}) {
    c.operands.vScales = given;
    CHECK(errorOf(Mod::identity(), c) ==
          fmt::format("v_scales is f32 {}, expected f32 [2] or [4, 2] or [4, 2, 300]", text));
  }
  c = of(1);
  for (TensorView* pool : {&c.operands.k, &c.operands.v}) *pool = tensor(20, 2, 16, 64), pool->dtype = DType::E4M3;
  c.operands.pageTable = TensorView::contiguous(nullptr, DType::I32, {4, 5});
  c.operands.kvLengths = TensorView::contiguous(nullptr, DType::I32, {4});
  for (const TensorView& given : {scales({4, 2}), scales({20, 2, 1}), scales({20, 2, 16})}) {
    c.operands.kScales = c.operands.vScales = given;
    settled(Mod::identity(), c);
  }
  for (auto [given, text] : {std::pair(scales({4, 2, 80}), "[4, 2, 80]"), {scales({1, 2, 16}), "[1, 2, 16]"}}) {
    c.operands.kScales = given;
    CHECK(errorOf(Mod::identity(), c) ==
          fmt::format("k_scales is f32 {}, expected f32 [2] or [4, 2] or [20, 2, 1] or [20, 2, 16]", text));
  }
  c = of(1);
  c.operands.v.dtype = c.operands.q.dtype;
  CHECK(errorOf(Mod::identity(), c) == "v is bf16, expected e4m3, which the kernel was compiled for");
  c = of(1);
  c.options.decode = false;
  CHECK(errorOf(Mod::identity(), c) == "k and v are e4m3, and q is bf16: only decode kernels take these");
  c = of(1);
  c.options.arch = "sm_80";
  CHECK(errorOf(Mod::identity(), c) ==
        "no decode kernel serves this request: sm80 takes k and v of e4m3 on GPUs from sm_89 on");
  c = of(1);
  c.operands.k.dtype = c.operands.v.dtype = c.operands.q.dtype;
  c.operands.kScales = scales({2});
  CHECK(errorOf(Mod::identity(), c) == "k_scales is given, expected none, for k and v are not e4m3");
  c = of(1);
  c.operands.qScales = scales({8});
  CHECK(errorOf(Mod::identity(), c) == "q_scales is given, expected none, for q is not e4m3");
}

TEST_CASE("q, k and v of e4m3 go to the kernel of Hopper, or to that of mma.sync", "[api]") {
  const auto of = [](int64_t qLen, int64_t dim = 64) {
    Case c;
    c.operands = {.q = tensor(4, 8, qLen, dim), .k = tensor(4, 2, 300, dim), .v = tensor(4, 2, 300, dim)};
    c.operands.q.dtype = c.operands.k.dtype = c.operands.v.dtype = DType::E4M3;
    c.outputs = {.out = tensor(4, 8, qLen, dim)};
    c.options.arch = "sm_90a";
    return c;
  };
  for (int64_t qLen : {1, 300}) {
    const Preparation p = settled(Mod::identity(), of(qLen));
    CHECK(p.kernel.options().kind == KernelKind::Forward);
    CHECK(p.kernel.options().family == Family::Sm90);
    CHECK(p.kernel.options().dtype == DType::BF16);
  }
  const auto scales = [](std::initializer_list<int64_t> shape) {
    return TensorView::contiguous(nullptr, DType::F32, shape);
  };
  Case c = of(300);
  for (const TensorView& given : {scales({8}), scales({4, 8}), scales({1, 8, 3}), scales({4, 8, 3})}) {
    c.operands.qScales = given;
    settled(Mod::identity(), c);
  }
  // The model's tile has steps within blocks here, and is the same kernel.
  c.operands.kScales = scales({4, 2, 3});
  CHECK(settled(Mod::identity(), c).kernel.tileFrom() == TileFrom::Model);
  CHECK(settled(Mod::identity(), c).kernel.options().tile.empty());
  c.operands.kScales = scales({4, 2, 2});
  CHECK(errorOf(Mod::identity(), c) ==
        "k_scales is f32 [4, 2, 2], expected f32 [2] or [4, 2] or [4, 2, 3] or [4, 2, 300]");
  // Scales of rows are part of the kernel, and any tile takes them.
  CHECK_FALSE(settled(Mod::identity(), of(300)).kernel.options().features.has(Feature::RowScales));
  for (auto [q, k] : {std::pair(scales({4, 8, 300}), scales({4, 2, 300})),
                      {scales({8}), scales({1, 2, 300, 1})},
                      {scales({4, 8, 3}), scales({4, 2, 300})}}) {
    c.operands.qScales = q, c.operands.kScales = k;
    CHECK(settled(Mod::identity(), c).kernel.options().features.has(Feature::RowScales));
    CHECK(settled(Mod::identity(), c).kernel.tileFrom() == TileFrom::Model);
  }
  c.operands.qScales = scales({4, 8, 299});
  CHECK(errorOf(Mod::identity(), c) ==
        "q_scales is f32 [4, 8, 299], expected f32 [8] or [4, 8] or [4, 8, 3] or [4, 8, 300]");
  // In pages both kinds may fit. A fourth axis tells them apart, whatever the numbers are.
  c.operands = {.q = tensor(4, 8, 300, 64), .k = tensor(4, 2, 16, 64), .v = tensor(4, 2, 16, 64)};
  c.operands.q.dtype = c.operands.k.dtype = c.operands.v.dtype = DType::E4M3;
  c.operands.kvLengths = TensorView::contiguous(nullptr, DType::I32, {4});
  c.operands.pageTable = TensorView::contiguous(nullptr, DType::I32, {4, 8});
  c.operands.kScales = scales({4, 2, 1});
  CHECK_FALSE(settled(Mod::identity(), c).kernel.options().features.has(Feature::RowScales));
  for (const TensorView& given : {scales({4, 2, 1, 1}), scales({4, 2, 16, 1})}) {
    c.operands.kScales = given;
    CHECK(settled(Mod::identity(), c).kernel.options().features.has(Feature::RowScales));
  }
  for (const TensorView& given : {scales({4, 2, 16}), scales({1, 2, 16, 1})}) {
    c.operands.kScales = given;
    CHECK_THAT(errorOf(Mod::identity(), c), Contains("or [4, 2, 1] or [4, 2, 1, 1] or [4, 2, 16, 1]"));
  }
  // 121 columns of 16 rows are 16 blocks: three axes are blocks all the same, and four are rows.
  c.operands.pageTable = TensorView::contiguous(nullptr, DType::I32, {4, 121});
  c.operands.k = c.operands.v = tensor(484, 2, 16, 64), c.operands.k.dtype = c.operands.v.dtype = DType::E4M3;
  c.operands.kScales = scales({484, 2, 16, 1});
  CHECK(settled(Mod::identity(), c).kernel.options().features.has(Feature::RowScales));
  c.operands.kScales = scales({484, 2, 16});
  CHECK_THAT(errorOf(Mod::identity(), c), Contains("or [4, 2, 16] or [484, 2, 1, 1] or [484, 2, 16, 1]"));
  Case wide = of(300, 128);
  const std::string model = settled(Mod::identity(), wide).kernel.tile();
  wide.operands.kScales = scales({4, 2, 3}); // its tile has steps within blocks
  const Preparation byBlocks = settled(Mod::identity(), wide);
  CHECK(byBlocks.kernel.tileFrom() == TileFrom::Model);
  CHECK(byBlocks.kernel.tile() == model);
  wide.options.tile = byBlocks.kernel.tile();
  CHECK(settled(Mod::identity(), wide).kernel.tileFrom() == TileFrom::Asked);
  for (const char* arch : {"sm_89", "compute_90", "sm_100", "sm_120"})
    for (int64_t dim : {16, 48, 128, 256}) {
      c = of(300, dim);
      c.options.arch = arch;
      c.operands.kScales = scales({4, 2, 3});
      const Preparation p = settled(Mod::identity(), c);
      CHECK(p.kernel.options().family == Family::Sm80);
      CHECK(p.kernel.tileFrom() == TileFrom::Model);
    }
  c = of(300);
  c.operands.q.stride[2] = 65; // rows that the copy engine does not take
  CHECK(settled(Mod::identity(), c).kernel.options().family == Family::Sm80);
  c = of(300, 24);
  c.options.arch = "sm_89";
  CHECK(errorOf(Mod::identity(), c) == "head dim 24 of e4m3 is not supported");
  for (DType dtype : {DType::F32, DType::E4M3}) {
    c = of(300);
    c.outputs.out->dtype = dtype;
    CHECK(errorOf(Mod::identity(), c) == fmt::format("q, k and v are e4m3, and out is {}", dtypeName(dtype)));
  }
  c = of(300);
  c.options.arch = "sm_86";
  CHECK_THAT(errorOf(Mod::identity(), c), Contains("sm80 takes q, k and v of e4m3 on GPUs from sm_89 on"));
  c.options.family = Family::Naive;
  CHECK(settled(Mod::identity(), c).kernel.options().family == Family::Naive);
  c = of(300);
  c.operands.k.dtype = c.operands.v.dtype = DType::BF16;
  CHECK(errorOf(Mod::identity(), c).find("q is e4m3, k and v are not") == 0);
}

TEST_CASE("head dims above 256 go to decode kernels of sm_90a, which load v only if it is no view of k", "[api]") {
  const auto of = [](int headDim, int headDimV, bool vInK) {
    Case c;
    c.operands = {.q = tensor(4, 128, 2, headDim), .k = tensor(4, 1, 100, headDim), .v = tensor(4, 1, 100, headDimV)};
    if (vInK) c.operands.v.stride = c.operands.k.stride;
    c.outputs = {.out = tensor(4, 128, 2, headDimV)};
    return c;
  };
  const auto hasVInK = [](const Case& c) {
    const Preparation p = settled(mod("q_idx >= kv_idx"), c);
    CHECK(p.kernel.options().kind == KernelKind::Decode);
    CHECK(p.kernel.options().family == Family::Sm90);
    CHECK(p.whyKind == "only decode kernels take head dims above 256");
    return p.kernel.options().features.has(Feature::VInK);
  };
  CHECK(hasVInK(of(576, 512, true)));
  CHECK_FALSE(hasVInK(of(576, 512, false)));
  Case c = of(512, 512, true);
  CHECK_FALSE(hasVInK(c)); // null addresses of equal shapes tell nothing
  alignas(16) char memory[16];
  c.operands.k.data = c.operands.v.data = memory;
  CHECK(hasVInK(c));
  c.operands.newK = tensor(4, 1, 2, 512), c.operands.newV = tensor(4, 1, 2, 512);
  c.operands.kvLengths = TensorView::contiguous(nullptr, DType::I32, {4});
  CHECK_FALSE(hasVInK(c)); // the new rows of v are not those of k
  c = of(128, 64, true);
  CHECK_FALSE(settled(Mod::identity(), c).kernel.options().features.has(Feature::VInK)); // gains nothing

  c = of(576, 512, true);
  c.options.arch = "sm_80";
  CHECK(errorOf(Mod::identity(), c) == "no decode kernel serves this request: sm80 takes head dims up to 256");
  c.options.arch = "sm_90a";
  c.options.decode = false;
  CHECK(errorOf(Mod::identity(), c) == "no forward kernel serves this request: sm90 takes head dims up to 256");
  c.options.decode = {};
  for (auto* tensor : {&c.operands.q, &c.operands.k, &c.operands.v, &*c.outputs.out}) tensor->dtype = DType::F32;
  CHECK(errorOf(Mod::identity(), c) == "head dims above 256 are not supported in f32");
  c.options.family = Family::Naive;
  CHECK(settled(Mod::identity(), c).kernel.options().family == Family::Naive);
  c = of(576, 512, true);
  c.options.family = Family::Naive;
  c.options.decode = false;
  CHECK(settled(Mod::identity(), c).kernel.options().family == Family::Naive);
  c.options.decode = {};
  CHECK(settled(Mod::identity(), c).kernel.options().family == Family::Naive);
  for (auto [headDim, headDimV] : {std::pair{584, 512}, {576, 520}, {300, 512}})
    CHECK(errorOf(Mod::identity(), of(headDim, headDimV, false)).find("is not supported") != std::string::npos);
  c = of(576, 511, true);
  CHECK(refusalOf(Compiler().settle(Mod::identity(), c.operands, c.outputs, c.options)).remedy ==
        "pad it with zeros to 512, and keep the scale 1 / sqrt(576)");

  c = of(576, 512, true);
  BackwardOperands training;
  static_cast<Operands&>(training) = c.operands;
  training.out = training.dOut = *c.outputs.out;
  training.lse = TensorView::contiguous(nullptr, DType::F32, {4, 128, 2});
  const BackwardOutputs gradients{.dQ = c.operands.q, .dK = c.operands.k, .dV = c.operands.v};
  CHECK(refusalOf(Compiler().settleTraining(Mod::identity(), training, c.outputs, gradients, c.options)).message ==
        "there is no backward pass for head dims above 256, and q and v have 576 and 512");
}
