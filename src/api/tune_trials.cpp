#include "api/tune_trials.h"
#include "support/try.h"

#include <algorithm>
#include <cmath>

namespace attnc {

Status PassToTune::launch(const Prepared& prepared, void* workspace) const {
  if (isBackward) return prepared.launchBackward(training->operands, training->gradients, workspace, stream);
  return prepared.launch(operands, outputs, workspace, stream);
}

Status takeSamples(const PassToTune& pass, std::vector<Trial>& trials) {
  constexpr float kWarmUpMs = 1000, kSettleMs = 150, kBurstMs = 350;
  constexpr int kRounds = 3;
  ATTNC_TRY_AS(watch, jit::Stopwatch::create());
  // Returns the milliseconds of a launch among those that fill `total` if each takes `one`.
  const auto burst = [&](const Trial& trial, float total, float one) {
    const int launches = int(std::clamp(std::round(total / std::max(one, 1e-3f)), 1.f, 1e6f));
    return watch->ms(pass.stream, launches, [&] { return pass.launch(trial.prepared, trial.workspace.get()); });
  };
  std::vector<float> about;
  for (const Trial& trial : trials) {
    ATTNC_TRY_AS(once, burst(trial, 5, 1));
    about.push_back(*once);
  }
  ATTNC_TRY(burst(trials[0], kWarmUpMs, about[0])); // so that the first burst meets a warm GPU
  // Trials take turns, there and back, so that a slow change of the device affects all of them.
  for (int round = 0; round < kRounds; ++round)
    for (size_t turn = 0; turn < trials.size(); ++turn) {
      const size_t i = round % 2 ? trials.size() - 1 - turn : turn;
      ATTNC_TRY(burst(trials[i], kSettleMs, about[i])); // the clock settles under the power of these launches
      ATTNC_TRY_AS(ms, burst(trials[i], kBurstMs, about[i]));
      trials[i].samples.push_back(*ms);
    }
  return {};
}

} // namespace attnc
