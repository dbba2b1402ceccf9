// Tuning: times the tiles of a kernel against each other on the given operands.
#include "attnc/tuning.h"

#include "api/compiler_impl.h"
#include "api/kernel_label.h"
#include "api/pack_maker.h"
#include "api/tune_choice.h"
#include "api/tune_results.h"
#include "api/tune_trials.h"
#include "support/parallel.h"
#include "support/try.h"

#include <fmt/format.h>

#include <ctime>
#include <utility>

namespace attnc {

/// The result of tuning one pass.
struct TunedPass {
  TunedKernel kernel;
  std::string tile;    ///< the winner's, as in PrepareOptions; empty for the model's own
  std::string tunedBy; ///< as in Preparation::tunedBy; empty if there was nothing to choose
};

namespace {

/// Returns the option that holds the tile of a pass.
std::string& tileOf(PrepareOptions& options, bool isBackward) {
  return isBackward ? options.backwardTile : options.tile;
}

/// Returns the views that the pass's launches write; every tile must give the same results.
std::vector<TensorView> resultsOf(const PassToTune& pass) {
  std::vector<TensorView> views;
  const auto add = [&](const std::optional<TensorView>& view) {
    if (view) views.push_back(*view);
  };
  if (pass.isBackward) {
    const BackwardOutputs& gradients = pass.training->gradients;
    add(gradients.dQ), add(gradients.dK), add(gradients.dV);
  } else {
    add(pass.outputs.out), add(pass.outputs.lse), add(pass.outputs.rowMax);
  }
  return views;
}

/// Keeps only the forward pass of what was settled for training: its trials need no backward kernels or workspace.
Preparation withoutBackward(Preparation preparation) {
  preparation.backward.reset();
  preparation.workspaceBytes = preparation.impl->workspace.bytes();
  return preparation;
}

/// Makes a tile ready, and launches it once. `shared`: the workspace of the earlier trials; null to allocate one.
Expected<Trial> readyTrial(const PassToTune& pass, Prepared prepared, size_t tile, std::shared_ptr<void> shared) {
  if (!shared) {
    ATTNC_TRY_AS(allocated, jit::allocate(prepared.workspaceBytes()));
    shared = *std::move(allocated);
  }
  ATTNC_TRY(prepared.initialise(pass.operands, shared.get(), pass.stream));
  if (pass.isBackward) // the backward pass reads what the forward pass writes
    ATTNC_TRY(prepared.launch(pass.operands, pass.outputs, shared.get(), pass.stream));
  ATTNC_TRY(pass.launch(prepared, shared.get()));
  ATTNC_TRY(jit::synchronize(pass.stream));
  return Trial{std::move(prepared), std::move(shared), tile, {}};
}

/// Returns the fastest trial whose results equal those of the first, the model's. Faster ones get the reason for their
/// rejection in `tiles`.
Expected<size_t> winnerOf(const PassToTune& pass, const std::vector<Trial>& trials, bool tf32,
                          std::vector<TunedTile>& tiles) {
  const auto results = [&](const Trial& trial) -> Expected<LaunchResults> {
    ATTNC_TRY(pass.launch(trial.prepared, trial.workspace.get()));
    return LaunchResults::of(resultsOf(pass), pass.stream);
  };
  std::vector<double> ms;
  for (const Trial& trial : trials) ms.push_back(tiles[trial.tile].ms);
  ATTNC_TRY_AS(expected, results(trials[0]));
  for (size_t i : byGain(ms)) {
    if (i == 0) break;
    ATTNC_TRY_AS(found, results(trials[i]));
    const std::string wrong = differenceOf(*expected, *found, tf32);
    if (wrong.empty()) return i;
    tiles[trials[i].tile].passedOver = "its results are not those of the model's tile: " + wrong;
  }
  return size_t(0);
}

std::string nowText() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

} // namespace

Expected<TunedPass> Compiler::Impl::tunePass(const Compiler& compiler, const Mod& mod, const PassToTune& pass,
                                             const PrepareOptions& options) {
  Impl& impl = *compiler.impl;
  const auto settled = [&](const std::string& tile) {
    PrepareOptions one = options;
    tileOf(one, pass.isBackward) = tile;
    return impl.settle(mod, pass.operands, pass.outputs, one, Lookup::None, pass.training);
  };
  ATTNC_TRY_AS(model, settled({}));
  const Plan& plan = pass.isBackward ? *model->backward : model->kernel;
  const KernelOptions kernel = plan.options();
  const ProblemShape& problem = model->problem;
  if (problem.batch * problem.qHeads * problem.qLen == 0 || problem.kvLen == 0)
    return Error::environment("there is nothing to measure: the problem is empty");
  ATTNC_TRY_AS(device, jit::currentDevice());
  TunedPass tuned;
  std::vector<TunedTile>& tiles = tuned.kernel.tiles;
  tiles.push_back({.tile = plan.tile()}); // the model's for this launch
  for (const std::string& tile : plan.tiles())
    if (tile != tiles.front().tile) tiles.push_back({.tile = tile});

  // Compiles all tiles ahead, so that preparing finds them. The threads that compile have no CUDA context.
  std::vector<Expected<Preparation>> candidates;
  for (const TunedTile& tile : tiles) candidates.push_back(settled(tile.tile));
  std::vector<Status> compiled(tiles.size());
  parallelForEach(int64_t(tiles.size()), [&](int64_t i) {
    const auto build = [&]() -> Status {
      const Expected<Preparation>& one = candidates[size_t(i)];
      if (!one) return one.error();
      ATTNC_TRY(impl.build(pass.isBackward ? *one->backward : one->kernel));
      return {};
    };
    compiled[size_t(i)] = build();
  });
  std::vector<Trial> trials;
  std::shared_ptr<void> shared;
  size_t sharedBytes = 0;
  for (size_t i = 0; i < tiles.size(); ++i) {
    const auto ready = [&]() -> Expected<Trial> {
      if (!compiled[i]) return compiled[i].error();
      Preparation one = *std::move(candidates[i]);
      ATTNC_TRY_AS(prepared,
                   Impl::prepared(compiler, pass.isBackward ? std::move(one) : withoutBackward(std::move(one))));
      const size_t bytes = prepared->workspaceBytes();
      // The forward kernel is the same in all trials, and each launch resets what a backward kernel needs.
      const bool shares = pass.isBackward && bytes <= sharedBytes;
      Expected<Trial> trial = readyTrial(pass, *std::move(prepared), i, shares ? shared : nullptr);
      if (trial && !shares) shared = trial->workspace, sharedBytes = bytes;
      return trial;
    };
    Expected<Trial> trial = ready();
    if (!trial && i == 0) return trial.error();
    if (trial)
      trials.push_back(*std::move(trial));
    else
      tiles[i].passedOver = trial.error().message;
  }
  ATTNC_TRY(takeSamples(pass, trials));
  for (const Trial& trial : trials) tiles[trial.tile].ms = steadyMs(trial.samples);
  ATTNC_TRY_AS(winner, winnerOf(pass, trials, kernel.tf32, tiles));
  const std::string label = kernelLabel(mod, kernel);
  for (const Trial& trial : trials)
    if (const TunedTile& tile = tiles[trial.tile]; !tile.passedOver.empty())
      impl.log.warn(fmt::format("tile {} of {}: {}", tile.tile, label, tile.passedOver));
  TunedTile& won = tiles[trials[*winner].tile];
  won.isWinner = true;
  if (*winner != 0) tuned.tile = won.tile; // else the model's, as a launch takes it
  if (tiles.size() == 1) return tuned;

  const std::string& shapeClass = pass.isBackward ? model->impl->backwardShapeClass : model->impl->shapeClass;
  cache::TunedChoice choice{.key = tunedKey(device->name, mod, kernel, shapeClass),
                            .kernel = label,
                            .tile = won.tile,
                            .times = {},
                            .date = nowText(),
                            .maker = packMaker()};
  for (const TunedTile& tile : tiles)
    if (tile.ms > 0) choice.times.emplace_back(tile.tile, tile.ms);
  tuned.kernel.file = impl.tuned.keep(choice);
  tuned.tunedBy = tunedByOf(choice, tuned.kernel.file);
  impl.log.line(fmt::format("tuned {} for {}: {}", choice.kernel, device->name, choice.tile));
  return tuned;
}

Expected<Tuning> Compiler::Impl::tune(const Compiler& compiler, const Mod& mod, const Operands& operands,
                                      const Outputs& outputs, const PrepareOptions& options, Stream stream,
                                      const Training* training) {
  if (!options.tile.empty() && (!training || !options.backwardTile.empty()))
    return Error::environment("tuning chooses a tile, and one is asked for",
                              training ? "leave PrepareOptions::tile or backwardTile empty, or both"
                                       : "leave PrepareOptions::tile empty");
  if (training && options.backwardTile.empty() &&
      !(training->gradients.dQ && training->gradients.dK && training->gradients.dV))
    return Error::environment(
        "gradients of q, k and v are not all given, by which tiles of a backward kernel are compared");
  // The forward pass's tile is chosen first, since the backward pass is measured after it.
  PrepareOptions chosen = options;
  std::optional<TunedKernel> kernels[2];
  std::string tunedBy[2];
  for (bool isBackward : {false, true}) {
    std::string& tile = tileOf(chosen, isBackward);
    if ((isBackward && !training) || !tile.empty()) continue;
    ATTNC_TRY_AS(tuned, tunePass(compiler, mod, {operands, outputs, training, isBackward, stream}, chosen));
    tile = std::move(tuned->tile);
    tunedBy[isBackward] = std::move(tuned->tunedBy);
    kernels[isBackward] = std::move(tuned->kernel);
  }
  if (training && !kernels[true]) kernels[true].emplace();
  ATTNC_TRY_AS(preparation, compiler.impl->settle(mod, operands, outputs, chosen, Lookup::None, training));
  const auto tell = [](Plan& plan, std::string& by) {
    if (by.empty()) return;
    PlanAccess::Impl told = PlanAccess::of(plan);
    told.tileFrom = TileFrom::Tuned;
    told.tunedBy = std::move(by);
    plan = PlanAccess::make(std::move(told));
  };
  tell(preparation->kernel, tunedBy[0]);
  if (training) tell(*preparation->backward, tunedBy[1]);
  return Tuning{*std::move(preparation), kernels[false].value_or(TunedKernel{}), std::move(kernels[true])};
}

Expected<Tuning> Compiler::tune(const Mod& mod, const Operands& operands, const Outputs& outputs,
                                const PrepareOptions& options, Stream stream) const {
  return Impl::tune(*this, mod, operands, outputs, options, stream);
}

Expected<Tuning> Compiler::tuneTraining(const Mod& mod, const BackwardOperands& operands, const Outputs& outputs,
                                        const BackwardOutputs& gradients, const PrepareOptions& options,
                                        Stream stream) const {
  const Training training{operands, gradients};
  return Impl::tune(*this, mod, operands, outputs, options, stream, &training);
}

} // namespace attnc
