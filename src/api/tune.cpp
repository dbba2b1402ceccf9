// Tuning: the tiles of a kernel timed against each other on the operands given.
#include "attnc/tuning.h"

#include "api/compiler_impl.h"
#include "api/kernel_label.h"
#include "api/on_all_cores.h"
#include "api/pack_maker.h"
#include "api/tune_choice.h"
#include "ir/element.h"
#include "jit/measure.h"
#include "reference/compare.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>

namespace attnc {
namespace {

/// A tile that is ready to be launched, and what it took so far.
struct Trial {
  Prepared prepared;
  jit::DeviceMemory workspace;
  size_t tile;      ///< index among all
  int launches = 1; ///< of a sample
  std::vector<float> samples;
};

/// What launches are given.
struct Bench {
  const Operands& operands;
  const Outputs& outputs;
  Stream stream;
  jit::Stopwatch watch;

  Status launch(const Trial& trial) const {
    return trial.prepared.launch(operands, outputs, trial.workspace.data(), stream);
  }
  /// Milliseconds of one of `count` launches.
  Expected<float> ms(const Trial& trial, int count) {
    auto ms = watch.ms(stream, [&]() -> Status {
      for (int i = 0; i < count; ++i)
        if (Status status = launch(trial); !status) return status;
      return {};
    });
    if (!ms) return ms;
    return *ms / float(count);
  }
};

/// Warms up, and sets how many launches a sample has: so many that events tell them from nothing.
Status warmUp(Bench& bench, std::vector<Trial>& trials) {
  constexpr float kSampleMs = 0.5f, kWarmUpMs = 20;
  constexpr int kMostLaunches = 50;
  for (Trial& trial : trials) {
    float once = 0;
    int launches = 0;
    for (float spent = 0; launches < 3 || (spent < kWarmUpMs && launches < kMostLaunches); ++launches) {
      auto ms = bench.ms(trial, 1);
      if (!ms) return ms.error();
      once = launches ? std::min(once, *ms) : *ms;
      spent += *ms;
    }
    trial.launches = std::clamp(int(std::ceil(kSampleMs / std::max(once, 1e-3f))), 1, kMostLaunches);
    trial.samples.assign(1, once);
  }
  return {};
}

/// Rounds in which each takes its turn, so that what slows the device for a while slows all of them.
Status takeSamples(Bench& bench, std::vector<Trial>& trials) {
  constexpr float kTotalMs = 3000;
  float round = 0;
  for (const Trial& trial : trials) round += trial.samples[0] * float(trial.launches);
  for (Trial& trial : trials) trial.samples.clear();
  const int rounds = std::clamp(int(kTotalMs / std::max(round, 1e-3f)), 7, 31);
  for (int i = 0; i < rounds; ++i)
    for (Trial& trial : trials) {
      auto ms = bench.ms(trial, trial.launches);
      if (!ms) return ms.error();
      trial.samples.push_back(*ms);
    }
  return {};
}

/// A tensor's elements, by offset, brought back from a device.
struct Brought {
  std::vector<char> bytes;
  int64_t first = 0; ///< least offset of an element

