#include "api/forward_params.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace attnc {
namespace {

std::string shapeText(const TensorView& tensor) {
  std::string text = "[";
  for (int axis = 0; axis < tensor.rank; ++axis)
    text += fmt::format("{}{}", axis ? ", " : "", tensor.shape[axis]);
  return text + "]";
}

Error wrong(std::string_view name, const std::string& observed, const std::string& expected) {
  return Error::environment(fmt::format("{} {}, expected {}", name, observed, expected));
}

/// q, k, v or out: rank, dtype, last stride.
Status checkOperand(std::string_view name, const TensorView& tensor, DType dtype) {
  if (tensor.rank != 4) return wrong(name, fmt::format("has rank {}", tensor.rank), "[batch, heads, length, head_dim]");
  if (tensor.dtype != dtype)
    return wrong(name, fmt::format("is {}", dtypeName(tensor.dtype)),
                 fmt::format("{}, which the kernel was compiled for", dtypeName(dtype)));
  for (int axis = 0; axis < 4; ++axis)
    if (tensor.shape[axis] < 0 || tensor.shape[axis] > std::numeric_limits<int32_t>::max())
      return wrong(name, "has shape " + shapeText(tensor), "extents from 0 to 2^31 - 1");
  if (tensor.shape[3] > 1 && tensor.stride[3] != 1)
    return wrong(name, fmt::format("has last stride {}", tensor.stride[3]), "1");
  return {};
}

Status checkShape(std::string_view name, const TensorView& tensor, std::array<int64_t, 4> shape) {
  for (int axis = 0; axis < 4; ++axis)
    if (tensor.shape[axis] != shape[axis])
      return wrong(name, "has shape " + shapeText(tensor),
                   fmt::format("[{}, {}, {}, {}]", shape[0], shape[1], shape[2], shape[3]));
  return {};
}

/// The operands of a launch, by name.
std::array<std::pair<std::string_view, const TensorView*>, 4> operandsOf(const ForwardArgs& args) {
  return {{{"q", &args.q}, {"k", &args.k}, {"v", &args.v}, {"out", &args.out}}};
}

/// lse or row_max: [batch, q_heads, q_len], f32, dense.
Status checkRowOutput(std::string_view name, const TensorView& tensor, const TensorView& q) {
  const std::array<int64_t, 3> shape{q.shape[0], q.shape[1], q.shape[2]};
  const bool fits = tensor.rank == 3 && tensor.shape[0] == shape[0] && tensor.shape[1] == shape[1] &&
                    tensor.shape[2] == shape[2] && tensor.dtype == DType::F32;
  if (!fits)
    return wrong(name, fmt::format("is {} {}", dtypeName(tensor.dtype), shapeText(tensor)),
                 fmt::format("f32 [{}, {}, {}]", shape[0], shape[1], shape[2]));
  const TensorView dense = TensorView::contiguous(nullptr, DType::F32, {shape[0], shape[1], shape[2]});
  for (int axis = 0; axis < 3; ++axis)
    if (tensor.shape[axis] > 1 && tensor.stride[axis] != dense.stride[axis])
      return wrong(name, "has gaps between its elements", "a dense row-major tensor");
  return {};
}

Status checkBlockMask(const BlockMaskView& mask, const ForwardArgs& args, const KernelOptions& options) {
  const BlockMaskShape& shape = mask.shape;
  const auto &q = args.q.shape, &k = args.k.shape;
  if (shape.qLen != q[2] || shape.kvLen != k[2])
    return wrong("block mask", fmt::format("is for {} x {}", shape.qLen, shape.kvLen),
                 fmt::format("{} x {}, the lengths of q and k", q[2], k[2]));
  if ((shape.batch != 1 && shape.batch != q[0]) || (shape.heads != 1 && shape.heads != q[1]))
    return wrong("block mask", fmt::format("is for batch {}, heads {}", shape.batch, shape.heads),
                 fmt::format("{} and {}, or 1 to broadcast", q[0], q[1]));
  if (shape.qBlock != options.maskQBlock || shape.kvBlock != options.maskKvBlock)
    return wrong("block mask", fmt::format("has blocks of {} x {}", shape.qBlock, shape.kvBlock),
                 fmt::format("{} x {}, which the kernel was compiled for", options.maskQBlock, options.maskKvBlock));
  const bool anyRow = shape.batch * shape.heads * shape.qBlocks() > 0;
  if (anyRow && (!mask.partialCount || (!mask.partialIndex && mask.indexStride)))
    return wrong("block mask", "lacks its partial lists", "partialCount and partialIndex");
  if (!mask.fullCount != !mask.fullIndex && mask.indexStride)
    return wrong("block mask", "has one of fullCount and fullIndex", "both or none");
  return {};
}

bool rowsAreAligned(const TensorView& tensor, const Strides& s) {
  const int64_t bytes = dtypeBytes(tensor.dtype);
  return reinterpret_cast<uintptr_t>(tensor.data) % 16 == 0 && s.batch * bytes % 16 == 0 && s.head * bytes % 16 == 0 &&
         s.row * bytes % 16 == 0;
}

BlockLists blockLists(const BlockMaskView& mask) {
  const int64_t rows = mask.shape.qBlocks();
  BlockLists lists{};
  lists.partial_count = mask.partialCount;
  lists.partial_index = mask.partialIndex;
  lists.full_count = mask.fullCount;
  lists.full_index = mask.fullIndex;
  lists.head_stride = mask.shape.heads > 1 ? rows : 0;
  lists.batch_stride = mask.shape.batch > 1 ? rows * mask.shape.heads : 0;
  lists.index_stride = mask.indexStride;
  lists.q_block = mask.shape.qBlock;
  lists.kv_block = mask.shape.kvBlock;
  return lists;
}

} // namespace

