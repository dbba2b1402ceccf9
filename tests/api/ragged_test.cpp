// Ragged batches: what prepare() settles for them, what a launch tells kernels, and what is refused.
#include "attnc/attnc.h"
#include "helpers/plans.h"
#include "launch/launch_operands.h"

#include <catch2/catch.hpp>

using namespace attnc;

namespace {

void* const kSomewhere = reinterpret_cast<void*>(0x1000); // never read

/// [total, H, D] in memory.
TensorView packed(int64_t heads, int64_t rows, int64_t dim) {
  TensorView view{.data = kSomewhere, .dtype = DType::BF16, .rank = 4, .shape = {1, heads, rows, dim}};
  view.stride = {rows * heads * dim, dim, heads * dim, 1};
  return view;
}

TensorView cumulative(int64_t count, void* data = kSomewhere) {
  return TensorView::contiguous(data, DType::I32, {count});
}

struct Case {
  Operands operands{
      .q = packed(8, 1000, 64), .k = packed(2, 1000, 64), .v = packed(2, 1000, 64), .cuSeqlensQ = cumulative(5)};
  Outputs outputs{.out = packed(8, 1000, 64), .lse = TensorView::contiguous(kSomewhere, DType::F32, {1, 8, 1000})};
  PrepareOptions options{.arch = "sm_90a"};
};

Mod causal() { return take(Mod::parse("def mask_mod(b, h, q_idx, kv_idx):\n    return q_idx >= kv_idx\n")); }

/// k and v in 256 pages of 16 rows, 64 of each sequence.
Case inPages() {
  Case c;
  c.operands.pageTable = TensorView::contiguous(kSomewhere, DType::I32, {4, 64});
  c.operands.k = c.operands.v = TensorView::contiguous(kSomewhere, DType::BF16, {256, 2, 16, 64});
  c.operands.kvLengths = TensorView::contiguous(kSomewhere, DType::I32, {4});
  return c;
}

Preparation settled(const Case& c, const Mod& mod = causal()) {
  return take(Compiler().settle(mod, c.operands, c.outputs, c.options));
}

std::string errorOf(const Case& c) {
  return environmentErrorOf(Compiler().settle(causal(), c.operands, c.outputs, c.options));
}

} // namespace

TEST_CASE("a ragged batch is a problem of as many sequences, as long as the longest may be", "[api][ragged]") {
  Case c;
  CHECK(settled(c).problem == ProblemShape{4, 8, 2, 1000, 1000});
  CHECK(settled(c).kernel.options().features.has(Feature::Ragged));
  CHECK(settled(c).kernel.options().offsets == QueryOffsets::None);
  c.operands.maxQLen = 300;
  c.operands.maxKvLen = 400;
  CHECK(settled(c).problem == ProblemShape{4, 8, 2, 300, 400});
  c.operands.cuSeqlensKv = cumulative(5);
  CHECK(settled(c).kernel.options().offsets == QueryOffsets::FromLengths);
  c.options.offsets = QueryOffsets::None;
  CHECK(settled(c).kernel.options().offsets == QueryOffsets::None);
}

TEST_CASE("keys of a ragged batch may lie in pages, to which new rows are appended", "[api][ragged]") {
  Case c = inPages();
  CHECK(settled(c).problem == ProblemShape{4, 8, 2, 1000, 1024});
  CHECK(settled(c).kernel.options().offsets == QueryOffsets::FromLengths);
  CHECK(settled(c).kernel.options().kind == KernelKind::Forward);
  c.operands.newK = c.operands.newV = packed(2, 1000, 64);
  c.operands.maxQLen = 3, c.operands.maxKvLen = 600;
  CHECK(settled(c).problem == ProblemShape{4, 8, 2, 3, 600});
  CHECK(settled(c).kernel.options().kind == KernelKind::Decode);
  KernelOptions options = settled(c).kernel.options();
  for (KernelKind kind : {KernelKind::Forward, KernelKind::Decode}) {
    options.kind = kind, options.family = Family::Auto;
    const auto stages = take(test::sourcesOf(Compiler(), causal(), options));
    CHECK(stages.front().templateName == "append.cu"); // a decode kernel's tile has not all new rows of a sequence
    CHECK(stages.size() == 2);
  }
  auto checked = take(plan::checkForward(c.operands, c.outputs, settled(c).kernel.options()));
  const ForwardParams p = plan::forwardParams(checked);
  CHECK(p.k_stride.batch == 2 * 16 * 64);
  CHECK(p.kv_len == 600);
  const CacheParams cache = plan::cacheParams(checked);
  CHECK(cache.table_stride == 64);
  CHECK(cache.new_k_stride.batch == 0);
  CHECK(cache.new_k_stride.row == 2 * 64);
}

