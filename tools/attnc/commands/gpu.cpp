#include "commands/gpu.h"

#include "commands/device_operands.h"
#include "show/explanation.h"
#include "support/try.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>
#include <vector>

namespace attnc::cli {
namespace {

/// Returns the milliseconds of work on a stream: the second of two runs, so that one-time costs do not count.
template <class Work> Expected<float> timed(const device::Stream& stream, Work work) {
  ATTNC_TRY(work());
  ATTNC_TRY_AS(begin, device::Event::create());
  ATTNC_TRY_AS(end, device::Event::create());
  ATTNC_TRY(begin->record(stream.get()));
  ATTNC_TRY(work());
  ATTNC_TRY(end->record(stream.get()));
  ATTNC_TRY(stream.synchronize());
  return end->msSince(*begin);
}

/// One run: its steps and their shared state.
class GpuRun {
public:
  GpuRun(const device::Context& context, const Mod& mod, const HostOperands& operands, const ProblemOptions& options)
      : context(context), mod(mod), options(options), compiler(options.kernel.toCompilerOptions()),
        on(operands, options) {}

  Expected<RunResult> run() {
    ATTNC_TRY_AS(created, device::Stream::create());
    stream = std::move(*created);
    ATTNC_TRY(on.place());
    ATTNC_TRY_AS(prepared, on.prepare(compiler, mod));
    ATTNC_TRY_AS(workspace, on.memory.allocate(prepared->workspaceBytes()));
    ATTNC_TRY(initialise(*prepared, *workspace));
    ATTNC_TRY(launch(*prepared, *workspace));
    ATTNC_TRY(on.download());
    on.result.facts["device"] = {{"name", context.info().name}, {"arch", context.info().arch}};
    on.result.summary = fmt::format("device      {} ({})\n", context.info().name, context.info().arch) + summary;
    return std::move(on.result);
  }

private:
  Status initialise(const Prepared& prepared, void* workspace) {
    auto ms = timed(stream, [&] { return prepared.initialise(on.inputs, workspace, stream.get()); });
    if (!ms) return ms.error();
    const bool hasLists = prepared.blockMaskKernel() && prepared.preparation().kernel.kvLoop() != KvLoop::Listed;
    return hasLists ? describeBlockMask(prepared, workspace, *ms) : Status();
  }

  /// Precondition: the workspace was allocated last.
  Status describeBlockMask(const Prepared& prepared, void* workspace, float ms) {
    const BlockMaskShape& shape = *prepared.preparation().blockMask;
    std::vector<char> host(BlockMask::storageBytes(shape));
    const auto* lists = reinterpret_cast<const char*>(prepared.blockMaskIn(workspace).partialCount);
    const size_t offset = size_t(lists - static_cast<const char*>(workspace));
    ATTNC_TRY(on.memory[on.memory.size() - 1].download(host.data(), host.size(), offset));
    auto mask = BlockMask::fromLists(BlockMask::viewInto(host.data(), shape));
    if (!mask) return Error::internal("the GPU built a block mask that is none: " + mask.error().message);
    const std::string blocks =
        shape.boxes ? fmt::format("boxes of {} queries and {} keys", fmt::join(shape.boxes->queries.box, "x"),
                                  fmt::join(shape.boxes->keys.box, "x"))
                    : fmt::format("{} x {} blocks", shape.qBlock, shape.kvBlock);
    on.result.facts["blockMask"] = {
        {"empty", mask->sparsity() / 100}, {"live", mask->liveBlocks()}, {"full", mask->fullBlocks()}, {"ms", ms}};
    summary +=
        fmt::format("block mask  {}, {:.1f} % empty, {} live, {} full; {:.3f} ms{}\n", blocks, mask->sparsity(),
                    mask->liveBlocks(), mask->fullBlocks(), ms, compileText(prepared.blockMaskKernel()->compiled()));
    return {};
  }

  static std::string compileText(const CompiledStages& stages) {
    double ms = 0;
    for (const auto& stage : stages) ms += stage->compileMs;
    return ms == 0 ? " (kernel from the cache)" : fmt::format(" (kernel compiled in {:.0f} ms)", ms);
  }

  Status launch(const Prepared& prepared, void* workspace) {
    auto ms = timed(stream, [&] { return prepared.launch(on.inputs, on.outputs, workspace, stream.get()); });
    if (!ms) return ms.error();
    const Preparation& preparation = prepared.preparation();
    const bool isDecode = preparation.kernel.options().kind == KernelKind::Decode;
    describe(isDecode ? "decode" : "forward", preparation.kernel, prepared.kernel().compiled(), *ms);
    if (!options.backward) return {};
    ms = timed(stream, [&] { return prepared.launchBackward(on.inputs, on.gradients, workspace, stream.get()); });
    if (!ms) return ms.error();
    describe("backward", *preparation.backward, prepared.backwardKernel()->compiled(), *ms);
    return {};
  }

  /// Adds the line of a pass.
  void describe(const char* pass, const Plan& plan, const CompiledStages& stages, float ms) {
    const Family family = plan.options().family;
    const std::string& passedOver = plan.passedOver();
    std::string registers;
    int spilled = 0;
    for (const auto& stage : stages) {
      registers += fmt::format("{}{}", registers.empty() ? "" : " + ", stage->registers);
      spilled += stage->spillBytes;
    }
    spilledBytes += spilled;
    on.result.warning = spillText(spilledBytes);
    JsonReport one{{"pass", pass}, {"family", familyName(family)}, {"ms", ms}, {"launches", JsonReport::array()}};
    if (!passedOver.empty()) one["passedOver"] = passedOver;
    for (const auto& stage : stages)
      one["launches"].push_back({{"entry", stage->entry},
                                 {"template", stage->templateName},
                                 {"registers", stage->registers},
                                 {"spillBytes", stage->spillBytes},
                                 {"compileMs", stage->compileMs}});
    on.result.facts["passes"].push_back(std::move(one));
    summary +=
        fmt::format("{:12}family {}{}, {} registers, {} bytes spilled; {:.3f} ms{}\n", pass, familyName(family),
                    passedOver.empty() ? "" : " (" + passedOver + ")", registers, spilled, ms, compileText(stages));
  }

  const device::Context& context;
  const Mod& mod;
  const ProblemOptions& options;
  Compiler compiler;
  device::Stream stream;
  DeviceOperands on;
  int spilledBytes = 0;
  std::string summary;
};

} // namespace

Expected<RunResult> runOnGpu(const device::Context& context, const Mod& mod, const HostOperands& operands,
                             const ProblemOptions& options) {
  return GpuRun(context, mod, operands, options).run();
}

} // namespace attnc::cli
