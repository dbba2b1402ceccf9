#include "gpu.h"

#include "explanation.h"

#include "plan/mask_shape.h"
#include "ir/ir.h"

#include <fmt/format.h>

#include <vector>

namespace attnc::cli {
namespace {

/// Device copies of tensors; they live as long as this does.
class DeviceTensors {
public:
  Expected<TensorView> upload(const HostTensor& tensor) {
    auto view = allocate(tensor);
    if (!view) return view;
    if (auto status = buffers.back().upload(tensor.bytes.data(), tensor.bytes.size()); !status) return status.error();
    return view;
  }
  Expected<TensorView> allocate(const HostTensor& tensor) {
    auto memory = allocate(tensor.bytes.size());
    if (!memory) return std::move(memory).error();
    TensorView view = tensor.view();
    view.data = *memory;
    return view;
  }
  Expected<void*> allocate(size_t bytes) {
    auto buffer = device::Buffer::allocate(bytes);
    if (!buffer) return std::move(buffer).error();
    buffers.push_back(std::move(*buffer));
    return buffers.back().data();
  }
  /// Buffers in the order of their allocation.
  device::Buffer& operator[](size_t index) { return buffers[index]; }
  size_t size() const { return buffers.size(); }

private:
  std::vector<device::Buffer> buffers;
};

/// Milliseconds that work on a stream takes: the second of two runs, so that one-time costs of the first do not show.
template <class Work> Expected<float> timed(const device::Stream& stream, Work work) {
  if (Status status = work(); !status) return status.error();
  auto begin = device::Event::create();
  if (!begin) return std::move(begin).error();
  auto end = device::Event::create();
  if (!end) return std::move(end).error();
  if (auto status = begin->record(stream.get()); !status) return status.error();
  if (Status status = work(); !status) return status.error();
  if (auto status = end->record(stream.get()); !status) return status.error();
  if (auto status = stream.synchronize(); !status) return status.error();
  return end->msSince(*begin);
}

/// One run: its steps, and what they share.
class GpuRun {
public:
  GpuRun(const device::Context& context, const Mod& mod, const HostOperands& operands, const RunOptions& options)
      : context(context), mod(mod), operands(operands), options(options), compiler(options.kernel.toCompilerOptions()) {
  }

  Expected<RunResult> run() {
    auto created = device::Stream::create();
    if (!created) return std::move(created).error();
    stream = std::move(*created);
    if (auto status = uploadCaptures(); !status) return status.error();
    if (auto status = placeOperands(); !status) return status.error();
    auto choice = compiler.forLayout(mod, baseOptions(), inputs, outputs);
    if (!choice) return std::move(choice).error();
    auto wantsMask = compiler.wantsBlockMask(mod, choice->options);
    if (!wantsMask) return wantsMask.error();
    if (*wantsMask && !options.noBlockMask)
      if (auto status = buildBlockMask(); !status) return status.error();
    if (auto status = forward(*choice); !status) return status.error();
    result.summary = fmt::format("device      {} ({})\n", context.info().name, context.info().arch) + summary;
    return std::move(result);
  }

private:
  KernelOptions baseOptions() const {
    KernelOptions kernel = kernelOptions(options, operands);
    kernel.maskQBlock = kernel.maskKvBlock = kBlock;
    return kernel;
  }

  Status uploadCaptures() {
    for (const auto& [name, value] : operands.captures.all()) {
      if (!std::holds_alternative<TensorView>(value)) {
        std::visit([&, &name = name](auto known) { captures.set(name, known); }, value);
        continue;
      }
      auto view = memory.upload(operands.tensors.find(name)->second);
      if (!view) return view.error();
      captures.set(name, *view);
    }
    return {};
  }

  /// Uploads q, k and v, and makes room for the results.
  Status placeOperands() {
    const ProblemShape& problem = operands.problem;
    std::vector<int64_t> rows{problem.batch, problem.qHeads, problem.qLen};
    result.lse = HostTensor::make(DType::F32, rows);
    result.rowMax = HostTensor::make(DType::F32, rows);
    rows.push_back(operands.v.shape[3]);
    result.out = HostTensor::make(operands.q.dtype, rows);
    for (auto [host, view] :
         {std::pair(&operands.q, &inputs.q), std::pair(&operands.k, &inputs.k), std::pair(&operands.v, &inputs.v)}) {
      auto uploaded = memory.upload(*host);
      if (!uploaded) return uploaded.error();
      *view = *uploaded;
    }
    firstOutput = memory.size();
    TensorView out, lse, rowMax;
    for (auto [host, view] :
         {std::pair(&result.out, &out), std::pair(&result.lse, &lse), std::pair(&result.rowMax, &rowMax)}) {
      auto allocated = memory.allocate(*host);
      if (!allocated) return allocated.error();
      *view = *allocated;
    }
    outputs.out = out;
    bool all = options.verify;
    if (all || options.lse || options.output.empty()) outputs.lse = lse; // the digest tells it
    if (all || options.rowMax) outputs.rowMax = rowMax;
    return {};
  }

