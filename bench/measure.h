// Measures one case: places its operands in device memory, checks the launch against the naive kernel, times it, and
// returns a row of results.
#pragma once

#include "cases.h"

#include "attnc/attnc.h"
#include "tools/device/device.h"
#include "tools/device/timer.h"

#include <nlohmann/json.hpp>

#include <chrono>
#include <cmath>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace attnc::bench {

/// Returns the value or throws the error, which becomes the case's "error".
template <class T> T take(Expected<T> value) {
  if (!value) throw std::runtime_error(value.error().message);
  return *std::move(value);
}
inline void take(const Status& status) {
  if (!status) throw std::runtime_error(status.error().message);
}

using Clock = std::chrono::steady_clock;
inline double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}
inline double rounded(double value, int digits) {
  return std::round(value * std::pow(10, digits)) / std::pow(10, digits);
}

/// State that all cases share.
struct Bench {
  std::string mods;
  Family family = Family::Auto;
  bool again = false; ///< An earlier run has checked the results: kernels come from the disk cache, unchecked.
  Compiler compiler{{.cacheMode = again ? CompilerOptions::CacheMode::ReadWrite : CompilerOptions::CacheMode::Off}};
  device::Stream stream = take(device::Stream::create());
  device::Timer timer = take(device::Timer::create());

  /// As Timer::medianMs(), for work that throws.
  double medianMs(const std::function<void()>& run);
  double graphMs(const std::function<void(int)>& run, int launches);
};

/// A tensor in device memory.
struct DeviceTensor {
  device::Buffer buffer;
  TensorView view;
};

/// Allocates a dense tensor: uninitialised, or filled with bytes 0xff, which are NaN in every floating-point dtype. So
/// an element that a kernel does not write is noticed.
DeviceTensor allocate(DType dtype, std::initializer_list<int64_t> shape);
DeviceTensor allocateNaN(DType dtype, std::initializer_list<int64_t> shape);
DeviceTensor upload(const void* values, DType dtype, std::initializer_list<int64_t> shape);

/// The same with the shape, dtype and strides of another tensor, which has no gaps.
DeviceTensor allocateNaNLike(const DeviceTensor& tensor);

/// Draws random normal values of a 16-bit dtype or of E4M3, the same in every run. `seed` distinguishes tensors.
/// `roundedTo`: E4M3 for values that E4M3 represents, stored in another dtype.
DeviceTensor drawNormal(DType dtype, std::initializer_list<int64_t> shape, uint64_t seed, float std = 1,
                        std::optional<DType> roundedTo = {});

/// Copies the elements of a tensor of a 16-bit dtype to host memory.
std::vector<uint16_t> download(const DeviceTensor& tensor);

/// Compares rows of gradients, element by element, in units of the expected row's root mean square. Rows differ in size
/// by far more than rounding errors do, so with one tolerance for all, a row could be entirely wrong and pass. Returns
/// the largest error. Throws std::exception for one beyond the tolerance.
double compareRows(const char* name, const DeviceTensor& actual, const DeviceTensor& expected);

/// The same for some rows of a tensor in host memory. `rows`: their numbers in [B, H, rows], ascending. `expected`:
/// dense [number of rows, columns].
double compareSomeRows(const char* name, const TensorView& actual, const std::vector<int64_t>& rows,
                       const std::vector<double>& expected);

/// A case's mod and operands. `operands` refers to the other members.
struct Workload {
  Workload(const Case& c, const std::string& mods);
  Workload(const Workload&) = delete;

  CaseMod mod;
  DeviceTensor q, k, v, kvLengths, pageTable;
  std::vector<DeviceTensor> captured;
  Captures host, device; ///< the mod's captures with tensors in host and in device memory
  Operands operands;
  /// `liveBytes`: for decode and paged cases, the bytes of K and V that some query sees. `copies`: for decode cases,
  /// the number of copies of K and V in different memory, enough that none is still in the L2 cache when its turn
  /// comes.
  int64_t liveBytes = 0, copies = 1;

  /// Returns `operands` with copy `i` of K and V, which is below `copies`.
  Operands copy(int64_t i) const;
  /// Returns the number of query-key pairs that the mask lets live, over all batch entries and heads.
  double pairs(const Case& c) const;

private:
  /// Draws K and V: by sequence, or as pages in random order.
  void drawCache(const Case& c);
  void packDocuments(const Case& c);
};

/// Returns the row of a case. Throws std::exception if it cannot run or its result is wrong.
nlohmann::json measureForward(Bench& bench, const Case& c);
nlohmann::json measureBackward(Bench& bench, const Case& c);
nlohmann::json measureDecode(Bench& bench, const Case& c);

} // namespace attnc::bench
