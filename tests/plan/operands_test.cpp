#include "helpers/take.h"
#include "ir/ir.h"
#include "launch/launch_operands.h"

#include <catch2/catch.hpp>

#include <vector>

using namespace attnc;

namespace {

// Never read: checks only look at shapes and addresses.
void* const kSomewhere = reinterpret_cast<void*>(0x1000);

KernelOptions options(int headDim = 64) {
  KernelOptions o;
  o.dtype = DType::BF16;
  o.headDim = headDim;
  o.headDimV = headDim;
  return o;
}

TensorView tensor(int64_t batch, int64_t heads, int64_t length, int64_t dim, DType dtype = DType::BF16) {
  return TensorView::contiguous(kSomewhere, dtype, {batch, heads, length, dim});
}

/// What a launch is given, inputs and outputs.
struct Arguments : Operands, Outputs {};

Arguments arguments() {
  return {{.q = tensor(2, 8, 100, 64), .k = tensor(2, 2, 300, 64), .v = tensor(2, 2, 300, 64)},
          {.out = tensor(2, 8, 100, 64)}};
}

/// Returns the parameters of a valid launch.
ForwardParams paramsOf(const Arguments& args, const KernelOptions& o = options()) {
  auto checked = take(plan::checkForward(args, args, o));
  return plan::forwardParams(checked);
}

std::string errorOf(const Arguments& args, const KernelOptions& o = options()) {
  return environmentErrorOf(plan::checkForward(args, args, o));
}

} // namespace

TEST_CASE("a launch takes extents, strides and the default scale from its operands", "[api]") {
  const ForwardParams p = paramsOf(arguments());
  CHECK(p.batch == 2);
  CHECK(p.group == 4);
  CHECK(p.q_len == 100);
  CHECK(p.kv_len == 300);
  CHECK(p.k_stride.head == 300 * 64);
  CHECK(p.out_stride.batch == 8 * 100 * 64);
  CHECK(p.scale == 0.125f);
  CHECK(p.vectors == 1);
}

TEST_CASE("a KV batch of 1 is broadcast by a stride of 0", "[api]") {
  Arguments args = arguments();
  args.k = tensor(1, 2, 300, 64);
  args.v = tensor(1, 2, 300, 64);
  const ForwardParams p = paramsOf(args);
  CHECK(p.k_stride.batch == 0);
  CHECK(p.v_stride.batch == 0);
}

TEST_CASE("rows that are not 16-byte aligned take the element-wise copies", "[api]") {
  Arguments args = arguments();
  SECTION("by a row stride") { args.k.stride[2] = 65; }
  SECTION("by the base address") { args.v.data = reinterpret_cast<void*>(0x1002); }
  SECTION("by the output") {
    args.out->stride[1] += 3;
    args.out->stride[0] += 8 * 3;
  }
  const ForwardParams p = paramsOf(args);
  CHECK(p.vectors == 0);
}

TEST_CASE("operands that do not fit are refused by name", "[api]") {
  Arguments args = arguments();
  SECTION("rank") {
    args.q.rank = 3;
    CHECK(errorOf(args) == "q has rank 3, expected [batch, heads, length, head_dim]");
  }
  SECTION("dtype") {
    args.v.dtype = DType::F16;
    CHECK(errorOf(args) == "v is f16, expected bf16, which the kernel was compiled for");
  }
  SECTION("head dim of k") {
    args.k = tensor(2, 2, 300, 72);
    CHECK(errorOf(args) == "k has shape [2, 2, 300, 72], expected [2, 2, 300, 64]");
  }
  SECTION("heads") {
    args.k = tensor(2, 3, 300, 64);
    CHECK(errorOf(args) == "k has 3 heads, expected a divisor of q's 8");
  }
  SECTION("batch") {
    args.k = tensor(3, 2, 300, 64);
    CHECK(errorOf(args) == "k has batch 3, expected 2 as q, or 1");
  }
  SECTION("v unlike k") {
    args.v = tensor(2, 2, 299, 64);
    CHECK(errorOf(args) == "v has shape [2, 2, 299, 64], expected [2, 2, 300, 64]");
  }
  SECTION("out unlike q") {
    args.out = tensor(2, 8, 101, 64);
    CHECK(errorOf(args) == "out has shape [2, 8, 101, 64], expected [2, 8, 100, 64]");
  }
  SECTION("last stride") {
    args.q.stride[3] = 2;
    CHECK(errorOf(args) == "q has last stride 2, expected 1");
  }
  SECTION("null") {
    args.out->data = nullptr;
    CHECK(errorOf(args) == "out is null, expected device memory");
  }
  SECTION("no output") {
    args.out.reset();
    CHECK(errorOf(args) == "out is not given, expected Outputs::out, which a forward kernel writes");
  }
  SECTION("null lse") {
    args.lse = TensorView::contiguous(nullptr, DType::F32, {2, 8, 100});
    CHECK(errorOf(args) == "lse is null, expected device memory, or no lse");
  }
  SECTION("length") {
    args.k = args.v = tensor(2, 2, ir::kMaxExtent + 1, 64);
    CHECK(errorOf(args) == "k has length 16777217, expected at most 16777216");
  }
  SECTION("lse") {
    args.lse = TensorView::contiguous(kSomewhere, DType::F32, {2, 8, 99});
    CHECK(errorOf(args) == "lse is f32 [2, 8, 99], expected f32 [2, 8, 100]");
  }
  SECTION("lse with gaps") {
    args.lse = TensorView::contiguous(kSomewhere, DType::F32, {2, 8, 100});
    args.lse->stride[1] = 128;
    CHECK(errorOf(args) == "lse has gaps between its elements, expected a dense row-major tensor");
  }
  SECTION("row max without the option") {
    args.rowMax = TensorView::contiguous(kSomewhere, DType::F32, {2, 8, 100});
    CHECK(errorOf(args) == "row_max is asked for, but the kernel was compiled without");
  }
}