  Status buildBlockMask() {
    auto kernel = compiler.loadBlockMask(mod, baseOptions());
    if (!kernel) return kernel.error();
    BlockMaskShape shape = smallestMask(mod.module(), operands.problem, kBlock, kBlock);
    auto storage = memory.allocate(BlockMask::storageBytes(shape));
    if (!storage) return storage.error();
    blockMask = BlockMask::viewInto(*storage, shape);
    auto ms =
        timed(stream, [&] { return kernel->launch(*blockMask, operands.problem, captures, stream.get()); });
    if (!ms) return ms.error();
    return describeBlockMask(*ms, kernel->compiled());
  }

  Status describeBlockMask(float ms, const CompiledKernel& compiled) {
    std::vector<char> host(BlockMask::storageBytes(blockMask->shape));
    if (auto status = memory[memory.size() - 1].download(host.data(), host.size()); !status) return status;
    auto mask = BlockMask::fromLists(BlockMask::viewInto(host.data(), blockMask->shape));
    if (!mask) return Error::internal("the GPU built a block mask that is none: " + mask.error().message);
    summary += fmt::format("block mask  {} x {} blocks, {:.1f} % empty, {} live, {} full; {:.3f} ms{}\n", kBlock,
                           kBlock, mask->sparsity(), mask->liveBlocks(), mask->fullBlocks(), ms, compileText(compiled));
    return {};
  }

  static std::string compileText(const CompiledKernel& compiled) {
    if (compiled.compileMs == 0) return " (kernel from the cache)";
    return fmt::format(" (kernel compiled in {:.0f} ms)", compiled.compileMs);
  }

  Status forward(const LayoutChoice& choice) {
    KernelOptions kernelOptions = choice.options;
    kernelOptions.blockSparse = blockMask.has_value();
    kernelOptions.rowMax = outputs.rowMax.has_value();
    auto kernel = compiler.loadForward(mod, kernelOptions);
    if (!kernel) return std::move(kernel).error();

    if (options.scale) inputs.scale = float(*options.scale);
    inputs.captures = &captures;
    if (blockMask) inputs.blockMask = &*blockMask;
    auto workspace = memory.allocate(kernel->workspaceBytes());
    if (!workspace) return workspace.error();
    if (auto status = memory[memory.size() - 1].fill(0); !status) return status;

    auto ms = timed(stream, [&] { return kernel->launch(inputs, outputs, *workspace, stream.get()); });
    if (!ms) return ms.error();
    describeForward(*kernel, choice.passedOver, *ms);
    HostTensor* outputs[] = {&result.out, &result.lse, &result.rowMax};
    for (size_t i = 0; i < 3; ++i)
      if (auto status = memory[firstOutput + i].download(outputs[i]->bytes.data(), outputs[i]->bytes.size()); !status)
        return status;
    return {};
  }

  void describeForward(const ForwardKernel& kernel, const std::string& passedOver, float ms) {
    const CompiledKernel& compiled = kernel.compiled();
    result.warning = spillText(compiled);
    summary += fmt::format("forward     family {}{}, {} registers, {} bytes spilled; {:.3f} ms{}\n",
                           familyName(kernel.options().family), passedOver.empty() ? "" : " (" + passedOver + ")",
                           compiled.registers, compiled.spillBytes, ms, compileText(compiled));
  }

  const device::Context& context;
  const Mod& mod;
  const HostOperands& operands;
  const RunOptions& options;
  Compiler compiler;
  device::Stream stream;
  DeviceTensors memory;
  Operands inputs; // device memory
  Outputs outputs;        // device memory
  Captures captures;      // device memory
  size_t firstOutput = 0; // the buffers of out, lse and row_max start here
  std::optional<BlockMaskView> blockMask;
  RunResult result;
  std::string summary;
};

} // namespace

Expected<RunResult> runOnGpu(const device::Context& context, const Mod& mod, const HostOperands& operands,
                             const RunOptions& options) {
  return GpuRun(context, mod, operands, options).run();
}

} // namespace attnc::cli
