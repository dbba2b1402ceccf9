// How long work on a GPU takes.
#pragma once

#include "tools/device/device.h"

#include <functional>

namespace attnc::device {

/// Times work that is enqueued on a stream, by events. Before each run the L2 cache is overwritten, so that operands come
/// from memory; the first runs, until clocks have risen, do not count. Needs a current context, and 256 MiB on the device.
class Timer {
public:
  static Expected<Timer> create();

  /// Median milliseconds of `run`, which enqueues on `stream`. Errors: those of `run`, and of the driver.
  Expected<double> medianMs(const Stream& stream, const std::function<Status()>& run);

  /// Median milliseconds of a launch among many behind one another in a CUDA graph: `run(i)` enqueues number i. They find in
  /// the L2 cache what the one before left there.
  Expected<double> graphMs(const Stream& stream, const std::function<Status(int)>& run, int launches);

  /// Bytes that a large copy within device memory reads and writes in a second, both counted.
  Expected<double> copyRate(const Stream& stream);

private:
  explicit Timer(Buffer flush) : flush(std::move(flush)) {}
  Buffer flush;
};

} // namespace attnc::device