TEST_CASE("decode kernels take k and v of e4m3 of a ragged batch, and forward kernels need q of it", "[api][ragged]") {
  for (bool isPaged : {true, false}) {
    Case c = isPaged ? inPages() : Case();
    c.operands.k.dtype = c.operands.v.dtype = DType::E4M3;
    CHECK(settled(c).kernel.options().kind == KernelKind::Decode); // also for many queries, which no other kernel takes
    c.operands.maxQLen = 3, c.operands.maxKvLen = 600;
    const KernelOptions options = settled(c).kernel.options();
    CHECK(options.kind == KernelKind::Decode);
    CHECK(options.features.has(Feature::Ragged));
    CHECK(options.features.has(Feature::Fp8Kv));
    const auto ofScales = [&](std::vector<int64_t> shape) {
      TensorView scales = TensorView::contiguous(kSomewhere, DType::F32, {1});
      scales.rank = int(shape.size());
      std::copy(shape.begin(), shape.end(), scales.shape.begin());
      for (int64_t axis = scales.rank - 1, step = 1; axis >= 0; step *= shape[size_t(axis--)])
        scales.stride[size_t(axis)] = step;
      c.operands.kScales = scales;
      return c;
    };
    settled(ofScales({2})), settled(ofScales({4, 2}));
    if (isPaged) {
      settled(ofScales({256, 2, 1})), settled(ofScales({256, 2, 16}));
      CHECK(errorOf(ofScales({4, 2, 600})) ==
            "k_scales is f32 [4, 2, 600], expected f32 [2] or [4, 2] or [256, 2, 1] or [256, 2, 16]");
    } else {
      settled(ofScales({1, 2, 1000}));
      CHECK(errorOf(ofScales({4, 2, 600})) ==
            "k_scales is f32 [4, 2, 600], expected f32 [2] or [4, 2] or [1, 2, 1000]");
      CHECK(errorOf(ofScales({4, 2, 8})) == "k_scales is f32 [4, 2, 8], expected f32 [2] or [4, 2] or [1, 2, 1000]");
    }
    c.operands.kScales.reset();
    c.options.decode = false;
    CHECK(errorOf(c) == "k and v are e4m3, and q is bf16: only decode kernels take these");
  }
}

