#include "gpu.h"

#include "api/compiler_access.h"
#include "api/mod_impl.h"
#include "gradient_tolerance.h"
#include "helpers/library.h"
#include "helpers/plan_parts.h"
#include "reference/attention.h"
#include "reference/compare.h"
#include "reference/gradients.h"
#include "support/element.h"
#include "tools/attnc/problem/random.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <thread>

namespace attnc::gputest {
namespace {

Expected<std::unique_ptr<Gpu>> open() {
  auto context = device::Context::create();
  if (!context) return context.error();
  auto stream = device::Stream::create();
  if (!stream) return stream.error();
  return std::make_unique<Gpu>(Gpu{*std::move(context), *std::move(stream), Compiler()});
}

/// A [B, H, S, D] operand in device memory, laid out as the problem asks.
struct DeviceOperand {
  device::Buffer buffer;
  TensorView view;
};

TensorView layOut(const Problem& problem, std::array<int64_t, 4> shape) {
  TensorView view = TensorView::contiguous(nullptr, problem.dtype, {shape[0], shape[1], shape[2], shape[3]});
  const int64_t row = shape[3] + problem.rowPadding;
  view.stride[2] = problem.headsLast ? row * shape[1] : row;
  view.stride[1] = problem.headsLast ? row : row * shape[2];
  view.stride[0] = row * shape[1] * shape[2];
  return view;
}

/// Calls function(dense index, strided index) for every element of a rank-4 view.
template <class Function> void forEach(const TensorView& view, Function function) {
  int64_t dense = 0;
  for (int64_t b = 0; b < view.shape[0]; ++b)
    for (int64_t h = 0; h < view.shape[1]; ++h)
      for (int64_t s = 0; s < view.shape[2]; ++s)
        for (int64_t d = 0; d < view.shape[3]; ++d)
          function(dense++, b * view.stride[0] + h * view.stride[1] + s * view.stride[2] + d);
}

DeviceOperand upload(const Problem& problem, const cli::HostTensor& tensor) {
  DeviceOperand operand{{}, layOut(problem, {tensor.shape[0], tensor.shape[1], tensor.shape[2], tensor.shape[3]})};
  operand.view.dtype = tensor.dtype;
  const size_t size = size_t(dtypeBytes(tensor.dtype));
  std::vector<char> host(size_t(operand.view.shape[0] * operand.view.stride[0]) * size, char(0xff));
  forEach(operand.view, [&](int64_t dense, int64_t strided) {
    std::copy_n(tensor.bytes.data() + size_t(dense) * size, size, host.data() + size_t(strided) * size);
  });
  operand.buffer = take(device::Buffer::allocate(host.size()));
  take(operand.buffer.upload(host.data(), host.size()));
  operand.view.data = operand.buffer.data();
  return operand;
}

std::vector<double> downloadOperand(const DeviceOperand& operand) {
  std::vector<char> host(operand.buffer.bytes());
  take(operand.buffer.download(host.data(), host.size()));
  std::vector<double> values(size_t(operand.view.elements()));
  forEach(operand.view, [&](int64_t dense, int64_t strided) {
    values[size_t(dense)] = readElement(host.data(), operand.view.dtype, strided).real;
  });
  return values;
}

std::vector<double> downloadFloats(const device::Buffer& buffer) {
  std::vector<float> values(buffer.bytes() / 4);
  take(buffer.download(values.data(), buffer.bytes()));
  return {values.begin(), values.end()};
}

/// A block mask in device memory, by row and by column.
struct DeviceLists {
  std::vector<device::Buffer> buffers;
  BlockMaskView view;
};

DeviceLists upload(const BlockMask& mask) {
  const BlockMask host = mask.withColumns();
  DeviceLists lists{{}, host.view()};
  const BlockMaskShape& shape = host.shape();
  const auto move = [&](int32_t*& list, int64_t elements) {
    const size_t bytes = size_t(elements) * sizeof(int32_t);
    lists.buffers.push_back(take(device::Buffer::allocate(bytes)));
    take(lists.buffers.back().upload(list, bytes));
    list = static_cast<int32_t*>(lists.buffers.back().data());
  };
  const auto moveAll = [&](auto& of, int64_t count) {
    for (int32_t** counts : {&of.partialCount, &of.fullCount}) move(*counts, shape.batch * shape.heads * count);
    for (int32_t** indices : {&of.partialIndex, &of.fullIndex})
      move(*indices, shape.batch * shape.heads * count * of.indexStride);
  };
  moveAll(lists.view, shape.qBlocks());
  moveAll(lists.view.columns, shape.kvBlocks());
  return lists;
}

/// i32 numbers in device memory; no view of none.
struct DeviceNumbers {
  device::Buffer buffer;
  std::optional<TensorView> view;