TEST_CASE("a block mask must be given exactly where the kernel walks one, and fit", "[api]") {
  std::vector<int32_t> storage(1 << 12);
  KernelOptions sparse = options();
  sparse.blockSparse = true;
  BlockMaskView mask = BlockMask::viewInto(storage.data(), {.batch = 1, .heads = 8, .qLen = 100, .kvLen = 300});
  Arguments args = arguments();
  CHECK(errorOf(args, sparse) == "the kernel was compiled for a block mask, and none is given");
  args.blockMask = &mask;
  CHECK(errorOf(args) == "a block mask is given to a kernel that was compiled without");
  const ForwardParams p = paramsOf(args, sparse);
  CHECK(p.lists.batch_stride == 0);
  CHECK(p.lists.head_stride == 1);
  CHECK(p.lists.index_stride == 3);

  SECTION("lengths") {
    mask.shape.kvLen = 301;
    CHECK(errorOf(args, sparse) == "block mask: its lengths are 100 x 301, those of the problem 100 x 300");
  }
  SECTION("heads") {
    mask.shape.heads = 4;
    CHECK(errorOf(args, sparse) == "block mask: heads is 4, the problem has 8; it must be that or 1");
  }
  SECTION("block size") {
    mask.shape.qBlock = 64;
    CHECK(errorOf(args, sparse) ==
          "block mask has blocks of 64 x 128, expected 128 x 128, which the kernel was compiled for");
  }
  SECTION("lists") {
    mask.partialCount = nullptr;
    CHECK(errorOf(args, sparse) == "block mask: partialCount and partialIndex must not be null");
  }
  SECTION("what the lists are of") {
    sparse.listsOfWholeMod = true;
    CHECK(errorOf(args, sparse) ==
          "the kernel was compiled for a block mask of the whole mod, this one is of mask_mod");
    mask.ofWholeMod = true;
    CHECK(plan::checkForward(args, {.out = args.out}, sparse));
    sparse.listsOfWholeMod = false;
    CHECK(plan::checkForward(args, {.out = args.out}, sparse));
  }
}

TEST_CASE("a backward launch takes a block mask with lists by row and by column", "[api]") {
  constexpr BlockMask::Lists kBoth = BlockMask::Lists::ByRowAndColumn;
  const BlockMaskShape shape{.batch = 2, .heads = 8, .qLen = 100, .kvLen = 300, .qBlock = 128, .kvBlock = 64};
  std::vector<int32_t> storage(BlockMask::storageBytes(shape, kBoth) / 4);
  BlockMaskView mask = BlockMask::viewInto(storage.data(), shape, kBoth);
  KernelOptions sparse = options();
  sparse.blockSparse = true;
  sparse.maskKvBlock = 64;
  const Arguments forward = arguments();
  BackwardOperands args{forward};
  args.out = args.dOut = *forward.out;
  args.lse = TensorView::contiguous(kSomewhere, DType::F32, {2, 8, 100});
  const BackwardOutputs outputs{.dQ = forward.q, .dK = forward.k, .dV = forward.v};
  const auto errorOf = [&](const KernelOptions& o) {
    return environmentErrorOf(plan::checkBackward(args, outputs, o));
  };
  CHECK(plan::checkBackward(args, outputs, options()));
  CHECK(errorOf(sparse) == "the kernel was compiled for a block mask, and none is given");
  args.blockMask = &mask;
  CHECK(errorOf(options()) == "a block mask is given to a kernel that was compiled without");
  auto checked = take(plan::checkBackward(args, outputs, sparse));
  const BackwardParams p = plan::backwardParams(checked);
  CHECK(p.forward.lists.partial_index == mask.partialIndex);
  CHECK(p.forward.lists.index_stride == 5);
  CHECK(p.columns.partial_count == mask.columns.partialCount);
  CHECK(p.columns.partial_index == mask.columns.partialIndex);
  CHECK(p.columns.full_count == mask.columns.fullCount);
  CHECK(p.columns.full_index == mask.columns.fullIndex);
  CHECK(p.columns.index_stride == 1);
  CHECK(p.columns.head_stride == 5);
  CHECK(p.columns.batch_stride == 8 * 5);
  CHECK(p.columns.q_block == 128);
  CHECK(p.columns.kv_block == 64);

  SECTION("one for all heads and batches") {
    mask.shape.batch = mask.shape.heads = 1;
    const BackwardParams shared = plan::backwardParams(*plan::checkBackward(args, outputs, sparse));
    CHECK(shared.columns.head_stride == 0);
    CHECK(shared.columns.batch_stride == 0);
  }
  SECTION("no lists by column") {
    mask.columns = {};
    CHECK(errorOf(sparse) == "block mask: it has no lists by column, which the kernel was compiled for");
  }
  SECTION("no indices by column") {
    mask.columns.fullIndex = nullptr;
    CHECK(errorOf(sparse) == "block mask: columns.fullCount and columns.fullIndex must both be given or both be null");
  }
  SECTION("only partial blocks") {
    mask.fullCount = mask.fullIndex = mask.columns.fullCount = mask.columns.fullIndex = nullptr;
    CHECK(plan::checkBackward(args, outputs, sparse));
  }
}