TEST_CASE("a block mask is built for the longest sequences of a ragged batch, if it gains", "[api][ragged]") {
  auto mod = take(Mod::parse("(q_idx + kv_idx) % 3 == 0")),
       bySequence = take(Mod::parse("(q_idx + kv_idx + b) % 3 == 0"));
  Case c;
  CHECK_FALSE(settled(c, mod).blockMask); // it would be of as many rows as all sequences have
  c.operands.maxQLen = c.operands.maxKvLen = 300;
  const Preparation prepared = settled(c, mod);
  REQUIRE(prepared.blockMask);
  CHECK(prepared.blockMask->batch == 1);
  CHECK(prepared.blockMask->qLen == 300);
  CHECK(prepared.blockMask->kvLen == 300);
  CHECK(prepared.kernel.options().listsOfWholeMod);
  CHECK(prepared.kernel.kvLoop() == KvLoop::BlockMask);
  CHECK(prepared.kernels().size() == 2);
  CHECK_FALSE(settled(c).blockMask); // causal
  CHECK(settled(c, bySequence).blockMask->batch == 4);
  SECTION("short sequences next to a long one") {
    c.operands.maxQLen = c.operands.maxKvLen = 501;
    CHECK(settled(c, mod).blockMask);
    CHECK_FALSE(settled(c, bySequence).blockMask);
  }
  SECTION("offsets, which a launch may change") {
    c.operands.cuSeqlensKv = cumulative(5);
    CHECK_FALSE(settled(c, mod).blockMask); // there is little to skip
    c.operands.maxKvLen = 600;
    const Preparation anew = settled(c, mod);
    CHECK(anew.kernel.kvLoop() == KvLoop::Listed);
    CHECK(anew.blockMask->batch == 4); // lists are of each sequence
    CHECK(settled(c, bySequence).kernel.kvLoop() == KvLoop::Listed);
    c.operands.maxQLen = c.operands.maxKvLen = 0;
    CHECK(settled(c, mod).kernel.kvLoop() == KvLoop::Listed); // a launch reads no more than the sequences have
    c.operands.maxQLen = c.operands.maxKvLen = 300;
    c.options.offsets = QueryOffsets::None;
    CHECK(settled(c, mod).kernel.kvLoop() == KvLoop::BlockMask);
  }
  SECTION("not asked for") {
    c.options.buildBlockMask = false;
    CHECK_FALSE(settled(c, mod).blockMask);
  }
  SECTION("training") {
    BackwardOperands operands;
    static_cast<Operands&>(operands) = c.operands;
    operands.out = operands.dOut = *c.outputs.out, operands.lse = *c.outputs.lse;
    const BackwardOutputs gradients{.dQ = c.operands.q, .dK = c.operands.k, .dV = c.operands.v};
    const auto trained = [&](const Mod& of) {
      return take(Compiler().settleTraining(of, operands, c.outputs, gradients, c.options));
    };
    const Preparation both = trained(mod);
    REQUIRE(both.blockMask);
    CHECK(both.blockMask->qLen == 300);
    CHECK(both.blockMaskKernel->options().columnLists);
    CHECK(both.backward->options().blockSparse);
    CHECK(trained(bySequence).blockMask->batch == 4);
    operands.cuSeqlensKv = cumulative(5); // each launch would list by row only
    CHECK_FALSE(trained(mod).blockMask);
    operands.cuSeqlensKv.reset();
    static const BlockMaskView lists{.shape = {1, 1, 300, 300, 128, 128}};
    operands.blockMask = &lists;
    const Preparation ofCaller = trained(mod);
    CHECK_FALSE(ofCaller.blockMask);
    CHECK(ofCaller.backward->options().blockSparse);
  }
}

TEST_CASE("kernels are told the rows of all sequences, and get slots for their tiles", "[api][ragged]") {
  const Case c;
  KernelOptions options{.headDim = 64, .headDimV = 64, .features = {Feature::Ragged}};
  auto checked = take(plan::checkForward(c.operands, c.outputs, options));
  const ForwardParams p = plan::forwardParams(checked);
  CHECK(p.batch == 4);
  CHECK(p.q_len == 1000);
  CHECK(p.rows.q == 1000);
  CHECK(p.rows.kv == 1000);
  CHECK(p.q_stride.batch == 0);
  CHECK(p.q_stride.row == 8 * 64);
  CHECK(plan::qTilesOf(checked, 128) == 1000 / 128 + 4);
  CHECK(plan::kvTilesOf(checked, 64) == 1000 / 64 + 4);
}