  explicit DeviceNumbers(const std::vector<int32_t>& values) {
    if (values.empty()) return;
    buffer = take(device::Buffer::allocate(values.size() * 4));
    take(buffer.upload(values.data(), values.size() * 4));
    view = TensorView::contiguous(buffer.data(), DType::I32, {int64_t(values.size())});
  }
};

/// Scales of heads in device memory; no view of none.
struct DeviceScales {
  device::Buffer buffer;
  std::optional<TensorView> view;

  explicit DeviceScales(const std::optional<cli::HostTensor>& scales) {
    if (!scales) return;
    buffer = take(device::Buffer::allocate(scales->bytes.size()));
    take(buffer.upload(scales->bytes.data(), scales->bytes.size()));
    view = scales->view();
    view->data = buffer.data();
  }
};

/// A device buffer of NaNs.
device::Buffer poisoned(size_t bytes) {
  device::Buffer buffer = take(device::Buffer::allocate(bytes));
  if (bytes) take(buffer.fill(0xff));
  return buffer;
}

} // namespace

Gpu* gpu(std::string* reason) {
  static Expected<std::unique_ptr<Gpu>> instance = open();
  if (!instance && reason) *reason = instance.error().message;
  return instance ? instance->get() : nullptr;
}

std::string Problem::text() const {
  return fmt::format("B{} H{} HKV{} Q{} KV{} D{} DV{} {}{}{} padding {} seed {}", shape.batch, shape.qHeads,
                     shape.kvHeads, shape.qLen, shape.kvLen, headDim, headDimV, dtypeName(dtype),
                     kvBatchOne ? " kv-batch-1" : "", headsLast ? " heads-last" : "", rowPadding, seed);
}

cli::HostTensor firstColumns(const cli::HostTensor& of, int64_t columns) {
  cli::HostTensor result = cli::HostTensor::make(of.dtype, {of.shape[0], of.shape[1], of.shape[2], columns});
  const size_t from = size_t(of.shape[3] * dtypeBytes(of.dtype)), to = size_t(columns * dtypeBytes(of.dtype));
  for (size_t row = 0; row * to < result.bytes.size(); ++row)
    std::copy_n(of.bytes.data() + row * from, to, result.bytes.data() + row * to);
  return result;
}

HostOperands draw(const Mod& mod, const Problem& problem, const std::map<std::string, int64_t>& scalars) {
  const ProblemShape& s = problem.shape;
  cli::Generator generator(problem.seed, s, /*mostElements=*/int64_t(1) << 30);
  const int64_t kvBatch = problem.kvBatchOne ? 1 : s.batch;
  HostOperands operands;
  operands.q = generator.normal(problem.dtype, {s.batch, s.qHeads, s.qLen, problem.headDim});
  operands.k = generator.normal(problem.dtype, {kvBatch, s.kvHeads, s.kvLen, problem.headDim});
  operands.v = problem.vInK ? firstColumns(operands.k, problem.headDimV)
                            : generator.normal(problem.dtype, {kvBatch, s.kvHeads, s.kvLen, problem.headDimV});
  std::map<std::string, int64_t> freeDims;
  generator.chooseDims(mod, freeDims);
  for (const CaptureInfo& capture : mod.captures()) {
    if (capture.kind == CaptureInfo::Kind::Tensor) {
      cli::HostTensor& tensor = operands.tensors[capture.name];
      tensor = {.dtype = capture.dtype, .shape = generator.shapeOf(capture, freeDims)};
      take(generator.fill(capture, tensor));
      operands.captures.set(capture.name, tensor.view());
    } else if (auto given = scalars.find(capture.name); given != scalars.end()) {
      operands.captures.set(capture.name, given->second);
    } else {
      std::visit([&](auto value) { operands.captures.set(capture.name, value); }, generator.scalar(capture));
    }
  }
  return operands;
}

DeviceCaptures uploadCaptures(const Captures& host) {
  DeviceCaptures device;
  for (const auto& [name, value] : host.all()) {
    if (const TensorView* tensor = std::get_if<TensorView>(&value)) {
      int64_t span = tensor->elements() ? 1 : 0; // elements between the first one and the last one
      for (int axis = 0; span && axis < tensor->rank; ++axis) span += (tensor->shape[axis] - 1) * tensor->stride[axis];
      const size_t before = reinterpret_cast<uintptr_t>(tensor->data) % 16; // so that both addresses align alike
      const size_t bytes = before + size_t(span * dtypeBytes(tensor->dtype));
      device.buffers.push_back(take(device::Buffer::allocate(bytes)));
      take(device.buffers.back().upload(static_cast<const char*>(tensor->data) - before, bytes));
      TensorView view = *tensor;
      view.data = static_cast<char*>(device.buffers.back().data()) + before;
      device.captures.set(name, view);
    } else {
      std::visit([&, name = name](auto scalar) { device.captures.set(name, scalar); }, value);
    }
  }
  return device;
}

KernelOptions kernelOptions(const Mod& mod, const Problem& problem, const RunOptions& options) {
  KernelOptions result;
  result.family = options.family;
  result.arch = options.arch;
  result.tile = options.tile;
  result.dtype = problem.dtype;
  result.headDim = problem.headDim;
  result.headDimV = problem.headDimV;
  result.blockSparse = result.listsOfWholeMod = options.blockMask && mod.hasMaskMod();
  result.maskQBlock = options.qBlock;
  result.maskKvBlock = options.kvBlock;
  result.features.set(Feature::RowMax, options.rowMax && !mod.hasWeightMod());
  result.tf32 = options.tf32;
  result.lowRankError = options.lowRankError;
  return result;
}

Outcome runKernel(const Mod& mod, const Problem& problem, const HostOperands& operands, const RunOptions& options) {
  Gpu& device = *gpu();
  const ProblemShape& s = problem.shape;
  const DeviceOperand q = upload(problem, operands.q), k = upload(problem, operands.k), v = upload(problem, operands.v);
  const auto ofV = [&](const DeviceOperand& ofK, const DeviceOperand& own) {
    TensorView view = problem.vInK ? ofK.view : own.view;
    view.shape[3] = problem.headDimV;
    return view;
  };
  DeviceOperand out{{}, layOut(problem, {s.batch, s.qHeads, s.qLen, problem.headDimV})};
  out.buffer = poisoned(size_t(out.view.shape[0] * out.view.stride[0] * dtypeBytes(problem.dtype)));
  out.view.data = out.buffer.data();
  const device::Buffer lse = poisoned(size_t(s.batch * s.qHeads * s.qLen) * 4), rowMax = poisoned(lse.bytes());
  const DeviceCaptures captures = uploadCaptures(operands.captures);

  Operands inputs{.q = q.view, .k = k.view, .v = ofV(k, v), .scale = options.scale, .captures = &captures.captures};
  Outputs outputs{.out = out.view};
  const auto ofRows = [&](const device::Buffer& memory) {
    return TensorView::contiguous(memory.data(), DType::F32, {s.batch, s.qHeads, s.qLen});
  };
  const bool hasLse = !mod.hasWeightMod(), hasRowMax = hasLse && options.rowMax;
  if (hasLse) outputs.lse = ofRows(lse);
  if (hasRowMax) outputs.rowMax = ofRows(rowMax);

  const DeviceNumbers lengths(operands.kvLengths), offsets(operands.qOffsets), starts(operands.cuSeqlensQ);
  inputs.kvLengths = lengths.view;
  inputs.qOffsets = offsets.view;
  inputs.cuSeqlensQ = starts.view;
  inputs.maxQLen = operands.maxQLen;
  const DeviceScales qScales(operands.qScales), kScales(operands.kScales), vScales(operands.vScales);
  inputs.qScales = qScales.view;
  inputs.kScales = kScales.view;
  inputs.vScales = vScales.view;
  std::optional<DeviceOperand> newK, newV;
  if (operands.newK) {
    newK = upload(problem, *operands.newK);
    newV = upload(problem, *operands.newV);
    inputs.newK = newK->view;
    inputs.newV = ofV(*newK, *newV);
  }
  device::Buffer pages;
  if (const auto& table = operands.pageTable) {
    pages = take(device::Buffer::allocate(table->bytes.size()));
    take(pages.upload(table->bytes.data(), table->bytes.size()));
    inputs.pageTable = TensorView::contiguous(pages.data(), DType::I32, {table->shape[0], table->shape[1]});
  }
  const BlockMaskShape shape{s.batch, s.qHeads, s.qLen, s.kvLen, options.qBlock, options.kvBlock};
  device::Buffer lists;
  BlockMaskView mask;
  if (options.blockMask && mod.hasMaskMod()) {
    lists = take(device::Buffer::allocate(BlockMask::storageBytes(shape)));
    mask = BlockMask::viewInto(lists.data(), shape);
    mask.ofWholeMod = true;
    const BlockMaskKernel builder = take(test::loadBlockMask(device.compiler, mod, {}));
    take(builder.launch(mask, s, captures.captures, device.stream.get()));
    inputs.blockMask = &mask;
  }
  DeviceLists given;
  if (options.mask) {
    given = upload(*options.mask);
    inputs.blockMask = &given.view;
  }
  const Prepared prepared = take(device.compiler.prepare(mod, inputs, outputs,
                                                         {.family = options.family,
                                                          .arch = options.arch,
                                                          .tf32 = options.tf32,
                                                          .lowRankError = options.lowRankError,
                                                          .offsets = options.offsets,
                                                          .decode = options.decode,
                                                          .buildBlockMask = options.preparesMask,
                                                          .tile = options.tile}));
  const device::Buffer workspace = poisoned(prepared.workspaceBytes());
  take(prepared.initialise(inputs, workspace.data(), device.stream.get()));
  if (options.workspace)
    for (int i = 0; i < options.launches; ++i)
      take(prepared.launch(inputs, outputs, workspace.data(), device.stream.get()));
  else
    take(prepared.kernel().launch(inputs, outputs, nullptr, device.stream.get()));
  take(device.stream.synchronize());
  Outcome outcome{downloadOperand(out), {}, {}, {}, {}};
  if (hasLse) outcome.lse = downloadFloats(lse);
  if (hasRowMax) outcome.rowMax = downloadFloats(rowMax);
  if (newK) {
    outcome.k = downloadOperand(k);
    outcome.v = downloadOperand(v);
  }
  return outcome;
}

namespace {

void checkValues(const char* what, const std::vector<double>& actual, const std::vector<double>& expected,
                 reference::Tolerance tolerance) {
  REQUIRE(actual.size() == expected.size());
  reference::Comparison comparison(tolerance);
  for (size_t i = 0; i < actual.size(); ++i) comparison.add(actual[i], expected[i]);
  INFO(what << ", max error " << comparison.maxError() << ": " << comparison.firstBadText());
  CHECK(comparison.holds());
}

} // namespace

ResultGradients drawGradients(const Problem& problem, bool withLse) {
  const ProblemShape& s = problem.shape;
  cli::Generator generator(problem.seed + 1000, s, /*mostElements=*/int64_t(1) << 30);
  ResultGradients given{generator.normal(problem.dtype, {s.batch, s.qHeads, s.qLen, problem.headDimV}), {}};
  if (withLse) given.dLse = generator.normal(DType::F32, {s.batch, s.qHeads, s.qLen});
  return given;
}

Gradients runBackward(const Mod& mod, const Problem& problem, const HostOperands& operands,
                      const ResultGradients& given, const BackwardRun& run) {
  Gpu& device = *gpu();
  const ProblemShape& s = problem.shape;
  const DeviceOperand q = upload(problem, operands.q), k = upload(problem, operands.k), v = upload(problem, operands.v);
  const DeviceOperand dOut = upload(problem, given.dOut);
  const auto result = [&](std::array<int64_t, 4> shape) {
    DeviceOperand operand{{}, layOut(problem, shape)};
    operand.buffer = poisoned(size_t(operand.view.shape[0] * operand.view.stride[0] * dtypeBytes(problem.dtype)));
    operand.view.data = operand.buffer.data();
    return operand;
  };
  const int64_t kvBatch = problem.kvBatchOne ? 1 : s.batch;
  const DeviceOperand out = result({s.batch, s.qHeads, s.qLen, problem.headDimV});
  const DeviceOperand dQ = result({s.batch, s.qHeads, s.qLen, problem.headDim});
  const DeviceOperand dK = result({kvBatch, s.kvHeads, s.kvLen, problem.headDim});
  const DeviceOperand dV = result({kvBatch, s.kvHeads, s.kvLen, problem.headDimV});
  const device::Buffer lse = poisoned(size_t(s.batch * s.qHeads * s.qLen) * 4);
  device::Buffer dLse;
  const DeviceCaptures captures = uploadCaptures(operands.captures);
  BackwardOperands inputs{{.q = q.view, .k = k.view, .v = v.view, .scale = run.scale, .captures = &captures.captures}};
  inputs.out = out.view;
  inputs.lse = TensorView::contiguous(lse.data(), DType::F32, {s.batch, s.qHeads, s.qLen});
  inputs.dOut = dOut.view;
  if (given.dLse) {
    dLse = take(device::Buffer::allocate(given.dLse->bytes.size()));
    take(dLse.upload(given.dLse->bytes.data(), given.dLse->bytes.size()));
    inputs.dLse = TensorView::contiguous(dLse.data(), DType::F32, {s.batch, s.qHeads, s.qLen});
  }
  KernelOptions options{.family = run.family,
                        .arch = run.arch,
                        .dtype = problem.dtype,
                        .headDim = problem.headDim,
                        .headDimV = problem.headDimV,
                        .features = {Feature::Deterministic, run.deterministic},
                        .lowRankError = run.lowRankError};
  DeviceLists lists;
  if (run.mask) {
    lists = upload(*run.mask);
    inputs.blockMask = &lists.view;
    options.blockSparse = true;
    options.listsOfWholeMod = lists.view.ofWholeMod;
    options.maskQBlock = run.mask->shape().qBlock;
    options.maskKvBlock = run.mask->shape().kvBlock;
  }
  const Outputs outputs{.out = out.view, .lse = inputs.lse};
  const BackwardOutputs gradients{.dQ = dQ.view, .dK = dK.view, .dV = dV.view};
  const auto results = [&]() -> Gradients {
    take(device.stream.synchronize());
    return {downloadOperand(dQ), downloadOperand(dK), downloadOperand(dV)};
  };
  if (run.family == Family::Auto) {
    const Prepared prepared =
        take(device.compiler.prepareTraining(mod, inputs, outputs, gradients, {.backwardTile = run.tile}));
    const device::Buffer workspace = poisoned(prepared.workspaceBytes());
    take(prepared.initialise(inputs, workspace.data(), device.stream.get()));
    take(prepared.launch(inputs, outputs, workspace.data(), device.stream.get()));
    take(prepared.launchBackward(inputs, gradients, workspace.data(), device.stream.get()));
    return results();
  }
  const ForwardKernel forward = take(test::loadForward(device.compiler, mod, options));
  options.tile = run.tile;
  options.features.set(Feature::Reductions, take(ir::haveGradients(mod.module(), &operands.captures)));
  const BackwardKernel backward = take(test::loadBackward(device.compiler, mod, options));
  constexpr size_t kBehind = 1 << 20; // bytes that are not the workspace's
  const size_t bytes = take(backward.workspaceBytes(inputs));
  const device::Buffer workspace = poisoned(bytes + kBehind);
  device::Buffer ofForward = take(device::Buffer::allocate(take(forward.workspaceBytes(inputs, outputs))));
  take(ofForward.fill(0));
  take(forward.launch(inputs, outputs, ofForward.data(), device.stream.get()));
  if (run.forgetsRows) {
    take(device.stream.synchronize());
    for (size_t counts : {0, 1}) { // of partial and of full blocks
      const std::vector<char> zeros(lists.buffers[counts].bytes());
      take(lists.buffers[counts].upload(zeros.data(), zeros.size()));
    }
  }
  take(backward.launch(inputs, gradients, workspace.data(), device.stream.get()));
  const Gradients computed = results();
  std::vector<uint8_t> after(workspace.bytes());
  take(workspace.download(after.data(), after.size()));
  CHECK(size_t(std::count(after.begin() + std::ptrdiff_t(bytes), after.end(), 0xff)) == kBehind);
  return computed;
}

Gradients runReferenceBackward(const Mod& mod, const HostOperands& operands, const ResultGradients& given,
                               std::optional<float> scale, const BlockMask* mask) {
  BackwardOperands args{{operands.q.view(), operands.k.view(), operands.v.view()}, {}, {}, given.dOut.view()};
  BlockMaskView lists;
  if (mask) {
    lists = mask->view();
    args.blockMask = &lists;
  }
  if (scale) args.scale = *scale;
  if (given.dLse) args.dLse = given.dLse->view();
  const bool ofOutputs = take(ir::haveGradients(mod.module(), &operands.captures));
  auto result =
      take(reference::gradients(take(gradientMod(mod, {}, false, ofOutputs)).module(), operands.captures, args));
  return {std::move(result.dQ), std::move(result.dK), std::move(result.dV), result.scoreSlope};
}

void checkGradients(const Gradients& actual, const Gradients& expected, const Problem& problem) {
  const reference::GradientTolerance tolerance({.dtype = problem.dtype,
                                                .scale = 1 / std::sqrt(double(problem.headDim)),
                                                .headDimV = problem.headDimV,
                                                .scoreSlope = expected.scoreSlope});
  checkValues("dQ", actual.dQ, expected.dQ, tolerance.dQ(expected.dQ));
  checkValues("dK", actual.dK, expected.dK, tolerance.dK(expected.dK));
  checkValues("dV", actual.dV, expected.dV, tolerance.dV(expected.dV));
}

Outcome runReference(const Mod& mod, const Problem&, const HostOperands& operands, std::optional<float> scale,
                     std::optional<QueryOffsets> offsets) {
  Operands args{operands.q.view(), operands.k.view(), operands.v.view()};
  if (scale) args.scale = *scale;
  if (operands.qScales) args.qScales = operands.qScales->view();
  if (operands.kScales) args.kScales = operands.kScales->view();
  if (operands.vScales) args.vScales = operands.vScales->view();
  const auto viewOf = [](const std::vector<int32_t>& values) -> std::optional<TensorView> {
    if (values.empty()) return std::nullopt;
    return TensorView::contiguous(const_cast<int32_t*>(values.data()), DType::I32, {int64_t(values.size())});
  };
  args.kvLengths = viewOf(operands.kvLengths);
  args.qOffsets = viewOf(operands.qOffsets);
  args.cuSeqlensQ = viewOf(operands.cuSeqlensQ);
  args.maxQLen = operands.maxQLen;
  passes::SequenceForm form = sequenceForm(args, {.offsets = offsets});
  form.pages = form.ragged;
  const Mod whole = form.isPlain() ? mod : take(sequencesMod(mod, form, {}));
  auto result = take(reference::attention(whole.module(), operands.captures, args));
  return {std::move(result.out), std::move(result.lse), std::move(result.rowMax), {}, {}};
}

double scoreErrorOf(const std::string& mod, const ProblemShape& shape, DType dtype) {
  if (mod == "softcap_approx") return 1.5 * 0x1p-10;
  if (mod == "alibi") return 2.5 * 2 * double(std::max(shape.qLen, shape.kvLen)) * 0x1p-23;
  if (mod == "latent_rope" && dtype == DType::BF16) return 8 * 0x1p-16;
  return 0;
}

void checkClose(const Outcome& actual, const Outcome& expected, const Problem& problem, bool tf32, double scoreError) {
  // The weights P and the output round once each to the dtype (unit roundoff u), so an element is off by at most
  // 2 u max|v|; |v| stays below 6 for normal values. A score is off by a few 2^-24 of its size, and by u of TF32's
  // products with tf32; an error e of the scores moves a weighted mean of v by at most 2 e max|v|, and lse by e.
  const double u = problem.dtype == DType::BF16 ? 0x1p-9 : problem.dtype == DType::F16 ? 0x1p-12 : 0x1p-22;
  double largestScore = 8;
  for (double score : expected.rowMax)
    if (std::isfinite(score)) largestScore = std::max(largestScore, std::abs(score));
  const double scores = largestScore * (tf32 ? 0x1p-10 : 0x1p-21) + scoreError;
  checkValues("out", actual.out, expected.out, {.absolute = 6 * (2 * u + 2 * scores)});
  if (!actual.lse.empty()) checkValues("lse", actual.lse, expected.lse, {scores, scores});
  if (!actual.rowMax.empty()) checkValues("row max", actual.rowMax, expected.rowMax, {scores, scores});
}

std::vector<Family> familiesFor(const Mod& mod, const Problem& problem, RunOptions options) {
  std::vector<Family> families = {Family::Naive, Family::Sm80};
  options.family = Family::Sm90;
  KernelOptions kernel = kernelOptions(mod, problem, options);
  kernel.arch = gpu()->context.info().arch;
  const bool aligned = problem.rowPadding * dtypeBytes(problem.dtype) % 16 == 0;
  if (aligned && test::sourcesOf(gpu()->compiler, mod, kernel)) families.push_back(Family::Sm90);
  return families;
}

std::vector<double> toDoubles(const cli::HostTensor& tensor) {
  std::vector<double> values(size_t(tensor.elements()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = readElement(tensor.bytes.data(), tensor.dtype, int64_t(i)).real;
  return values;
}

std::vector<std::string> libraryNames(bool everywhere) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(ATTNC_SOURCE_DIR "/dsl/mods"))
    if (entry.path().extension() == ".py" && test::goesEverywhere(entry.path().stem().string()) == everywhere)
      names.push_back(entry.path().stem().string());
  REQUIRE_FALSE(names.empty());
  std::sort(names.begin(), names.end());
  return names;
}

Mod libraryMod(const std::string& name, std::map<std::string, std::string> defines) {
  ParseOptions options;
  options.defines = std::move(defines);
  return take(Mod::load(ATTNC_SOURCE_DIR "/dsl/mods/" + name + ".py", options));
}

void compileAhead(const std::vector<std::pair<Mod, KernelOptions>>& jobs) {
  Gpu& device = *gpu();
  const std::string arch = device.context.info().arch;
  std::atomic<size_t> next = 0;
  std::vector<std::thread> pool;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i)
    pool.emplace_back([&] {
      for (size_t job; (job = next++) < jobs.size();) {
        KernelOptions options = jobs[job].second;
        if (options.arch.empty()) options.arch = arch;
        (void)bool(
            test::compiledOf(device.compiler, jobs[job].first, options)); // an error shows again where it is needed
      }
    });
  for (std::thread& thread : pool) thread.join();
}

} // namespace attnc::gputest