Status checkOperands(const ForwardArgs& args, const KernelOptions& options) {
  for (auto [name, tensor] : operandsOf(args))
    if (Status status = checkOperand(name, *tensor, options.dtype); !status) return status;
  const auto &q = args.q.shape, &k = args.k.shape;
  if (Status status = checkShape("q", args.q, {q[0], q[1], q[2], options.headDim}); !status) return status;
  if (k[0] != q[0] && k[0] != 1)
    return wrong("k", fmt::format("has batch {}", k[0]), fmt::format("{} as q, or 1", q[0]));
  if (q[1] && (k[1] == 0 || q[1] % k[1]))
    return wrong("k", fmt::format("has {} heads", k[1]), fmt::format("a divisor of q's {}", q[1]));
  if (Status status = checkShape("k", args.k, {k[0], k[1], k[2], options.headDim}); !status) return status;
  if (Status status = checkShape("v", args.v, {k[0], k[1], k[2], options.headDimV}); !status) return status;
  if (Status status = checkShape("out", args.out, {q[0], q[1], q[2], options.headDimV}); !status) return status;
  for (auto [name, length] : {std::pair{"q", q[2]}, std::pair{"k", k[2]}})
    if (length > kMaxLength)
      return wrong(name, fmt::format("has length {}", length), fmt::format("at most {}", kMaxLength));
  return {};
}

Strides stridesOf(const TensorView& tensor) {
  return {tensor.shape[0] > 1 ? tensor.stride[0] : 0, tensor.shape[1] > 1 ? tensor.stride[1] : 0,
          tensor.shape[2] > 1 ? tensor.stride[2] : 0};
}

ProblemShape problemShape(const ForwardArgs& args) {
  return {args.q.shape[0], args.q.shape[1], args.k.shape[1], args.q.shape[2], args.k.shape[2]};
}

Expected<ForwardParams> makeForwardParams(const ForwardArgs& args, const KernelOptions& options) {
  if (Status status = checkOperands(args, options); !status) return status.error();
  for (auto [name, tensor] : operandsOf(args))
    if (!tensor->data && tensor->elements()) return wrong(name, "is null", "device memory");
  if (args.lse)
    if (Status status = checkRowOutput("lse", *args.lse, args.q); !status) return status.error();
  if (args.rowMax && !options.rowMax)
    return Error::environment("row_max is asked for, but the kernel was compiled without", "set KernelOptions::rowMax");
  if (args.rowMax)
    if (Status status = checkRowOutput("row_max", *args.rowMax, args.q); !status) return status.error();
  if (options.blockSparse != (args.blockMask != nullptr))
    return Error::environment(options.blockSparse ? "the kernel was compiled for a block mask, and none is given"
                                                  : "a block mask is given to a kernel that was compiled without",
                              "KernelOptions::blockSparse says which");
  if (args.blockMask)
    if (Status status = checkBlockMask(*args.blockMask, args, options); !status) return status.error();

  ForwardParams p{};
  p.q = args.q.data;
  p.k = args.k.data;
  p.v = args.v.data;
  p.out = args.out.data;
  p.lse = args.lse ? static_cast<float*>(args.lse->data) : nullptr;
  p.row_max = args.rowMax ? static_cast<float*>(args.rowMax->data) : nullptr;
  p.q_stride = stridesOf(args.q);
  p.k_stride = stridesOf(args.k); // batch 1: stride 0, which broadcasts
  p.v_stride = stridesOf(args.v);
  p.out_stride = stridesOf(args.out);
  p.batch = int(args.q.shape[0]);
  p.q_heads = int(args.q.shape[1]);
  p.kv_heads = int(args.k.shape[1]);
  p.q_len = int(args.q.shape[2]);
  p.kv_len = int(args.k.shape[2]);
  p.group = p.kv_heads ? p.q_heads / p.kv_heads : 1;
  p.scale = args.scale.value_or(float(1 / std::sqrt(double(options.headDim))));
  p.vectors = rowsAreAligned(args.q, p.q_stride) && rowsAreAligned(args.k, p.k_stride) &&
              rowsAreAligned(args.v, p.v_stride) && rowsAreAligned(args.out, p.out_stride);
  if (args.blockMask) p.lists = blockLists(*args.blockMask);
  return p;
}

} // namespace attnc
