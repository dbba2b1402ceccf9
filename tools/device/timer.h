// Times work on a GPU.
#pragma once

#include "tools/device/device.h"

#include <functional>

namespace attnc::device {

/// Times work that is enqueued on a stream, by events. The L2 cache is overwritten before each run, so that operands
/// come from memory. The first runs do not count, until clocks have risen. Needs a current context, and 256 MiB on the
/// device.
class Timer {
public:
  static Expected<Timer> create();

  /// Lets later measurements run until the clock has settled under the limit of power, which takes half a second.
  void settle() { window = {700, 700, 5000}; }

  /// Returns the median milliseconds of `run`, which enqueues on `stream`. Errors: those of `run`, and of the driver.
  Expected<double> medianMs(const Stream& stream, const std::function<Status()>& run);

  /// Returns the median milliseconds of a launch among many successive ones in a CUDA graph; `run(i)` enqueues number
  /// i. Each finds in the L2 cache what the one before left there.
  Expected<double> graphMs(const Stream& stream, const std::function<Status(int)>& run, int launches);

  /// Returns the bytes per second that a large copy within device memory reads and writes, both counted.
  Expected<double> copyRate(const Stream& stream);

private:
  explicit Timer(Buffer flush) : flush(std::move(flush)) {}

  Buffer flush;
  /// Kernel time that does not count, then kernel time that does, and the most runs that count.
  struct Window {
    float warmUpMs = 20, measureMs = 60;
    size_t runs = 500;
  } window;
};

} // namespace attnc::device
