#include "launch/launch_operands.h"

#include "ir/bind.h"
#include "launch/kernel_options.h"
#include "launch/mask_shape.h"
#include "support/ceil_div.h"
#include "support/try.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm/ADT/STLExtras.h>

#include <cmath>
#include <limits>

namespace attnc::plan {
namespace {

std::string shapeText(const TensorView& tensor) {
  std::string text = "[";
  for (int axis = 0; axis < tensor.rank; ++axis) text += fmt::format("{}{}", axis ? ", " : "", tensor.shape[axis]);
  return text + "]";
}

Error wrong(std::string_view name, const std::string& observed, const std::string& expected) {
  return Error::environment(fmt::format("{} {}, expected {}", name, observed, expected));
}

/// Checks rank, dtype and last stride of q, k, v or out.
Status checkOperand(std::string_view name, const TensorView& tensor, DType dtype) {
  if (tensor.rank != 4) return wrong(name, fmt::format("has rank {}", tensor.rank), "[batch, heads, length, head_dim]");
  if (tensor.dtype != dtype)
    return wrong(name, fmt::format("is {}", dtypeName(tensor.dtype)),
                 fmt::format("{}, which the kernel was compiled for", dtypeName(dtype)));
  for (int axis = 0; axis < 4; ++axis)
    if (tensor.shape[axis] < 0 || tensor.shape[axis] > std::numeric_limits<int32_t>::max())
      return wrong(name, "has shape " + shapeText(tensor), "extents from 0 to 2^31 - 1");
  if (tensor.shape[3] > 1 && tensor.stride[3] != 1 && tensor.elements())
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

/// What the scales of a tensor may be.
struct ScalesOf {
  std::string_view name;
  int64_t batch, length; ///< sequences, and the most rows of one
  const TensorView& tensor;
  bool isPool;
  bool isFp8;                  ///< whether the tensor is e4m3
  bool mayBeBlocks, mayBeRows; ///< whether they may be of blocks of kRowsOfScale rows; of rows or pages
};

/// Checks scales of q, k or v and returns them as [batch or 1, heads, blocks]; scales of heads have block stride 0.
/// For rows or pages, they become [tensor's batch or 1, heads, rows, 1], or [pages, heads, page_size, 1].
Expected<TensorView> checkScales(const ScalesOf& of, const TensorView& given) {
  if (!of.isFp8)
    return wrong(of.name, "is given",
                 of.name == "q_scales" ? "none, for q is not e4m3" : "none, for k and v are not e4m3");
  TensorView scales = given;
  if (scales.rank == 1) {
    scales.rank = 2;
    scales.shape[1] = scales.shape[0], scales.stride[1] = scales.stride[0];
    scales.shape[0] = 1, scales.stride[0] = 0;
  }
  const auto &tensor = of.tensor.shape, &shape = scales.shape;
  const bool isOfHeads = scales.dtype == DType::F32 && shape[1] == tensor[1];
  const bool isOfBlocks = of.mayBeBlocks && scales.rank == 3 && shape[2] == ceilDiv(of.length, kRowsOfScale);
  if (isOfHeads && (scales.rank == 2 || isOfBlocks) && (shape[0] == 1 || shape[0] == of.batch)) {
    if (!isOfBlocks) scales.rank = 3, scales.shape[2] = 1, scales.stride[2] = 0;
    scales.shape[3] = 0; // no scales of rows
    return scales;
  }
  const bool isOfPages = of.isPool && shape[2] == 1, needsAxis = of.isPool && of.mayBeBlocks;
  if (isOfHeads && of.mayBeRows && ((scales.rank == 3 && !needsAxis) || (scales.rank == 4 && shape[3] == 1)) &&
      (shape[0] == tensor[0] || (shape[0] == 1 && !of.isPool)) && (shape[2] == tensor[2] || isOfPages)) {
    if (isOfPages) scales.shape[2] = tensor[2], scales.stride[2] = 0;
    scales.rank = 4, scales.shape[3] = scales.stride[3] = 1;
    return scales;
  }
  std::string expected = fmt::format("f32 [{}] or [{}, {}]", tensor[1], of.batch, tensor[1]);
  if (of.mayBeBlocks)
    expected += fmt::format(" or [{}, {}, {}]", of.batch, tensor[1], ceilDiv(of.length, kRowsOfScale));
  const char* const axis = needsAxis ? ", 1" : "";
  // A kernel without scales of rows is settled for pools whose scales have three axes.
  if ((of.mayBeRows || needsAxis) && of.isPool)
    expected += fmt::format(" or [{}, {}, 1{}]", tensor[0], tensor[1], axis);
  if (of.mayBeRows || needsAxis) expected += fmt::format(" or [{}, {}, {}{}]", tensor[0], tensor[1], tensor[2], axis);
  return wrong(of.name, fmt::format("is {} {}", dtypeName(given.dtype), shapeText(given)), expected);
}

/// Checks kv_lengths or q_offsets: i32 [batch].
Status checkPerSequence(std::string_view name, const TensorView& tensor, int64_t count) {
  if (tensor.rank == 1 && tensor.dtype == DType::I32 && tensor.shape[0] == count) return {};
  return wrong(name, fmt::format("is {} {}", dtypeName(tensor.dtype), shapeText(tensor)),
               fmt::format("i32 [{}]", count));
}

/// Checks a ragged batch's cumulative lengths, and that its tensors have batch 1. The pool of paged k and v does not.
Status checkRagged(LaunchOperands& all) {
  const TensorView& q = *all.cuSeqlensQ;
  const bool isPaged = all.pageTable.has_value();
  if (q.rank != 1 || q.dtype != DType::I32 || q.shape[0] < 1)
    return wrong("cu_seqlens_q", fmt::format("is {} {}", dtypeName(q.dtype), shapeText(q)), "i32 [sequences + 1]");
  if (all.cuSeqlensKv && isPaged)
    return wrong("cu_seqlens_kv", "is given with page_table", "only kv_lengths, which count the rows in pages");
  if (all.cuSeqlensKv) ATTNC_TRY(checkPerSequence("cu_seqlens_kv", *all.cuSeqlensKv, q.shape[0]));
  for (auto [name, tensor] : {std::pair("q", &all.q), {"k", &all.k}})
    if (tensor->shape[0] != 1 && !(isPaged && tensor == &all.k))
      return wrong(name, fmt::format("has batch {}", tensor->shape[0]), "1, as sequences of a ragged batch lie in one");
  const int64_t kvRows = isPaged ? all.pageTable->shape[1] * all.k.shape[2] : all.k.shape[2];
  for (auto [name, length, rows, of] :
       {std::tuple("max_q_len", all.maxQLen, all.q.shape[2], "of the tensor"),
        {"max_kv_len", all.maxKvLen, kvRows, isPaged ? "that page_table has room for" : "of the tensor"}})
    if (length < 0 || length > rows)
      return wrong(name, fmt::format("is {}", length), fmt::format("0 to {}, the rows {}", rows, of));
  if (isPaged) return {};
  if (!all.cuSeqlensKv && all.q.shape[2] != all.k.shape[2])
    return wrong("cu_seqlens_kv", "is not given",
                 fmt::format("it where q has {} rows and k {}", all.q.shape[2], all.k.shape[2]));
  all.cuSeqlensKv = all.cuSeqlensKv.value_or(q);
  return {};
}

/// Checks page_table: i32 [batch, any]. Its pool must have the page size that the kernel was compiled for.
Status checkPages(const TensorView& table, const TensorView& pool, int64_t batch, const KernelOptions& options) {
  const bool isTable = table.rank == 2 && table.dtype == DType::I32 && table.shape[0] == batch;
  if (!isTable || table.shape[1] < 0 || table.shape[1] > std::numeric_limits<int32_t>::max())
    return wrong("page_table", fmt::format("is {} {}", dtypeName(table.dtype), shapeText(table)),
                 fmt::format("i32 [{}, pages of a sequence]", batch));
  if (table.shape[1] > 1 && table.stride[1] != 1 && table.elements())
    return wrong("page_table", fmt::format("has last stride {}", table.stride[1]), "1");
  if (llvm::find(kPageSizes, pool.shape[2]) == kPageSizes.end())
    return wrong("k", fmt::format("has pages of {} rows", pool.shape[2]),
                 fmt::format("one of {}", fmt::join(kPageSizes, ", ")));
  if (pool.shape[2] != options.pageSize)
    return wrong("k", fmt::format("has pages of {} rows", pool.shape[2]),
                 fmt::format("{}, which the kernel was compiled for", options.pageSize));
  return {};
}

/// Checks lists that a kernel walks, but not their addresses.
Status checkWalked(const BlockMaskView& mask, const ProblemShape& problem, const KernelOptions& options) {
  ATTNC_TRY(checkServes(mask.shape, problem, options.features.has(Feature::Ragged)));
  const bool byBoxes = mask.shape.boxes.has_value();
  if (byBoxes != options.maskByBoxes)
    return wrong("block mask", byBoxes ? "has blocks that are boxes" : "has blocks of tokens in a row",
                 "those that the kernel was compiled for (KernelOptions::maskByBoxes)");
  if (byBoxes) return {}; // the stage that walks the boxes checks their shapes
  if (mask.shape.qBlock == options.maskQBlock && mask.shape.kvBlock == options.maskKvBlock) return {};
  return wrong("block mask", fmt::format("has blocks of {} x {}", mask.shape.qBlock, mask.shape.kvBlock),
               fmt::format("{} x {}, which the kernel was compiled for", options.maskQBlock, options.maskKvBlock));
}

} // namespace

Status checkRowOutput(std::string_view name, const TensorView& tensor, const TensorView& q) {
  const std::array<int64_t, 3> shape{q.shape[0], q.shape[1], q.shape[2]};
  const bool fits = tensor.rank == 3 && tensor.shape[0] == shape[0] && tensor.shape[1] == shape[1] &&
                    tensor.shape[2] == shape[2] && tensor.dtype == DType::F32;
  if (!fits)
    return wrong(name, fmt::format("is {} {}", dtypeName(tensor.dtype), shapeText(tensor)),
                 fmt::format("f32 [{}, {}, {}]", shape[0], shape[1], shape[2]));
  const TensorView dense = TensorView::contiguous(nullptr, DType::F32, {shape[0], shape[1], shape[2]});
  for (int axis = 0; axis < 3 && tensor.elements(); ++axis)
    if (tensor.shape[axis] > 1 && tensor.stride[axis] != dense.stride[axis])
      return wrong(name, "has gaps between its elements", "a dense row-major tensor");
  return {};
}

Status checkAddress(std::string_view name, const TensorView& tensor) {
  if (!tensor.elements()) return {};
  if (!tensor.data) return wrong(name, "is null", "device memory");
  const int bytes = dtypeBytes(tensor.dtype);
  if (reinterpret_cast<uintptr_t>(tensor.data) % uintptr_t(bytes) == 0) return {};
  return wrong(name, "is not aligned to its elements", fmt::format("an address that is a multiple of {}", bytes));
}

Status checkDistinct(std::string_view name, const TensorView& tensor) {
  if (!tensor.data) return {}; // of a plan without memory, whose strides stand for any
  llvm::SmallVector<std::pair<int64_t, int64_t>, TensorView::kMaxRank> axes; // stride, extent
  for (int axis = 0; axis < tensor.rank; ++axis)
    if (tensor.shape[axis] > 1) axes.push_back({std::abs(tensor.stride[axis]), tensor.shape[axis]});
  llvm::sort(axes);
  int64_t reach = 0; // of the axes with smaller strides
  for (auto [stride, extent] : axes) {
    if (stride <= reach && tensor.elements())
      return wrong(
          name,
          fmt::format("has strides [{}]", fmt::join(tensor.stride.begin(), tensor.stride.begin() + tensor.rank, ", ")),
          fmt::format("an address for each element of [{}]",
                      fmt::join(tensor.shape.begin(), tensor.shape.begin() + tensor.rank, ", ")));
    reach += stride * (extent - 1);
  }
  return {};
}

ProblemShape problemOf(const Operands& operands) {
  const auto &q = operands.q.shape, &k = operands.k.shape;
  const int64_t kvLen = operands.pageTable ? operands.pageTable->shape[1] * k[2] : k[2];
  return ir::problemOf({q[0], q[1], k[1], q[2], kvLen}, operands);
}

Status checkSequences(const KernelOptions& options, LaunchOperands& all) {
  const auto &q = all.q.shape, &k = all.k.shape;
  const bool isPaged = all.pageTable.has_value();
  if (all.cuSeqlensQ) ATTNC_TRY(checkRagged(all));
  const int64_t sequences = all.cuSeqlensQ ? all.cuSeqlensQ->shape[0] - 1 : q[0];
  if (isPaged) ATTNC_TRY(checkPages(*all.pageTable, all.k, sequences, options));
  all.problem = problemOf(all);
  for (auto [name, tensor, like] : {std::tuple("new_k", &all.newK, &all.k), {"new_v", &all.newV, &all.v}}) {
    if (!*tensor) continue;
    ATTNC_TRY(checkOperand(name, **tensor, all.q.dtype));
    ATTNC_TRY(checkShape(name, **tensor, {q[0], k[1], q[2], like->shape[3]}));
    if (!isPaged && k[0] != q[0])
      return wrong("k", fmt::format("has batch {}", k[0]), fmt::format("{} as q, for rows are appended to it", q[0]));
    ATTNC_TRY(checkDistinct(like == &all.k ? "k" : "v", *like));
  }
  for (auto [name, tensor] : {std::pair("kv_lengths", &all.kvLengths), {"q_offsets", &all.qOffsets}})
    if (*tensor) ATTNC_TRY(checkPerSequence(name, **tensor, all.problem.batch));
  if (options.kind == KernelKind::Backward && all.kvLengths && k[0] != q[0])
    return wrong("k", "has batch 1, and its gradient would be of sequences of different KV lengths",
                 fmt::format("batch {} as q; a batch stride of 0 repeats k and v", q[0]));
  const int64_t kvBatch = isPaged || all.cuSeqlensQ ? sequences : k[0];
  const bool isFp8 = options.features.has(Feature::Fp8Q), isKvFp8 = options.features.has(Feature::Fp8Kv);
  const ProblemShape& problem = all.problem;
  const bool mayBeRows = options.features.has(Feature::RowScales), mayBeRowsOfKv = mayBeRows || !isFp8;
  for (auto [scales, of] :
       {std::pair(&all.qScales,
                  ScalesOf{"q_scales", problem.batch, problem.qLen, all.q, false, isFp8, isFp8, mayBeRows}),
        {&all.kScales, {"k_scales", kvBatch, problem.kvLen, all.k, isPaged, isKvFp8, isFp8, mayBeRowsOfKv}},
        {&all.vScales, {"v_scales", kvBatch, problem.kvLen, all.v, isPaged, isKvFp8, isFp8, mayBeRowsOfKv}}}) {
    if (!*scales) continue;
    ATTNC_TRY_AS(checked, checkScales(of, **scales));
    *scales = *checked;
    if (scales->value().rank == 4 && all.newK && !isFp8)
      return wrong(of.name, "has a scale for each row or page, and rows are appended", "scales of heads");
  }
  return {};
}

/// Null addresses fit.
static Status checkVInK(const LaunchOperands& all) {
  if (all.k.data && !vIsInK(all.k, all.v))
    return wrong("v", "is not a view of k's first columns", "k's address and strides (Feature::VInK)");
  if (all.newK && all.newK->data && !vIsInK(*all.newK, *all.newV))
    return wrong("new_v", "is not a view of new_k's first columns", "new_k's address and strides (Feature::VInK)");
  return {};
}

Expected<LaunchOperands> checkLayout(const Operands& operands, const Outputs& outputs, const KernelOptions& options) {
  ATTNC_TRY(checkRaggedOptions(options));
  if (!outputs.out) return wrong("out", "is not given", "Outputs::out, which a forward kernel writes");
  LaunchOperands all{operands};
  all.captures = nullptr, all.blockMask = nullptr;
  all.out = *outputs.out;
  const DType qDType = options.features.has(Feature::Fp8Q) ? DType::E4M3 : options.dtype,
              kvDType = options.features.has(Feature::Fp8Kv) ? DType::E4M3 : options.dtype;
  for (auto [name, tensor, dtype] : {std::tuple("q", &all.q, qDType),
                                     {"k", &all.k, kvDType},
                                     {"v", &all.v, kvDType},
                                     {"out", &all.out, options.dtype}})
    ATTNC_TRY(checkOperand(name, *tensor, dtype));
  const auto &q = all.q.shape, &k = all.k.shape;
  const bool isPaged = operands.pageTable.has_value();
  ATTNC_TRY(checkShape("q", all.q, {q[0], q[1], q[2], options.headDim}));
  if (!isPaged && k[0] != q[0] && k[0] != 1)
    return wrong("k", fmt::format("has batch {}", k[0]), fmt::format("{} as q, or 1", q[0]));
  if (q[1] && (k[1] == 0 || q[1] % k[1]))
    return wrong("k", fmt::format("has {} heads", k[1]), fmt::format("a divisor of q's {}", q[1]));
  ATTNC_TRY(checkShape("k", all.k, {k[0], k[1], k[2], options.headDim}));
  ATTNC_TRY(checkShape("v", all.v, {k[0], k[1], k[2], options.headDimV}));
  ATTNC_TRY(checkShape("out", all.out, {q[0], q[1], q[2], options.headDimV}));
  ATTNC_TRY(checkDistinct("out", all.out));
  ATTNC_TRY(checkSequences(options, all));
  if (options.features.has(Feature::VInK)) ATTNC_TRY(checkVInK(all));
  for (auto [name, length] : {std::pair{"q", q[2]}, std::pair{isPaged ? "page_table" : "k", all.problem.kvLen}})
    if (length > ir::kMaxExtent && !operands.cuSeqlensQ)
      return wrong(name, fmt::format("has length {}", length), fmt::format("at most {}", ir::kMaxExtent));
  if (outputs.lse) ATTNC_TRY(checkRowOutput("lse", *outputs.lse, all.q));
  if (outputs.rowMax) ATTNC_TRY(checkRowOutput("row_max", *outputs.rowMax, all.q));
  all.lse = outputs.lse ? static_cast<float*>(outputs.lse->data) : nullptr;
  all.rowMax = outputs.rowMax ? static_cast<float*>(outputs.rowMax->data) : nullptr;
  all.reductions = outputs.reductions;
  all.scale = operands.scale.value_or(float(1 / std::sqrt(double(options.headDim))));
  if (operands.blockMask && options.blockSparse) {
    ATTNC_TRY(checkWalked(*operands.blockMask, all.problem, options));
    all.lists = *operands.blockMask;
  }
  return all;
}

constexpr size_t kBytesOfRows = 0
#define ATTNC_TENSOR(member, name) +sizeof(Operands::member)
#define ATTNC_OPTIONAL(member, name, feature) +sizeof(Operands::member)
#include "attnc/operands.def"
                                + sizeof(Operands::scale) + sizeof(Operands::maxQLen) + sizeof(Operands::maxKvLen) +
                                sizeof(Operands::captures) + sizeof(Operands::blockMask);
static_assert(sizeof(Operands) == kBytesOfRows, "operands.def has a row for each tensor of Operands");

Status checkGiven(const Operands& operands, const KernelOptions& options) {
  if (operands.newK.has_value() != operands.newV.has_value())
    return wrong(operands.newK ? "new_v" : "new_k", "is not given", "both new_k and new_v, or neither");
  Features meant = featuresOf(options);
  meant.set(Feature::Offsets, options.offsets == QueryOffsets::Tensor);
  Status status;
  forEachOptional(operands, [&](const char* name, const std::optional<TensorView>& tensor, Feature feature) {
    const bool hasDefault = &tensor == &operands.cuSeqlensKv;
    if (!status || meant.has(feature) == tensor.has_value() || (!tensor && hasDefault)) return;
    if (feature == Feature::Fp8Kv || feature == Feature::Fp8Q)
      return; // scales are checked with k and v, and may be missing
    status = Error::environment(
        tensor ? fmt::format("{} is given to a kernel that was compiled without", name)
               : fmt::format("the kernel was compiled for {}, which is not given", name),
        fmt::format("KernelOptions::{} says which: {}", featureOption(feature), featureText(feature)));
  });
  return status;
}

Status checkAddresses(const Operands& operands) {
  for (auto [name, tensor] : {std::pair("q", &operands.q), {"k", &operands.k}, {"v", &operands.v}})
    ATTNC_TRY(checkAddress(name, *tensor));
  Status status;
  forEachOptional(operands, [&](const char* name, const std::optional<TensorView>& tensor, Feature) {
    if (status && tensor) status = checkAddress(name, *tensor);
  });
  return status;
}

Expected<LaunchOperands> checkForward(const Operands& operands, const Outputs& outputs, const KernelOptions& options) {
  if (options.blockSparse != (operands.blockMask != nullptr))
    return Error::environment(options.blockSparse ? "the kernel was compiled for a block mask, and none is given"
                                                  : "a block mask is given to a kernel that was compiled without",
                              "KernelOptions::blockSparse says which");
  if (options.blockSparse && options.listsOfWholeMod && !operands.blockMask->ofWholeMod)
    return Error::environment("the kernel was compiled for a block mask of the whole mod, this one is of mask_mod",
                              "BlockMaskView::ofWholeMod and KernelOptions::listsOfWholeMod say which");
  if (outputs.rowMax && !options.features.has(Feature::RowMax))
    return Error::environment("row_max is asked for, but the kernel was compiled without",
                              "add Feature::RowMax to KernelOptions::features");
  if (outputs.reductions && !options.features.has(Feature::Reductions))
    return Error::environment("outputs of the mod are asked for, but the kernel was compiled without",
                              "add Feature::Reductions to KernelOptions::features");
  ATTNC_TRY(checkGiven(operands, options));
  Expected<LaunchOperands> all = checkLayout(operands, outputs, options);
  if (!all) return all;
  ATTNC_TRY(checkAddresses(*all));
  ATTNC_TRY(checkAddress("out", all->out));
  const bool anyRow = all->q.shape[0] * all->problem.qHeads * rowsOfQ(*all) > 0;
  if (outputs.lse && !all->lse && anyRow) return wrong("lse", "is null", "device memory, or no lse");
  if (outputs.rowMax && !all->rowMax && anyRow) return wrong("row_max", "is null", "device memory, or no row_max");
  if (all->lists) ATTNC_TRY(checkLists(*all->lists));
  return all;
}

static Error wrongTangent(std::string_view name, bool isWanted) {
  return wrong(name, isWanted ? "is not given" : "is given to a kernel that was compiled without tangents",
               "q_tangent, k_tangent, v_tangent, out_tangent and lse_tangent, or none of them");
}

Expected<LaunchOperands> checkBackwardLayout(const BackwardOperands& operands, const BackwardOutputs& outputs,
                                             const KernelOptions& options) {
  Expected<LaunchOperands> all = checkLayout(operands, {.out = operands.out, .lse = operands.lse}, options);
  if (!all) return all;
  all->dOut = operands.dOut;
  all->wantsOperands = outputs.dQ || outputs.dK || outputs.dV;
  const bool hasTangents = options.features.has(Feature::Tangents);
  if (!all->wantsOperands && options.gradients.empty() && !hasTangents)
    return Error::environment("no gradient is asked for",
                              "give dq, dk and dv, or name captures in KernelOptions::gradients");
  using Given = std::tuple<const char*, TensorView*, const std::optional<TensorView>&, const TensorView*>;
  llvm::SmallVector<std::tuple<const char*, const TensorView*, const TensorView*>, 4> checked{
      {"dout", &all->dOut, &all->out}};
  for (auto [name, tensor, given, like] :
       {Given("dq", &all->dQ, outputs.dQ, &all->q), Given("dk", &all->dK, outputs.dK, &all->k),
        Given("dv", &all->dV, outputs.dV, &all->v)}) {
    if (!all->wantsOperands) continue;
    if (!given) return wrong(name, "is not given", "dq, dk and dv, or none of them");
    ATTNC_TRY(checkDistinct(name, *given));
    *tensor = *given;
    checked.push_back({name, tensor, like});
  }
  LaunchOperands::Tangents tangents;
  for (auto [name, tensor, given, like] : {Given("q_tangent", &tangents.q, operands.qTangent, &all->q),
                                           Given("k_tangent", &tangents.k, operands.kTangent, &all->k),
                                           Given("v_tangent", &tangents.v, operands.vTangent, &all->v),
                                           Given("out_tangent", &tangents.out, outputs.outTangent, &all->out)}) {
    if (given.has_value() != hasTangents) return wrongTangent(name, hasTangents);
    if (!hasTangents) continue;
    if (like == &all->out) ATTNC_TRY(checkDistinct(name, *given));
    *tensor = *given;
    checked.push_back({name, tensor, like});
  }
  if (outputs.lseTangent.has_value() != hasTangents) return wrongTangent("lse_tangent", hasTangents);
  if (hasTangents) {
    ATTNC_TRY(checkRowOutput("lse_tangent", *outputs.lseTangent, all->q));
    tangents.lse = static_cast<float*>(outputs.lseTangent->data);
  }
  for (auto [name, tensor, like] : checked) {
    ATTNC_TRY(checkOperand(name, *tensor, options.dtype));
    const auto& shape = like->shape;
    ATTNC_TRY(checkShape(name, *tensor, {shape[0], shape[1], shape[2], shape[3]}));
  }
  if (hasTangents) all->tangents = tangents;
  if (operands.dLse) {
    ATTNC_TRY(checkRowOutput("dlse", *operands.dLse, all->q));
    all->dLse = static_cast<const float*>(operands.dLse->data);
  }
  return all;
}

Expected<LaunchOperands> checkBackward(const BackwardOperands& operands, const BackwardOutputs& outputs,
                                       const KernelOptions& options) {
  Expected<LaunchOperands> all = checkBackwardLayout(operands, outputs, options);
  if (!all) return all;
  ATTNC_TRY(checkForward(operands, {.out = operands.out, .lse = operands.lse}, options));
  if (all->lists) ATTNC_TRY(checkColumns(*all->lists));
  for (auto [name, tensor] : {std::pair("dout", &all->dOut), {"dq", &all->dQ}, {"dk", &all->dK}, {"dv", &all->dV}}) {
    if (all->wantsOperands || tensor == &all->dOut) ATTNC_TRY(checkAddress(name, *tensor));
  }
  if (const auto& t = all->tangents) {
    for (auto [name, tensor] : {std::pair("q_tangent", &t->q),
                                {"k_tangent", &t->k},
                                {"v_tangent", &t->v},
                                {"out_tangent", &t->out},
                                {"lse_tangent", &*outputs.lseTangent}})
      ATTNC_TRY(checkAddress(name, *tensor));
  }
  const bool anyRow = all->q.shape[0] * all->problem.qHeads * rowsOfQ(*all) > 0;
  if (operands.dLse && !all->dLse && anyRow) return wrong("dlse", "is null", "device memory, or no dlse");
  return all;
}

Expected<LaunchOperands> checkBlockMask(const ir::Module& module, const BlockMaskView& mask,
                                        const ProblemShape& problem, const KernelOptions& options,
                                        const LaunchOperands* sequences) {
  const BlockMaskShape& shape = mask.shape;
  const BlockMaskColumns& columns = mask.columns;
  ATTNC_TRY(checkMaskProblem(module, problem, shape));
  if (shape.boxes.has_value() != options.maskByBoxes)
    return wrong("block mask", shape.boxes ? "has blocks that are boxes" : "has blocks of tokens in a row",
                 "those that the kernel was compiled for (KernelOptions::maskByBoxes)");
  if (!options.columnLists && columns.partialCount)
    return Error::environment("block mask: it has lists by column, which the kernel was compiled without",
                              "set KernelOptions::columnLists");
  ATTNC_TRY(checkLists(mask));
  if (options.columnLists) ATTNC_TRY(checkColumns(mask));
  if (mask.indexStride != shape.kvBlocks() || (columns.partialCount && columns.indexStride != shape.qBlocks()))
    return Error::environment("block mask: its storage is compacted, expected room for every block",
                              "use BlockMask::viewInto");
  if ((mask.partialCount && !mask.fullCount) || (columns.partialCount && !columns.fullCount))
    return Error::environment("block mask: fullCount and fullIndex must not be null, for they are written");
  LaunchOperands all;
  if (sequences) all = *sequences;
  all.problem = problem;
  all.lists = mask;
  return all;
}

} // namespace attnc::plan