  static Expected<Brought> of(const TensorView& view, Stream stream) {
    Brought brought;
    if (view.elements() == 0) return brought;
    int64_t last = 0;
    for (int axis = 0; axis < view.rank; ++axis) {
      const int64_t reach = (view.shape[size_t(axis)] - 1) * view.stride[size_t(axis)];
      (reach < 0 ? brought.first : last) += reach;
    }
    const int64_t size = dtypeBytes(view.dtype);
    brought.bytes.resize(size_t((last - brought.first + 1) * size));
    const char* begin = static_cast<const char*>(view.data) + brought.first * size;
    if (Status done = jit::bringBack(brought.bytes.data(), begin, brought.bytes.size(), stream); !done)
      return done.error();
    return brought;
  }
};

/// Calls `body(offset)` for each element of a view.
template <class Body> void forElements(const TensorView& view, const Body& body) {
  std::array<int64_t, TensorView::kMaxRank> at{};
  for (int64_t left = view.elements(), offset = 0; left > 0; --left) {
    body(offset);
    for (int axis = view.rank - 1; axis >= 0; --axis) {
      const size_t i = size_t(axis);
      offset += view.stride[i];
      if (++at[i] < view.shape[i]) break;
      offset -= view.shape[i] * view.stride[i];
      at[i] = 0;
    }
  }
}

/// What rounding in another order may change, of the largest element.
double toleranceOf(DType dtype, bool tf32) {
  if (dtype == DType::F32) return tf32 ? 5e-3 : 1e-4;
  return dtype == DType::F16 ? 0x1p-8 : 0x1p-6;
}

/// Why two tensors of one view are not the same up to rounding; empty: they are.
std::string difference(const TensorView& view, const Brought& model, const Brought& other, double tolerance) {
  const auto at = [&](const Brought& brought, int64_t offset) {
    return double(ir::readElement(brought.bytes.data(), view.dtype, offset - brought.first).real);
  };
  double largest = 0;
  forElements(view, [&](int64_t offset) {
    if (const double value = std::fabs(at(model, offset)); std::isfinite(value)) largest = std::max(largest, value);
  });
  reference::Comparison comparison({.absolute = tolerance * largest, .relative = tolerance});
  forElements(view, [&](int64_t offset) { comparison.add(at(other, offset), at(model, offset)); });
  return comparison.firstBadText();
}

/// What a launch writes.
struct TrialResults {
  std::vector<std::pair<TensorView, Brought>> tensors;

  static Expected<TrialResults> of(const Bench& bench, const Trial& trial) {
    if (Status status = bench.launch(trial); !status) return status.error();
    TrialResults results;
    for (const std::optional<TensorView>* view : {&bench.outputs.out, &bench.outputs.lse, &bench.outputs.rowMax}) {
      if (!*view) continue;
      auto brought = Brought::of(**view, bench.stream);
      if (!brought) return std::move(brought).error();
      results.tensors.emplace_back(**view, *std::move(brought));
    }
    return results;
  }
};

/// Why results are not those of the model's tile; empty: they are.
std::string difference(const TrialResults& model, const TrialResults& other, bool tf32) {
  for (size_t i = 0; i < model.tensors.size(); ++i) {
    const auto& [view, brought] = model.tensors[i];
    const double tolerance = toleranceOf(view.dtype, tf32);
    if (std::string what = difference(view, brought, other.tensors[i].second, tolerance); !what.empty()) return what;
  }
  return {};
}

std::string nowText() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", parts);
}

} // namespace

