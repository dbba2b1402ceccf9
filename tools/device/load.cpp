#include "tools/device/load.h"

#include "tools/device/functions.h"

#include "jit/measure.h"
#include "support/try.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>
#include <vector>

namespace attnc::device {

namespace {

struct Sample {
  double seconds, joules, mhz;
};

/// Returns the samples of counters that another thread takes while `work` runs.
std::vector<Sample> watched(const Nvml& nvml, const std::function<void()>& work) {
  using namespace std::chrono;
  std::vector<Sample> samples;
  std::atomic<bool> isDone = false;
  std::thread watch([&] {
    while (!isDone) {
      samples.push_back({duration<double>(steady_clock::now().time_since_epoch()).count(), nvml.joules(), nvml.mhz()});
      std::this_thread::sleep_for(milliseconds(10));
    }
  });
  work();
  isDone = true;
  watch.join();
  return samples;
}

} // namespace

std::optional<Nvml> Nvml::open(const std::string& uuid) {
  std::string why;
  const auto library = jit::DynamicLibrary::open("libnvidia-ml.so.1", why);
  if (!library) return std::nullopt;
  int (*initialise)() = nullptr;
  int (*find)(const char* uuid, void** device) = nullptr;
  Nvml nvml;
  const auto bind = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(library->symbol(name));
    return function != nullptr;
  };
  unsigned long long millijoules = 0;
  const bool isHere = bind(initialise, "nvmlInit_v2") && bind(find, "nvmlDeviceGetHandleByUUID") &&
                      bind(nvml.energyOf, "nvmlDeviceGetTotalEnergyConsumption") &&
                      bind(nvml.clockOf, "nvmlDeviceGetClockInfo") && initialise() == 0 &&
                      find(uuid.c_str(), &nvml.device) == 0 && nvml.energyOf(nvml.device, &millijoules) == 0;
  return isHere ? std::optional(nvml) : std::nullopt;
}

double Nvml::joules() const {
  unsigned long long millijoules = 0;
  energyOf(device, &millijoules);
  return double(millijoules) * 1e-3;
}

double Nvml::mhz() const {
  constexpr int kSm = 1; // NVML_CLOCK_SM
  unsigned mhz = 0;
  clockOf(device, kSm, &mhz);
  return mhz;
}

Expected<std::string> uuid() {
  ATTNC_TRY_AS(info, jit::currentDevice());
  ATTNC_TRY_AS(functions, Functions::get());
  CUuuid raw = {};
  ATTNC_TRY((*functions)->check((*functions)->cuDeviceGetUuid(&raw, info->ordinal), "cuDeviceGetUuid"));
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i)
    text += fmt::format("{}{:02x}", i == 0 || (i >= 4 && i <= 10 && i % 2 == 0) ? "-" : "", uint8_t(raw.bytes[i]));
  return text;
}

Expected<std::optional<Load>> underLoad(const Nvml& nvml, CUstream_st* stream, double ms,
                                        const std::function<Status()>& run) {
  constexpr double kBurstMs = 1000;
  ATTNC_TRY_AS(watch, jit::Stopwatch::create());
  const auto burst = [&](double total, double one) {
    return watch->ms(stream, int(std::clamp(std::round(total / std::max(one, 1e-3)), 2., 1e6)), run);
  };
  ATTNC_TRY_AS(settled, burst(kBurstMs / 4, ms));
  std::optional<Expected<float>> taken;
  const std::vector<Sample> samples = watched(nvml, [&] { taken = burst(kBurstMs, *settled); });
  if (!*taken) return taken->error();
  // Between the first and the last move of the counter.
  const Sample *first = nullptr, *last = nullptr;
  Load load{.ms = **taken};
  for (size_t i = 0; i < samples.size(); ++i) {
    load.mhz += samples[i].mhz / double(samples.size());
    if (i == 0 || samples[i].joules == samples[i - 1].joules) continue;
    last = &samples[i];
    if (!first) first = last;
  }
  if (first == last) return std::optional<Load>();
  load.joules = (last->joules - first->joules) / (last->seconds - first->seconds) * load.ms * 1e-3;
  return std::optional(load);
}

} // namespace attnc::device
