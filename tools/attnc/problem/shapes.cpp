#include "problem/shapes.h"

namespace attnc::cli {
namespace {

/// Makes v a view of k. Both get one address, since null ones do not tell if v has all columns of k.
void putVInK(Operands& operands) {
  alignas(16) static char anyAddress; // is never read
  operands.v.stride = operands.k.stride;
  operands.k.data = operands.v.data = &anyAddress;
}

/// Adds the operands and results of a backward pass, laid out like their counterparts.
void addBackward(Shapes& shapes) {
  shapes.operands.out = shapes.operands.dOut = *shapes.outputs.out;
  const auto& rows = shapes.operands.q.shape;
  shapes.operands.lse = TensorView::contiguous(nullptr, DType::F32, {rows[0], rows[1], rows[2]});
  shapes.gradients = {.dQ = shapes.operands.q, .dK = shapes.operands.k, .dV = shapes.operands.v};
}

} // namespace

Shapes shapesOf(const HostOperands& operands, const ProblemOptions& options) {
  Shapes shapes;
  static_cast<Operands&>(shapes.operands) = viewsOf(operands);
  shapes.operands.captures = &operands.captures;
  const auto& rows = operands.q.shape;
  shapes.outputs.out = TensorView::contiguous(nullptr, options.target.fp8.outOf(operands.q.dtype),
                                              {rows[0], rows[1], rows[2], operands.v.shape[3]});
  if (options.rowMax || (options.verify && options.hasSoftmax))
    shapes.outputs.rowMax = TensorView::contiguous(nullptr, DType::F32, {rows[0], rows[1], rows[2]});
  for (TensorView* view : {&shapes.operands.q, &shapes.operands.k, &shapes.operands.v}) view->data = nullptr;
  if (operands.vInK) putVInK(shapes.operands);
  addBackward(shapes);
  shapes.gradients.captures = &operands.gradients;
  if (!operands.reductions.all().empty()) shapes.outputs.reductions = &operands.reductions;
  return shapes;
}

Shapes shapesOf(const ProblemShape& problem, const TargetOptions& target, const SequenceOptions& sequences) {
  const DType dtype = dtypeOf(target.dtype), kvDType = target.fp8.kv ? DType::E4M3 : dtype;
  const int headDimV = target.vInK ? target.vInK : target.headDimV ? target.headDimV : target.headDim;
  const auto view = [&](int64_t heads, int64_t length, int64_t dim, DType dtype) {
    TensorView tensor{.dtype = dtype, .rank = 4, .shape = {problem.batch, heads, length, dim}};
    if (sequences.ragged) tensor.shape = {1, heads, problem.batch * length, dim};
    tensor.stride = {dim, dim, dim, 1}; // all rows share memory: dense strides of the largest problems overflow
    return tensor;
  };
  Shapes shapes;
  shapes.operands.q = view(problem.qHeads, problem.qLen, target.headDim, dtype);
  shapes.operands.k = view(problem.kvHeads, problem.kvLen, target.headDim, kvDType);
  shapes.operands.v = view(problem.kvHeads, problem.kvLen, headDimV, kvDType);
  if (target.vInK) putVInK(shapes.operands);
  shapes.outputs.out = view(problem.qHeads, problem.qLen, headDimV, target.fp8.outOf(dtype));
  const TensorView ofBatch = TensorView::contiguous(nullptr, DType::I32, {problem.batch});
  if (sequences.lengths()) shapes.operands.kvLengths = ofBatch;
  if (const int64_t rows = sequences.pageSize) {
    const int64_t pages = problem.kvLen / rows;
    shapes.operands.pageTable = TensorView::contiguous(nullptr, DType::I32, {problem.batch, pages});
    shapes.operands.k.shape = {problem.batch * pages, problem.kvHeads, rows, target.headDim};
    shapes.operands.v.shape = {problem.batch * pages, problem.kvHeads, rows, headDimV};
  }
  const auto ofRows = [&](const TensorView& tensor) {
    return TensorView{.dtype = DType::F32,
                      .rank = 4,
                      .shape = {tensor.shape[0], tensor.shape[1], tensor.shape[2], 1},
                      .stride = {1, 1, 1, 1}};
  };
  if (target.fp8.areOfRows()) {
    shapes.operands.kScales = ofRows(shapes.operands.k), shapes.operands.vScales = ofRows(shapes.operands.v);
    if (dtype == DType::E4M3) shapes.operands.qScales = ofRows(shapes.operands.q);
  }
  if (sequences.offsets() == QueryOffsets::Tensor) shapes.operands.qOffsets = ofBatch;
  if (sequences.ragged) {
    const TensorView cumulative = TensorView::contiguous(nullptr, DType::I32, {problem.batch + 1});
    shapes.operands.cuSeqlensQ = cumulative;
    if (problem.qLen != problem.kvLen && !sequences.pageSize) shapes.operands.cuSeqlensKv = cumulative;
    shapes.operands.maxQLen = problem.qLen;
    shapes.operands.maxKvLen = problem.kvLen;
  }
  addBackward(shapes);
  return shapes;
}

Expected<Preparation> settle(const Compiler& compiler, const Mod& mod, const Shapes& shapes,
                             const PrepareOptions& options, bool isBackward) {
  return isBackward ? compiler.settleTraining(mod, shapes.operands, shapes.outputs, shapes.gradients, options)
                    : compiler.settle(mod, shapes.operands, shapes.outputs, options);
}

} // namespace attnc::cli
