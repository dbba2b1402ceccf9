#include "api/tune_trials.h"
#include "support/try.h"

#include <algorithm>
#include <cmath>

namespace attnc {
namespace {

/// Returns the milliseconds of one launch, averaged over `count`.
Expected<float> msOf(const PassToTune& pass, jit::Stopwatch& watch, const Trial& trial, int count) {
  auto ms = watch.ms(pass.stream, [&]() -> Status {
    for (int i = 0; i < count; ++i) ATTNC_TRY(pass.launch(trial.prepared, trial.workspace->data()));
    return {};
  });
  if (!ms) return ms;
  return *ms / float(count);
}

/// Warms up, and sets how many launches a sample has: enough for events to measure. The first sample is the time of one
/// launch.
Status warmUp(const PassToTune& pass, jit::Stopwatch& watch, std::vector<Trial>& trials) {
  constexpr float kSampleMs = 0.5f, kWarmUpMs = 20;
  constexpr int kMostLaunches = 50;
  for (Trial& trial : trials) {
    float once = 0;
    int launches = 0;
    for (float spent = 0; launches < 3 || (spent < kWarmUpMs && launches < kMostLaunches); ++launches) {
      ATTNC_TRY_AS(ms, msOf(pass, watch, trial, 1));
      once = launches ? std::min(once, *ms) : *ms;
      spent += *ms;
    }
    trial.launches = std::clamp(int(std::ceil(kSampleMs / std::max(once, 1e-3f))), 1, kMostLaunches);
    trial.samples.assign(1, once);
  }
  return {};
}

} // namespace

Status PassToTune::launch(const Prepared& prepared, void* workspace) const {
  if (isBackward) return prepared.launchBackward(training->operands, training->gradients, workspace, stream);
  return prepared.launch(operands, outputs, workspace, stream);
}

Status takeSamples(const PassToTune& pass, std::vector<Trial>& trials) {
  ATTNC_TRY_AS(watch, jit::Stopwatch::create());
  ATTNC_TRY(warmUp(pass, *watch, trials));
  constexpr float kTotalMs = 3000;
  float round = 0;
  for (const Trial& trial : trials) round += trial.samples[0] * float(trial.launches);
  for (Trial& trial : trials) trial.samples.clear();
  // Trials take turns in rounds, so that a temporary slowdown of the device affects all of them.
  const int rounds = std::clamp(int(kTotalMs / std::max(round, 1e-3f)), 7, 31);
  for (int i = 0; i < rounds; ++i)
    for (Trial& trial : trials) {
      ATTNC_TRY_AS(ms, msOf(pass, *watch, trial, trial.launches));
      trial.samples.push_back(*ms);
    }
  return {};
}

} // namespace attnc
