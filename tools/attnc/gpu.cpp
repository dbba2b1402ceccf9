#include "gpu.h"

#include "explanation.h"
#include "ragged.h"

#include <fmt/format.h>

#include <tuple>
#include <utility>
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

/// Milliseconds that work on a stream takes: the second of two runs, without the one-time costs of the first.
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
    auto prepared = options.backward
                        ? compiler.prepareTraining(mod, inputs, outputs, gradients, prepareOptions(options))
                        : compiler.prepare(mod, inputs, outputs, prepareOptions(options));
    if (!prepared) return std::move(prepared).error();
    auto workspace = memory.allocate(prepared->workspaceBytes());
    if (!workspace) return std::move(workspace).error();
    if (auto status = initialise(*prepared, *workspace); !status) return status.error();
    if (auto status = launch(*prepared, *workspace); !status) return status.error();
    if (auto status = download(); !status) return status.error();
    result.summary = fmt::format("device      {} ({})\n", context.info().name, context.info().arch) + summary;
    return std::move(result);
  }

private:
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

  /// Device memory for a result, which download() brings to `host`.
  Expected<TensorView> placeResult(HostTensor& host) {
    auto allocated = memory.allocate(host);
    if (allocated) results.emplace_back(memory.size() - 1, &host);
    return allocated;
  }

  Status download() {
    for (auto [buffer, host] : results)
      if (auto status = memory[buffer].download(host->bytes.data(), host->bytes.size()); !status) return status;
    return {};
  }

  /// The same for the backward pass.
  Status placeGradients() {
    inputs.out = *outputs.out;
    inputs.lse = *outputs.lse;
    auto dOut = memory.upload(operands.dOut);
    if (!dOut) return dOut.error();
    inputs.dOut = *dOut;
    if (operands.dLse) {
      auto dLse = memory.upload(*operands.dLse);
      if (!dLse) return dLse.error();
      inputs.dLse = *dLse;
    }
    for (auto [name, like, view] : {std::tuple("dq", &operands.q, &gradients.dQ),
                                    {"dk", &operands.k, &gradients.dK},
                                    {"dv", &operands.v, &gradients.dV}}) {
      HostTensor& host = result.gradients[name] = HostTensor::make(like->dtype, like->shape);
      auto placed = placeResult(host);
      if (!placed) return placed.error();
      *view = *placed;
    }
    for (const auto& [name, value] : operands.gradients.all()) {
      HostTensor& host = result.gradients["d_" + name] = HostTensor::like(std::get<TensorView>(value));
      auto placed = placeResult(host);
      if (!placed) return placed.error();
      captureGradients.set(name, *placed);
    }
    gradients.captures = &captureGradients;
    return {};
  }

  /// Uploads q, k and v, makes room for the results, and says what is computed.
  Status placeOperands() {
    std::vector<int64_t> rows = rowsOf(operands);
    result.lse = HostTensor::make(DType::F32, rows);
    result.rowMax = HostTensor::make(DType::F32, rows);
    rows.push_back(operands.v.shape[3]);
    result.out = HostTensor::make(operands.q.dtype, rows);
    const auto& cache = operands.cache;
    for (auto [name, host, view] : {std::tuple("", &operands.q, &inputs.q),
                                    {"k", cache ? &cache->k : &operands.k, &inputs.k},
                                    {"v", cache ? &cache->v : &operands.v, &inputs.v}}) {
      auto uploaded = memory.upload(*host);
      if (!uploaded) return uploaded.error();
      *view = *uploaded;
      if (!cache || !cache->newK || host == &operands.q) continue;
      HostTensor& after = result.cache[name] = HostTensor::make(host->dtype, host->shape);
      results.emplace_back(memory.size() - 1, &after);
    }
    std::vector<std::pair<const std::optional<HostTensor>*, std::optional<TensorView>*>> optional{
        {&operands.kvLengths, &inputs.kvLengths}, {&operands.qOffset, &inputs.qOffsets},
        {&operands.kScale, &inputs.kScales}, {&operands.vScale, &inputs.vScales}};
    if (cache)
      optional.insert(optional.end(),
                      {{&cache->pageTable, &inputs.pageTable}, {&cache->newK, &inputs.newK}, {&cache->newV, &inputs.newV}});
    for (auto [host, view] : optional) {
      if (!*host) continue;
      auto uploaded = memory.upload(**host);
      if (!uploaded) return uploaded.error();
      *view = *uploaded;
    }
    if (inputs.ragged = raggedOf(operands); inputs.ragged) {
      auto ofQ = memory.upload(*operands.cuSeqlensQ);
      if (!ofQ) return ofQ.error();
      inputs.ragged->cuSeqlensQ = *ofQ;
    }
    if (inputs.ragged && operands.cuSeqlensKv) {
      auto ofKv = memory.upload(*operands.cuSeqlensKv);
      if (!ofKv) return ofKv.error();
      inputs.ragged->cuSeqlensKv = *ofKv;
    }
    TensorView out, lse, rowMax;
    for (auto [host, view] :
         {std::pair(&result.out, &out), std::pair(&result.lse, &lse), std::pair(&result.rowMax, &rowMax)}) {
      auto placed = placeResult(*host);
      if (!placed) return placed.error();
      *view = *placed;
    }
    outputs.out = out;
    bool all = options.verify;
    if (all || options.lse || options.backward || options.output.empty()) outputs.lse = lse; // the digest prints it
    if (all || options.rowMax) outputs.rowMax = rowMax;
    if (options.scale) inputs.scale = float(*options.scale);
    inputs.captures = &captures;
    return options.backward ? placeGradients() : Status();
  }

  Status initialise(const Prepared& prepared, void* workspace) {
    auto ms = timed(stream, [&] { return prepared.initialise(inputs, workspace, stream.get()); });
    if (!ms) return ms.error();
    return prepared.blockMaskKernel() ? describeBlockMask(prepared, workspace, *ms) : Status();
  }

  /// Precondition: the workspace was allocated last.
  Status describeBlockMask(const Prepared& prepared, void* workspace, float ms) {
    const BlockMaskShape& shape = *prepared.preparation().blockMask;
    std::vector<char> host(BlockMask::storageBytes(shape));
    const auto* lists = reinterpret_cast<const char*>(prepared.blockMaskIn(workspace).partialCount);
    const size_t offset = size_t(lists - static_cast<const char*>(workspace));
    if (auto status = memory[memory.size() - 1].download(host.data(), host.size(), offset); !status) return status;
    auto mask = BlockMask::fromLists(BlockMask::viewInto(host.data(), shape));
    if (!mask) return Error::internal("the GPU built a block mask that is none: " + mask.error().message);
    summary += fmt::format("block mask  {} x {} blocks, {:.1f} % empty, {} live, {} full; {:.3f} ms{}\n", shape.qBlock,
                           shape.kvBlock, mask->sparsity(), mask->liveBlocks(), mask->fullBlocks(), ms,
                           compileText(prepared.blockMaskKernel()->compiled()));
    return {};
  }

  static std::string compileText(const CompiledStages& stages) {
    double ms = 0;
    for (const auto& stage : stages) ms += stage->compileMs;
    return ms == 0 ? " (kernel from the cache)" : fmt::format(" (kernel compiled in {:.0f} ms)", ms);
  }

  Status launch(const Prepared& prepared, void* workspace) {
    auto ms = timed(stream, [&] { return prepared.launch(inputs, outputs, workspace, stream.get()); });
    if (!ms) return ms.error();
    const Preparation& preparation = prepared.preparation();
    const bool isDecode = preparation.options.kind == KernelKind::Decode;
    describe(isDecode ? "decode" : "forward", preparation.options.family, preparation.passedOver, prepared.kernel().compiled(), *ms);
    if (!options.backward) return {};
    ms = timed(stream, [&] { return prepared.launchBackward(inputs, gradients, workspace, stream.get()); });
    if (!ms) return ms.error();
    const BackwardPreparation& backward = *preparation.backward;
    describe("backward", backward.options.family, backward.passedOver, prepared.backwardKernel()->compiled(), *ms);
    return {};
  }

  /// The line of a pass.
  void describe(const char* pass, Family family, const std::string& passedOver, const CompiledStages& stages,
                float ms) {
    std::string registers;
    int spilled = 0;
    for (const auto& stage : stages) {
      registers += fmt::format("{}{}", registers.empty() ? "" : " + ", stage->registers);
      spilled += stage->spillBytes;
    }
    spilledBytes += spilled;
    result.warning = spillText(spilledBytes);
    summary +=
        fmt::format("{:12}family {}{}, {} registers, {} bytes spilled; {:.3f} ms{}\n", pass, familyName(family),
                    passedOver.empty() ? "" : " (" + passedOver + ")", registers, spilled, ms, compileText(stages));
  }

  const device::Context& context;
  const Mod& mod;
  const HostOperands& operands;
  const RunOptions& options;
  Compiler compiler;
  device::Stream stream;
  DeviceTensors memory;
  BackwardOperands inputs;   // device memory; of a forward pass alone, the Operands in it
  Outputs outputs;           // device memory
  BackwardOutputs gradients; // device memory
  Captures captures;         // device memory
  Captures captureGradients; // device memory
  RunResult result;
  std::vector<std::pair<size_t, HostTensor*>> results; // buffers, and where in `result` they go
  int spilledBytes = 0;
  std::string summary;
};

} // namespace

Expected<RunResult> runOnGpu(const device::Context& context, const Mod& mod, const HostOperands& operands,
                             const RunOptions& options) {
  return GpuRun(context, mod, operands, options).run();
}

} // namespace attnc::cli
