#include "shapes.h"

#include "ragged.h"

namespace attnc::cli {
namespace {

/// Adds what a backward pass reads and writes beside these: laid out as its counterparts are.
void addBackward(Shapes& shapes) {
  shapes.operands.out = shapes.operands.dOut = *shapes.outputs.out;
  const auto& rows = shapes.operands.q.shape;
  shapes.operands.lse = TensorView::contiguous(nullptr, DType::F32, {rows[0], rows[1], rows[2]});
  shapes.gradients = {.dQ = shapes.operands.q, .dK = shapes.operands.k, .dV = shapes.operands.v};
}

} // namespace

Shapes shapesOf(const HostOperands& operands, const RunOptions& options) {
  Shapes shapes;
  shapes.operands.q = operands.q.view();
  shapes.operands.k = operands.k.view();
  shapes.operands.v = operands.v.view();
  if (operands.kvLengths) shapes.operands.kvLengths = operands.kvLengths->view();
  if (operands.qOffset) shapes.operands.qOffsets = operands.qOffset->view();
  shapes.operands.captures = &operands.captures;
  shapes.operands.ragged = raggedOf(operands);
  const auto& rows = operands.q.shape;
  shapes.outputs.out = TensorView::contiguous(nullptr, operands.q.dtype, {rows[0], rows[1], rows[2], operands.v.shape[3]});
  if (options.rowMax || options.verify)
    shapes.outputs.rowMax = TensorView::contiguous(nullptr, DType::F32, {rows[0], rows[1], rows[2]});
  for (TensorView* view : {&shapes.operands.q, &shapes.operands.k, &shapes.operands.v}) view->data = nullptr;
  addBackward(shapes);
  shapes.gradients.captures = &operands.gradients;
  return shapes;
}

Shapes shapesOf(const ProblemShape& problem, const TargetOptions& target, const SequenceOptions& sequences) {
  const DType dtype = dtypeOf(target.dtype);
  const int headDimV = target.headDimV ? target.headDimV : target.headDim;
  const auto view = [&](int64_t heads, int64_t length, int64_t dim) {
    TensorView tensor{.dtype = dtype, .rank = 4, .shape = {problem.batch, heads, length, dim}};
    if (sequences.ragged) tensor.shape = {1, heads, problem.batch * length, dim};
    tensor.stride = {dim, dim, dim, 1}; // all rows in one place: dense strides of the largest problems overflow
    return tensor;
  };
  Shapes shapes;
  shapes.operands.q = view(problem.qHeads, problem.qLen, target.headDim);
  shapes.operands.k = view(problem.kvHeads, problem.kvLen, target.headDim);
  shapes.operands.v = view(problem.kvHeads, problem.kvLen, headDimV);
  shapes.outputs.out = view(problem.qHeads, problem.qLen, headDimV);
  const TensorView ofBatch = TensorView::contiguous(nullptr, DType::I32, {problem.batch});
  if (sequences.kvLengths) shapes.operands.kvLengths = ofBatch;
  if (sequences.offsets() == QueryOffsets::Tensor) shapes.operands.qOffsets = ofBatch;
  if (sequences.ragged) {
    const TensorView cumulative = TensorView::contiguous(nullptr, DType::I32, {problem.batch + 1});
    shapes.operands.ragged = RaggedBatch{.cuSeqlensQ = cumulative, .cuSeqlensKv = {}};
    if (problem.qLen != problem.kvLen) shapes.operands.ragged->cuSeqlensKv = cumulative;
    shapes.operands.ragged->maxQLen = problem.qLen;
    shapes.operands.ragged->maxKvLen = problem.kvLen;
  }
  addBackward(shapes);
  return shapes;
}

} // namespace attnc::cli