TEST_CASE("ragged batches that do not fit their tensors are refused by name", "[api][ragged]") {
  Case c;
  std::string message;
  SECTION("no cumulative lengths") {
    c.operands.cuSeqlensQ = cumulative(0);
    message = "cu_seqlens_q is i32 [0], expected i32 [sequences + 1]";
  }
  SECTION("another dtype") {
    c.operands.cuSeqlensQ->dtype = DType::I64;
    message = "cu_seqlens_q is i64 [5], expected i32 [sequences + 1]";
  }
  SECTION("another number of sequences") {
    c.operands.cuSeqlensKv = cumulative(6);
    message = "cu_seqlens_kv is i32 [6], expected i32 [5]";
  }
  SECTION("a batch of tensors") {
    c.operands.q = TensorView::contiguous(kSomewhere, DType::BF16, {2, 8, 500, 64});
    c.outputs = {.out = c.operands.q};
    message = "q has batch 2, expected 1, as sequences of a ragged batch lie in one";
  }
  SECTION("longer than the tensor") {
    c.operands.maxKvLen = 1001;
    message = "max_kv_len is 1001, expected 0 to 1000, the rows of the tensor";
  }
  SECTION("keys of other lengths, without saying which") {
    c.operands.k = c.operands.v = packed(2, 1200, 64);
    message = "cu_seqlens_kv is not given, expected it where q has 1000 rows and k 1200";
  }
  SECTION("lengths of keys without those of queries") {
    c.operands.cuSeqlensQ.reset();
    c.operands.cuSeqlensKv = cumulative(5);
    message = "the kernel was compiled for cu_seqlens_q, which is not given";
  }
  SECTION("lse by sequence") {
    c.outputs.lse = TensorView::contiguous(kSomewhere, DType::F32, {4, 8, 1000});
    message = "lse is f32 [4, 8, 1000], expected f32 [1, 8, 1000]";
  }
  SECTION("lengths of another batch") {
    c.operands.kvLengths = TensorView::contiguous(kSomewhere, DType::I32, {1});
    message = "kv_lengths is i32 [1], expected i32 [4]";
  }
  SECTION("a block mask of all rows and not of the longest sequences") {
    static const BlockMaskView mask{.shape = {1, 1, 1000, 1000, 128, 128}};
    c.operands.blockMask = &mask;
    c.operands.maxQLen = 300;
    message = "block mask: its lengths are 1000 x 1000, those of the problem 300 x 1000";
  }
  SECTION("a block mask of boxes") {
    static const BoxLattice lattice{.extents = {1, 25, 40}, .box = {1, 8, 16}};
    static const BlockMaskView mask{.shape = {1, 1, 1000, 1000, 128, 128, BlockMaskShape::Boxes{lattice, lattice}}};
    c.operands.blockMask = &mask;
    message = "a ragged batch takes no lists of boxes";
  }
  SECTION("pages of another batch") {
    c = inPages();
    c.operands.pageTable = TensorView::contiguous(kSomewhere, DType::I32, {3, 64});
    message = "page_table is i32 [3, 64], expected i32 [4, pages of a sequence]";
  }
  SECTION("pages, and packed rows of k and v") {
    c = inPages();
    c.operands.cuSeqlensKv = cumulative(5);
    message = "cu_seqlens_kv is given with page_table, expected only kv_lengths, which count the rows in pages";
  }
  SECTION("pages without lengths") {
    c = inPages();
    c.operands.kvLengths.reset();
    message = "pages need KV lengths of sequences, and none are given";
  }
  SECTION("longer than the pages of a sequence") {
    c = inPages();
    c.operands.maxKvLen = 1025;
    message = "max_kv_len is 1025, expected 0 to 1024, the rows that page_table has room for";
  }
  SECTION("new rows of one batch entry each") {
    c = inPages();
    c.operands.newK = c.operands.newV = TensorView::contiguous(kSomewhere, DType::BF16, {4, 2, 250, 64});
    message = "new_k has shape [4, 2, 250, 64], expected [1, 2, 1000, 64]";
  }
  SECTION("new rows without pages") {
    c.operands.newK = c.operands.newV = packed(2, 1000, 64);
    c.operands.kvLengths = TensorView::contiguous(kSomewhere, DType::I32, {4});
    message = "a ragged batch appends rows only to pages";
  }
  CHECK(errorOf(c) == message);
}

TEST_CASE("a launch gives cumulative lengths to kernels that were compiled for them, and to no other",
          "[api][ragged]") {
  Case c;
  KernelOptions options{.headDim = 64, .headDimV = 64};
  auto checked = plan::checkForward(c.operands, c.outputs, options);
  REQUIRE_FALSE(checked);
  CHECK(checked.error().message == "cu_seqlens_q is given to a kernel that was compiled without");
  options.features = {Feature::Ragged};
  c.operands.cuSeqlensQ.reset();
  checked = plan::checkForward(c.operands, c.outputs, options);
  REQUIRE_FALSE(checked);
  CHECK(checked.error().message == "the kernel was compiled for cu_seqlens_q, which is not given");
  c.operands.cuSeqlensQ = cumulative(5, nullptr);
  checked = plan::checkForward(c.operands, c.outputs, options);
  REQUIRE_FALSE(checked);
  CHECK(checked.error().message == "cu_seqlens_q is null, expected device memory");
}