Expected<Tuning> Compiler::Impl::tune(const Compiler& compiler, const Mod& mod, const Operands& operands,
                                      const Outputs& outputs, const PrepareOptions& options, Stream stream) {
  Impl& impl = *compiler.impl;
  if (!options.tile.empty())
    return Error::environment("tuning chooses a tile, and one is asked for", "leave PrepareOptions::tile empty");
  Expected<Settled> model = impl.settle(mod, operands, outputs, options, Lookup::None);
  if (!model) return model.error();
  const KernelOptions& kernel = model->preparation.options;
  const ProblemShape& problem = model->preparation.problem;
  if (problem.batch * problem.qHeads * problem.qLen == 0 || problem.kvLen == 0)
    return Error::environment("there is nothing to measure: the problem is empty");
  Expected<jit::DeviceInfo> device = jit::currentDevice();
  if (!device) return device.error();
  Expected<std::vector<std::string>> tiles = compiler.tiles(mod, kernel);
  if (!tiles) return tiles.error();
  Tuning tuning;
  for (const std::string& tile : *tiles) tuning.tiles.push_back({.tile = tile});
  if (tuning.tiles.empty()) tuning.tiles.emplace_back();

  // Preparing finds them compiled then.
  std::vector<Status> compiled(tuning.tiles.size());
  const auto optionsOf = [&](size_t i) { return i == 0 ? std::string() : tuning.tiles[i].tile; };
  onAllCores(tuning.tiles.size(), [&](size_t i) {
    KernelOptions one = kernel;
    one.tile = optionsOf(i);
    if (auto build = impl.build(mod, one); !build) compiled[i] = build.error();
    return true;
  });
  auto watch = jit::Stopwatch::create();
  if (!watch) return std::move(watch).error();
  Bench bench{operands, outputs, stream, *std::move(watch)};
  std::vector<Trial> trials;
  for (size_t i = 0; i < tuning.tiles.size(); ++i) {
    const auto ready = [&]() -> Expected<Trial> {
      if (!compiled[i]) return compiled[i].error();
      PrepareOptions one = options;
      one.tile = optionsOf(i);
      Expected<Settled> settled = impl.settle(mod, operands, outputs, one, Lookup::None);
      if (!settled) return settled.error();
      Expected<Prepared> prepared = Impl::prepared(compiler, mod, *std::move(settled));
      if (!prepared) return prepared.error();
      auto workspace = jit::DeviceMemory::allocate(prepared->workspaceBytes());
      if (!workspace) return std::move(workspace).error();
      if (Status status = prepared->initialise(operands, workspace->data(), stream); !status) return status.error();
      Trial trial{*std::move(prepared), *std::move(workspace), i, 1, {}};
      if (Status status = bench.launch(trial); !status) return status.error();
      if (Status status = jit::synchronize(stream); !status) return status.error();
      return trial;
    };
    Expected<Trial> trial = ready();
    if (!trial && i == 0) return trial.error();
    if (trial)
      trials.push_back(*std::move(trial));
    else
      tuning.tiles[i].passedOver = trial.error().message;
  }

  if (Status status = warmUp(bench, trials); !status) return status.error();
  if (Status status = takeSamples(bench, trials); !status) return status.error();
  std::vector<double> ms;
  for (const Trial& trial : trials) {
    ms.push_back(steadyMs(trial.samples));
    tuning.tiles[trial.tile].ms = ms.back();
  }
  auto expected = TrialResults::of(bench, trials[0]);
  if (!expected) return std::move(expected).error();
  for (size_t i : byGain(ms)) {
    TunedTile& tile = tuning.tiles[trials[i].tile];
    if (i != 0) {
      auto results = TrialResults::of(bench, trials[i]);
      if (!results) return std::move(results).error();
      tile.passedOver = difference(*expected, *results, kernel.tf32);
      if (!tile.passedOver.empty()) {
        tile.passedOver = "its results are not those of the model's tile: " + tile.passedOver;
        impl.log.warn(fmt::format("tile {} of {}: {}", tile.tile, kernelLabel(mod, kernel), tile.passedOver));
        continue;
      }
    }
    tile.isWinner = true;
    tuning.preparation = trials[i].prepared.preparation();
    break;
  }
  if (tuning.tiles.size() == 1) return tuning;

  cache::TunedChoice choice{.key = tunedKey(device->name, mod, kernel, model->shapeClass),
                            .kernel = kernelLabel(mod, kernel),
                            .tile = tuning.preparation.tile,
                            .times = {},
                            .date = nowText(),
                            .maker = packMaker()};
  for (const TunedTile& tile : tuning.tiles)
    if (tile.ms > 0) choice.times.emplace_back(tile.tile, tile.ms);
  tuning.file = impl.tuned.keep(choice);
  tuning.preparation.tileFrom = TileFrom::Tuned;
  tuning.preparation.tunedBy = tunedByOf(choice, tuning.file);
  impl.log.line(fmt::format("tuned {} for {}: {}", choice.kernel, device->name, choice.tile));
  return tuning;
}

Expected<Tuning> Compiler::tune(const Mod& mod, const Operands& operands, const Outputs& outputs,
                                const PrepareOptions& options, Stream stream) const {
  return Impl::tune(*this, mod, operands, outputs, options, stream);
}

} // namespace attnc
