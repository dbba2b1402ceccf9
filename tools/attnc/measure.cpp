#include "measure.h"

#include "device_operands.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnc::cli {
namespace {

/// Rejects sequences of different lengths: pairs and columns are counted for equal ones.
Status checkAlike(const HostOperands& operands) {
  constexpr Features kTakes = {Feature::Fp8Kv, Feature::BlockMask, Feature::BoxMask, Feature::F32};
  const Features others = featuresOf(viewsOf(operands)).without(kTakes);
  if (others.empty()) return {};
  return Error::environment(fmt::format("bench counts the work of sequences that are all alike, and takes no {}",
                                        featureText(others.first())),
                            "`attnc run` tells how long such a launch takes");
}

} // namespace

Expected<Measured> measure(const Compiler& compiler, device::Timer& timer, const device::Stream& stream, const Mod& mod,
                           const HostOperands& operands, const RunOptions& options) {
  if (Status status = checkAlike(operands); !status) return std::move(status).error();
  DeviceOperands on(operands, options);
  if (Status status = on.place(); !status) return std::move(status).error();
  if (!options.backward && !options.lse) on.outputs.lse.reset();
  auto prepared = options.backward
                      ? compiler.prepareTraining(mod, on.inputs, on.outputs, on.gradients, prepareOptions(options))
                      : compiler.prepare(mod, on.inputs, on.outputs, prepareOptions(options));
  if (!prepared) return std::move(prepared).error();
  auto workspace = on.memory.allocate(prepared->workspaceBytes());
  if (!workspace) return std::move(workspace).error();
  const auto initialise = [&] { return prepared->initialise(on.inputs, *workspace, stream.get()); };
  const auto forward = [&] { return prepared->launch(on.inputs, on.outputs, *workspace, stream.get()); };
  const auto backward = [&] { return prepared->launchBackward(on.inputs, on.gradients, *workspace, stream.get()); };
  if (Status status = initialise(); !status) return std::move(status).error();
  if (Status status = forward(); !status) return std::move(status).error();
  if (Status status = stream.synchronize(); !status) return std::move(status).error();

  const Preparation& preparation = prepared->preparation();
  Measured measured;
  measured.kernel = options.backward ? preparation.backward->options : preparation.options;
  measured.passedOver = options.backward ? preparation.backward->passedOver : preparation.passedOver;
  measured.tile = options.backward ? preparation.backward->tile : preparation.tile;
  measured.isTuned = (options.backward ? preparation.backward->tileFrom : preparation.tileFrom) == TileFrom::Tuned;
  auto ms = options.backward ? timer.medianMs(stream, backward) : timer.medianMs(stream, forward);
  if (!ms) return std::move(ms).error();
  measured.ms = *ms;
  if (prepared->blockMaskKernel()) {
    auto building = timer.medianMs(stream, initialise);
    if (!building) return std::move(building).error();
    measured.blockMaskMs = *building;
  }
  for (const auto& stage : options.backward ? prepared->backwardKernel()->compiled() : prepared->kernel().compiled()) {
    measured.registers = std::max(measured.registers, stage->registers);
    measured.spillBytes += stage->spillBytes;
  }
  auto work = countWork(mod, operands.captures, measured.kernel, preparation.problem);
  if (!work) return std::move(work).error();
  measured.work = *work;
  return measured;
}

} // namespace attnc::cli
