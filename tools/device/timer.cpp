#include "tools/device/timer.h"

#include <algorithm>
#include <vector>

namespace attnc::device {

namespace {

constexpr size_t kFlushBytes = size_t(256) << 20;

} // namespace

Expected<Timer> Timer::create() {
  auto flush = Buffer::allocate(kFlushBytes);
  if (!flush) return std::move(flush).error();
  return Timer(*std::move(flush));
}

Expected<double> Timer::medianMs(const Stream& stream, const std::function<Status()>& run) {
  auto begin = Event::create();
  if (!begin) return std::move(begin).error();
  auto end = Event::create();
  if (!end) return std::move(end).error();
  std::vector<float> times;
  constexpr float kWarmUpMs = 20, kMeasureMs = 60; // kernel time: clocks rise, and then settle
  for (float spent = 0; times.size() < 5 || (spent < kWarmUpMs + kMeasureMs && times.size() < 500);) {
    if (Status status = flush.fillAsync(uint8_t(times.size()), stream.get()); !status) return std::move(status).error();
    if (Status status = begin->record(stream.get()); !status) return std::move(status).error();
    if (Status status = run(); !status) return std::move(status).error();
    if (Status status = end->record(stream.get()); !status) return std::move(status).error();
    if (Status status = end->synchronize(); !status) return std::move(status).error();
    auto ms = end->msSince(*begin);
    if (!ms) return std::move(ms).error();
    if (spent >= kWarmUpMs) times.push_back(*ms);
    spent += *ms;
  }
  std::nth_element(times.begin(), times.begin() + long(times.size() / 2), times.end());
  return times[times.size() / 2];
}

Expected<double> Timer::graphMs(const Stream& stream, const std::function<Status(int)>& run, int launches) {
  if (Status status = stream.beginCapture(); !status) return std::move(status).error();
  Status enqueued;
  for (int i = 0; i < launches && enqueued; ++i) enqueued = run(i);
  auto graph = stream.endCapture(); // must be called in any case
  if (!enqueued) return std::move(enqueued).error();
  if (!graph) return std::move(graph).error();
  auto ms = medianMs(stream, [&] { return graph->launch(stream.get()); });
  if (!ms) return ms;
  return *ms / launches;
}

Expected<double> Timer::copyRate(const Stream& stream) {
  constexpr size_t kCopyBytes = size_t(512) << 20; // far beyond any L2 cache
  auto from = Buffer::allocate(kCopyBytes);
  if (!from) return std::move(from).error();
  auto to = Buffer::allocate(kCopyBytes);
  if (!to) return std::move(to).error();
  if (Status status = from->fill(0x5a); !status) return std::move(status).error();
  auto ms = medianMs(stream, [&] { return to->copyAsync(*from, stream.get()); });
  if (!ms) return ms;
  return 2 * double(kCopyBytes) / (*ms * 1e-3);
}

} // namespace attnc::device