TEST_CASE("a problem without batch entries takes a block mask of none", "[api]") {
  Arguments args = arguments();
  for (TensorView* view : {&args.q, &args.k, &args.v, &*args.out}) view->shape[0] = 0;
  const BlockMaskView mask{.shape = {.batch = 0, .heads = 8, .qLen = 100, .kvLen = 300}, .indexStride = 3};
  args.blockMask = &mask;
  KernelOptions walks = options();
  walks.blockSparse = true;
  CHECK(plan::checkForward(args, args, walks));
  CHECK(plan::checkBlockMask(ir::Module(), mask, {0, 8, 2, 100, 300}, {}));
  CHECK_FALSE(plan::checkBlockMask(ir::Module(), mask, {2, 8, 2, 100, 300}, {}));
}

TEST_CASE("lengths and offsets of sequences are held against the kernel and the batch", "[api]") {
  Arguments args = arguments();
  KernelOptions o = options();
  args.kvLengths = args.qOffsets = TensorView::contiguous(kSomewhere, DType::I32, {2});
  o.features = {Feature::Lengths};
  o.offsets = QueryOffsets::Tensor;
  SECTION("as it should be") {
    auto checked = take(plan::checkForward(args, args, o));
    CHECK(checked.kvLengths->data == kSomewhere);
    CHECK(checked.qOffsets->shape[0] == 2);
  }
  SECTION("a stride of 0") {
    args.kvLengths->stride[0] = 0;
    CHECK(plan::checkForward(args, args, o));
  }
  SECTION("dtype") {
    args.kvLengths->dtype = DType::I64;
    CHECK(errorOf(args, o) == "kv_lengths is i64 [2], expected i32 [2]");
  }
  SECTION("shape") {
    args.qOffsets = TensorView::contiguous(kSomewhere, DType::I32, {3});
    CHECK(errorOf(args, o) == "q_offsets is i32 [3], expected i32 [2]");
  }
  SECTION("rank") {
    args.qOffsets = TensorView::contiguous(kSomewhere, DType::I32, {2, 1});
    CHECK(errorOf(args, o) == "q_offsets is i32 [2, 1], expected i32 [2]");
  }
  SECTION("null") {
    args.kvLengths->data = nullptr;
    CHECK(errorOf(args, o) == "kv_lengths is null, expected device memory");
  }
  SECTION("missing") {
    args.kvLengths.reset();
    CHECK(errorOf(args, o) == "the kernel was compiled for kv_lengths, which is not given");
  }
  SECTION("not asked for") {
    o.offsets = QueryOffsets::FromLengths;
    CHECK(errorOf(args, o) == "q_offsets is given to a kernel that was compiled without");
  }
}

TEST_CASE("a kernel for v in k's columns takes no other v", "[plan]") {
  alignas(16) char memory[16], other[16];
  const KernelOptions options{.kind = KernelKind::Decode, .headDim = 576, .headDimV = 512, .features = {Feature::VInK}};
  const auto errorOf = [&](void* v, int64_t rowStride) {
    Operands operands{.q = TensorView::contiguous(memory, DType::BF16, {1, 8, 1, 576}),
                      .k = TensorView::contiguous(memory, DType::BF16, {1, 1, 64, 576})};
    operands.v = operands.k;
    operands.v.shape[3] = 512, operands.v.data = v, operands.v.stride[2] = rowStride;
    auto checked =
        plan::checkForward(operands, {.out = TensorView::contiguous(other, DType::BF16, {1, 8, 1, 512})}, options);
    return checked ? "" : checked.error().message;
  };
  CHECK(errorOf(memory, 576) == "");
  const std::string wrong = "v is not a view of k's first columns, expected k's address and strides (Feature::VInK)";
  CHECK(errorOf(other, 576) == wrong);
  CHECK(errorOf(memory, 512) == wrong);
}
