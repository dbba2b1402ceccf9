#include "tools/device/timer.h"
#include "support/try.h"

#include <algorithm>
#include <vector>

namespace attnc::device {

namespace {

constexpr size_t kFlushBytes = size_t(256) << 20;

} // namespace

Expected<Timer> Timer::create() {
  ATTNC_TRY_AS(flush, Buffer::allocate(kFlushBytes));
  return Timer(*std::move(flush));
}

Expected<double> Timer::medianMs(const Stream& stream, const std::function<Status()>& run) {
  ATTNC_TRY_AS(begin, Event::create());
  ATTNC_TRY_AS(end, Event::create());
  std::vector<float> times;
  const float total = window.warmUpMs + window.measureMs;
  for (float spent = 0; times.size() < 5 || (spent < total && times.size() < window.runs);) {
    ATTNC_TRY(flush.fillAsync(uint8_t(times.size()), stream.get()));
    ATTNC_TRY(begin->record(stream.get()));
    ATTNC_TRY(run());
    ATTNC_TRY(end->record(stream.get()));
    ATTNC_TRY(end->synchronize());
    ATTNC_TRY_AS(ms, end->msSince(*begin));
    if (spent >= window.warmUpMs) times.push_back(*ms);
    spent += *ms;
  }
  std::nth_element(times.begin(), times.begin() + long(times.size() / 2), times.end());
  return times[times.size() / 2];
}

Expected<double> Timer::graphMs(const Stream& stream, const std::function<Status(int)>& run, int launches) {
  ATTNC_TRY(stream.beginCapture());
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
  ATTNC_TRY_AS(from, Buffer::allocate(kCopyBytes));
  ATTNC_TRY_AS(to, Buffer::allocate(kCopyBytes));
  ATTNC_TRY(from->fill(0x5a));
  auto ms = medianMs(stream, [&] { return to->copyAsync(*from, stream.get()); });
  if (!ms) return ms;
  return 2 * double(kCopyBytes) / (*ms * 1e-3);
}

} // namespace attnc::device
