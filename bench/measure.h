// Measures one case: its operands in device memory, the launch checked against the naive kernel and then timed, a row
// of results out.
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

/// Throws what a program cannot go on from; a case's failure becomes its "error".
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

/// What all cases share.
struct Bench {
  std::string mods;
  Family family = Family::Auto;
  Compiler compiler{{.cacheMode = CompilerOptions::CacheMode::Off}};
  device::Stream stream = take(device::Stream::create());
  device::Timer timer = take(device::Timer::create());

  /// As those of the timer, of work that throws.
  double medianMs(const std::function<void()>& run);
  double graphMs(const std::function<void(int)>& run, int launches);
};

/// A tensor in device memory.
struct DeviceTensor {
  device::Buffer buffer;
  TensorView view;
};

/// Dense, not written; or filled with bytes 0xff, which are NaN in every floating-point dtype: an element that a kernel
/// does not write shows.
DeviceTensor allocate(DType dtype, std::initializer_list<int64_t> shape);
DeviceTensor allocateNaN(DType dtype, std::initializer_list<int64_t> shape);
DeviceTensor upload(const void* values, DType dtype, std::initializer_list<int64_t> shape);

/// Not written either, of the shape, dtype and strides of another one, which has no gaps.
DeviceTensor allocateNaNLike(const DeviceTensor& tensor);

/// Random normal values of a 16-bit dtype or of E4M3, the same in every run. `seed` tells tensors apart. `roundedTo`: E4M3 for
/// values that it has, in another dtype.
DeviceTensor drawNormal(DType dtype, std::initializer_list<int64_t> shape, uint64_t seed, float std = 1,
                        std::optional<DType> roundedTo = {});

/// Elements of a tensor of a 16-bit dtype, in host memory.
std::vector<uint16_t> download(const DeviceTensor& tensor);

/// Rows of gradients, element by element, in units of the expected row's root mean square: rows differ by far more than
/// what rounding does, so an error that one tolerance for all lets pass could be a row that is wrong throughout.
/// Returns the largest error; throws std::exception for one beyond the tolerance.
double compareRows(const char* name, const DeviceTensor& actual, const DeviceTensor& expected);

/// A case's mod and operands. `operands` refers to the other members.
struct Workload {
  Workload(const Case& c, const std::string& mods);
  Workload(const Workload&) = delete;

  CaseMod mod;
  DeviceTensor q, k, v, kvLengths, pageTable;
  std::vector<DeviceTensor> captured;
  Captures host, device; ///< the mod's captures with tensors in host and in device memory
  Operands operands;
  /// Of decode and paged cases: bytes of K and V that some query sees. Of decode cases: how many K and V there are, of
  /// different memory, enough that one after the other finds nothing in the L2 cache.
  int64_t liveBytes = 0, copies = 1;

  /// `operands` with the K and V of number `i`, which is below `copies`.
  Operands copy(int64_t i) const;
  /// Query-key pairs that the mask lets live, over all batch entries and heads.
  double pairs(const Case& c) const;

private:
  /// K and V: by sequence, or pages in random order.
  void drawCache(const Case& c);
  void packDocuments(const Case& c);
};

/// The row of a case. Throws std::exception: it cannot be run, or its result is wrong.
nlohmann::json measureForward(Bench& bench, const Case& c);
nlohmann::json measureBackward(Bench& bench, const Case& c);
nlohmann::json measureDecode(Bench& bench, const Case& c);

} // namespace attnc::bench
