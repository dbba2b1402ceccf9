#include "jobs/operands.h"

#include <cctype>
#include <utility>

namespace attnc::test {
namespace {

constexpr int64_t kBatch = 2, kHeads = 8, kKvHeads = 2, kFreeExtent = 5;

/// Gives out addresses, one after another.
class Addresses {
public:
  void* next() { return reinterpret_cast<void*>(++count << 32); }
  TensorView dense(DType dtype, std::initializer_list<int64_t> shape) {
    return TensorView::contiguous(next(), dtype, shape);
  }
  /// A tensor whose rows lie apart, as those of a projection of q, k and v do.
  TensorView apart(DType dtype, int64_t batch, int64_t heads, int64_t rows, int64_t columns) {
    TensorView view = dense(dtype, {batch, rows, heads, columns});
    std::swap(view.shape[1], view.shape[2]), std::swap(view.stride[1], view.stride[2]);
    return view;
  }

private:
  uintptr_t count = 0;
};

int64_t extentOf(const std::string& name, int64_t qLen, int64_t kvLen) {
  if (name == "B") return kBatch;
  if (name == "H") return kHeads;
  if (name == "HKV") return kKvHeads;
  if (name == "Q_LEN") return qLen;
  if (name == "KV_LEN") return kvLen;
  return std::isdigit(static_cast<unsigned char>(name[0])) ? std::stoll(name) : kFreeExtent;
}

void addCaptures(Launch& launch, const Mod& mod, const KernelOptions& options, Addresses& at, int64_t qLen,
                 int64_t kvLen) {
  for (const CaptureInfo& capture : mod.captures()) {
    const bool isWanted = options.gradients.count(capture.name) > 0;
    switch (capture.kind) {
    case CaptureInfo::Kind::Int: launch.captures.set(capture.name, 64); continue;
    case CaptureInfo::Kind::Bool: launch.captures.set(capture.name, true); continue;
    case CaptureInfo::Kind::Float:
      launch.captures.set(capture.name, 0.5);
      if (isWanted) launch.captureGradients.set(capture.name, at.dense(DType::F32, {}));
      continue;
    case CaptureInfo::Kind::Tensor: break;
    }
    TensorView view;
    view.data = at.next();
    view.dtype = capture.dtype;
    view.rank = int(capture.extent.size());
    for (size_t axis = 0; axis < capture.extent.size(); ++axis)
      view.shape[axis] = extentOf(capture.extent[axis], qLen, kvLen);
    int64_t step = 1;
    for (size_t axis = capture.extent.size(); axis-- > 0; step *= view.shape[axis]) view.stride[axis] = step;
    launch.captures.set(capture.name, view);
    if (!isWanted) continue;
    view.data = at.next();
    launch.captureGradients.set(capture.name, view);
  }
}

void addSequences(Launch& launch, const KernelOptions& options, Addresses& at, int64_t qLen, int64_t kvLen) {
  BackwardOperands& all = launch.operands;
  const auto i32 = [&](std::initializer_list<int64_t> shape) { return at.dense(DType::I32, shape); };
  if (options.features.has(Feature::Ragged)) {
    all.cuSeqlensQ = i32({kBatch + 1});
    all.maxQLen = qLen;
    if (!options.pageSize) all.cuSeqlensKv = i32({kBatch + 1});
    all.maxKvLen = kvLen;
  }
  if (options.features.has(Feature::Lengths) || options.pageSize) all.kvLengths = i32({kBatch});
  if (options.offsets == QueryOffsets::Tensor) all.qOffsets = i32({kBatch});
  if (options.pageSize) all.pageTable = i32({kBatch, (kvLen + options.pageSize - 1) / options.pageSize});
}

void addScales(Launch& launch, const KernelOptions& options, Addresses& at) {
  if (!options.features.has(Feature::Fp8Kv)) return;
  BackwardOperands& all = launch.operands;
  const bool areOfRows = options.features.has(Feature::RowScales);
  const auto of = [&](const TensorView& tensor, int64_t batch) {
    if (areOfRows) return at.dense(DType::F32, {tensor.shape[0], tensor.shape[1], tensor.shape[2], 1});
    return at.dense(DType::F32, {batch, tensor.shape[1]});
  };
  if (options.features.has(Feature::Fp8Q)) all.qScales = of(all.q, kBatch);
  all.kScales = of(all.k, kBatch);
  all.vScales = of(all.v, kBatch);
}

void addMask(Launch& launch, const KernelOptions& options, Addresses& at, int64_t qLen, int64_t kvLen) {
  if (!options.blockSparse && options.kind != KernelKind::BlockMask) return;
  BlockMaskView& mask = launch.mask;
  mask.shape = {.batch = kBatch,
                .heads = kHeads,
                .qLen = qLen,
                .kvLen = kvLen,
                .qBlock = options.maskQBlock,
                .kvBlock = options.maskKvBlock};
  mask.ofWholeMod = options.listsOfWholeMod;
  const auto list = [&] { return static_cast<int32_t*>(at.next()); };
  mask.partialCount = list(), mask.partialIndex = list(), mask.fullCount = list(), mask.fullIndex = list();
  mask.indexStride = mask.shape.kvBlocks();
  if (options.kind == KernelKind::Backward || options.columnLists)
    mask.columns = {list(), list(), list(), list(), mask.shape.qBlocks()};
  launch.operands.blockMask = &mask;
}

} // namespace

std::vector<int64_t> tokensOf(const KernelOptions& options) {
  if (options.family != Family::Grid) return {0};
  return {3136, 4096, 4160, 8256, 16384};
}

void fillLaunch(Launch& launch, const Mod& mod, const KernelOptions& options, int64_t tokens) {
  const bool isDecode = options.kind == KernelKind::Decode, isRagged = options.features.has(Feature::Ragged);
  const int64_t qLen = tokens ? tokens : isDecode ? 3 : 500, kvLen = tokens ? tokens : isDecode ? 3008 : 704;
  const int64_t batch = isRagged ? 1 : kBatch;
  const int dim = options.headDim, dimV = options.headDimV ? options.headDimV : dim;
  const DType ofQ = options.features.has(Feature::Fp8Q) ? DType::E4M3 : options.dtype;
  const DType ofKv = options.features.has(Feature::Fp8Kv) ? DType::E4M3 : options.dtype;
  Addresses at;
  BackwardOperands& all = launch.operands;
  all.q = at.apart(ofQ, batch, kHeads, qLen, dim);
  const int64_t pages = 77, ofKvBatch = options.pageSize ? pages : batch,
                rows = options.pageSize ? options.pageSize : kvLen;
  all.k = at.apart(ofKv, ofKvBatch, kKvHeads, rows, dim);
  all.v = at.dense(ofKv, {ofKvBatch, kKvHeads, rows, dimV});
  if (options.features.has(Feature::VInK)) {
    all.v = all.k;
    all.v.shape[3] = dimV;
  }
  launch.outputs.out = at.apart(options.dtype, batch, kHeads, qLen, dimV);
  launch.outputs.lse = at.dense(DType::F32, {batch, kHeads, qLen});
  if (options.features.has(Feature::RowMax)) launch.outputs.rowMax = at.dense(DType::F32, {batch, kHeads, qLen});
  if (options.features.has(Feature::Reductions)) {
    for (const CaptureInfo& each : mod.reductions()) {
      const int64_t length = each.extent.size() > 2 && each.extent[2] == "Q_LEN" ? qLen : kvLen;
      launch.reductions.set(each.name, each.extent.size() > 2 ? at.dense(DType::F32, {batch, kHeads, length})
                                                              : at.dense(DType::F32, {batch, kHeads}));
    }
    launch.outputs.reductions = &launch.reductions;
  }
  addSequences(launch, options, at, qLen, kvLen);
  addScales(launch, options, at);
  if (options.features.has(Feature::Appends)) {
    all.newK = at.apart(ofQ, batch, kKvHeads, qLen, dim);
    all.newV = at.apart(ofQ, batch, kKvHeads, qLen, dimV);
    if (options.features.has(Feature::VInK)) {
      all.newV = all.newK;
      all.newV->shape[3] = dimV;
    }
  }
  addMask(launch, options, at, qLen, kvLen);
  addCaptures(launch, mod, options, at, qLen, kvLen);
  all.captures = &launch.captures;
  if (options.kind != KernelKind::Backward) return;
  all.out = *launch.outputs.out;
  all.lse = *launch.outputs.lse;
  all.dOut = at.apart(options.dtype, batch, kHeads, qLen, dimV);
  all.dLse = at.dense(DType::F32, {batch, kHeads, qLen});
  launch.gradients.dQ = at.dense(options.dtype, {batch, kHeads, qLen, dim});
  launch.gradients.dK = at.apart(options.dtype, batch, kKvHeads, kvLen, dim);
  launch.gradients.dV = at.dense(options.dtype, {batch, kKvHeads, kvLen, dimV});
  launch.gradients.captures = &launch.captureGradients;
}

} // namespace attnc::test
