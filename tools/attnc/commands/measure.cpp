#include "commands/measure.h"

#include "commands/device_operands.h"
#include "support/try.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnc::cli {
namespace {

/// Rejects sequences of different lengths: pairs and columns are counted for equal ones.
Status checkAlike(const HostOperands& operands) {
  constexpr Features kTakes = {Feature::Fp8Kv,     Feature::Fp8Q,    Feature::RowScales,
                               Feature::BlockMask, Feature::BoxMask, Feature::F32};
  const Features others = featuresOf(viewsOf(operands)).without(kTakes);
  if (others.empty()) return {};
  return Error::environment(fmt::format("bench counts the work of sequences that are all alike, and takes no {}",
                                        featureText(others.first())),
                            "`attnc run` tells how long such a launch takes");
}

} // namespace

Expected<Measured> measure(const Compiler& compiler, device::Timer& timer, const std::optional<device::Nvml>& nvml,
                           const device::Stream& stream, const Mod& mod, const HostOperands& operands,
                           const ProblemOptions& options) {
  ATTNC_TRY(checkAlike(operands));
  DeviceOperands on(operands, options);
  ATTNC_TRY(on.place());
  if (!options.backward && !options.lse) on.outputs.lse.reset();
  ATTNC_TRY_AS(prepared, on.prepare(compiler, mod));
  ATTNC_TRY_AS(workspace, on.memory.allocate(prepared->workspaceBytes()));
  const auto initialise = [&] { return prepared->initialise(on.inputs, *workspace, stream.get()); };
  const auto forward = [&] { return prepared->launch(on.inputs, on.outputs, *workspace, stream.get()); };
  const auto pass = [&] {
    return options.backward ? prepared->launchBackward(on.inputs, on.gradients, *workspace, stream.get()) : forward();
  };
  ATTNC_TRY(initialise());
  ATTNC_TRY(forward());
  ATTNC_TRY(stream.synchronize());

  const Preparation& preparation = prepared->preparation();
  Measured measured{.plan = preparation.last()};
  ATTNC_TRY_AS(ms, timer.medianMs(stream, pass));
  measured.ms = *ms;
  if (nvml) {
    ATTNC_TRY_AS(load, device::underLoad(*nvml, stream.get(), *ms, pass));
    measured.load = *load;
  }
  if (prepared->blockMaskKernel() && preparation.kernel.kvLoop() != KvLoop::Listed) { // else each launch builds it
    ATTNC_TRY_AS(building, timer.medianMs(stream, initialise));
    measured.blockMaskMs = *building;
  }
  for (const auto& stage : options.backward ? prepared->backwardKernel()->compiled() : prepared->kernel().compiled()) {
    measured.registers = std::max(measured.registers, stage->registers);
    measured.spillBytes += stage->spillBytes;
  }
  ATTNC_TRY_AS(work, countWork(measured.plan, operands.captures, preparation.problem));
  measured.work = *work;
  return measured;
}

} // namespace attnc::cli
