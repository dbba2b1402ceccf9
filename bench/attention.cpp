// Times attnc's kernels on the workloads of cases.json files, one JSON line a case, in the format of the peers'
// harness: {"id", "peer", "ms", "tflops", "first_call_s", ...}; a case that fails gets "error" instead.
//
// Each result is checked against the naive kernel before it is timed. `ms` is the median of device-event times with the
// L2 cache overwritten between runs; inputs are random normal. "tflops" counts unmasked query-key pairs:
// 4 * pairs * head_dim. "first_call_s" is the wall time from mod text to the first finished launch, block mask
// included.
#include "cases.h"

#include "ir/element.h"
#include "reference/compare.h"
#include "tools/device/device.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <iostream>
#include <random>
#include <regex>
#include <thread>

namespace attnc::bench {
namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Throws what a program cannot go on from; a case's failure becomes its "error".
template <class T> T take(Expected<T> value) {
  if (!value) throw std::runtime_error(value.error().message);
  return *std::move(value);
}
void take(const Status& status) {
  if (!status) throw std::runtime_error(status.error().message);
}

/// Random normal values of a 16-bit dtype, a stream per thread, the same in every run.
std::vector<uint16_t> randomNormal(int64_t count, DType dtype, uint64_t seed, float std = 1) {
  std::vector<uint16_t> values(static_cast<size_t>(count));
  const int64_t threads = std::max(1u, std::thread::hardware_concurrency());
  const auto fill = [&](int64_t thread) {
    std::mt19937_64 bits(seed * 1000 + uint64_t(thread));
    std::normal_distribution<float> normal(0, std);
    for (int64_t i = count * thread / threads; i < count * (thread + 1) / threads; ++i)
      values[size_t(i)] = dtype == DType::F16 ? ir::toF16(normal(bits)) : ir::toBf16(normal(bits));
  };
  std::vector<std::thread> pool;
  for (int64_t thread = 0; thread < threads; ++thread)
    pool.emplace_back(fill, thread);
  for (std::thread& thread : pool)
    thread.join();
  return values;
}

/// A tensor in device memory.
struct DeviceTensor {
  device::Buffer buffer;
  TensorView view;
};

template <class T>
DeviceTensor upload(const std::vector<T>& values, DType dtype, std::initializer_list<int64_t> shape) {
  DeviceTensor tensor{take(device::Buffer::allocate(values.size() * sizeof(T))), {}};
  take(tensor.buffer.upload(values.data(), values.size() * sizeof(T)));
  tensor.view = TensorView::contiguous(tensor.buffer.data(), dtype, shape);
  return tensor;
}

/// Median milliseconds of `run`, the L2 cache overwritten before each.
template <class Run> double medianMs(Run run, const device::Stream& stream, device::Buffer& flush) {
  const device::Event begin = take(device::Event::create()), end = take(device::Event::create());
  std::vector<float> times;
  constexpr float kWarmUpMs = 20, kMeasureMs = 60; // of kernel time: clocks rise, and then settle
  for (float spent = 0; times.size() < 5 || (spent < kWarmUpMs + kMeasureMs && times.size() < 500);) {
    take(flush.fillAsync(uint8_t(times.size()), stream.get()));
    take(begin.record(stream.get()));
    run();
    take(end.record(stream.get()));
    take(end.synchronize());
    const float ms = take(end.msSince(begin));
    if (spent >= kWarmUpMs) times.push_back(ms);
    spent += ms;
  }
  std::nth_element(times.begin(), times.begin() + long(times.size() / 2), times.end());
  return times[times.size() / 2];
}

/// Two outputs of a 16-bit dtype, element by element.
reference::Comparison compare(const device::Buffer& actual, const device::Buffer& expected, DType dtype,
                              double tolerance) {
  std::vector<uint16_t> x(actual.bytes() / 2), y(expected.bytes() / 2);
  take(actual.download(x.data(), actual.bytes()));
  take(expected.download(y.data(), expected.bytes()));
  reference::Comparison comparison({.absolute = tolerance});
  for (size_t i = 0; i < x.size(); ++i)
    comparison.add(ir::readElement(x.data(), dtype, int64_t(i)).real, ir::readElement(y.data(), dtype, int64_t(i)).real);
  return comparison;
}

struct Bench {
  std::string mods;
  Family family = Family::Auto;
  Compiler compiler{{.cacheMode = CompilerOptions::CacheMode::Off}};
  device::Stream stream = take(device::Stream::create());
  device::Buffer flush = take(device::Buffer::allocate(size_t(256) << 20));

  nlohmann::json measure(const Case& c);
};

nlohmann::json Bench::measure(const Case& c) {
  const ProblemShape& p = c.problem;
  const int64_t d = c.headDim;
  CaseMod mod = take(caseMod(c, mods));
  const DeviceTensor q =
      upload(randomNormal(p.batch * p.qHeads * p.qLen * d, c.dtype, 1, c.qStd), c.dtype, {p.batch, p.qHeads, p.qLen, d});
  const DeviceTensor k =
      upload(randomNormal(p.batch * p.kvHeads * p.kvLen * d, c.dtype, 2), c.dtype, {p.batch, p.kvHeads, p.kvLen, d});
  const DeviceTensor v =
      upload(randomNormal(p.batch * p.kvHeads * p.kvLen * d, c.dtype, 3), c.dtype, {p.batch, p.kvHeads, p.kvLen, d});
  DeviceTensor out{take(device::Buffer::allocate(q.buffer.bytes())), q.view},
      expected{take(device::Buffer::allocate(q.buffer.bytes())), q.view};
  out.view.data = out.buffer.data();
  expected.view.data = expected.buffer.data();

  Captures host = mod.scalars, device = mod.scalars;
  std::vector<DeviceTensor> captured;
  const auto capture = [&](const char* name, auto& values, DType dtype) {
    if (values.empty()) return;
    captured.push_back(upload(values, dtype, {int64_t(values.size())}));
    device.set(name, captured.back().view);
    host.set(name, TensorView::contiguous(values.data(), dtype, {int64_t(values.size())}));
  };
  capture("slopes", mod.slopes, DType::F32);
  capture("document_id", mod.documentId, DType::I32);

  const Operands operands{.q = q.view, .k = k.view, .v = v.view, .captures = &device};
  const Outputs outputs{.out = out.view};

  const Clock::time_point start = Clock::now();
  const Prepared prepared = take(compiler.prepare(mod.mod, operands, outputs, {.family = family}));
  const device::Buffer workspace = take(device::Buffer::allocate(prepared.workspaceBytes()));
  const auto initialise = [&] { take(prepared.initialise(operands, workspace.data(), stream.get())); };
  const auto run = [&] { take(prepared.launch(operands, outputs, workspace.data(), stream.get())); };
  take(out.buffer.fill(0xff)); // NaN: an element that is not written shows
  initialise();
  run();
  take(stream.synchronize());
  nlohmann::json row{{"id", c.id}, {"peer", "attnc"}, {"first_call_s", std::round(secondsSince(start) * 1000) / 1000}};

  // The oracle evaluates mask_mod everywhere.
  const Prepared naive = take(compiler.prepare(mod.mod, operands, {.out = expected.view},
                                               {.family = Family::Naive, .buildBlockMask = false}));
  take(naive.launch(operands, {.out = expected.view}, nullptr, stream.get()));
  take(stream.synchronize());
  // Values of v stay below 6; a weight and the result each round once: 2^-9 or 2^-12 relative.
  const double tolerance = 12 * (c.dtype == DType::F16 ? 0x1p-11 : 0x1p-8);
  const reference::Comparison comparison = compare(out.buffer, expected.buffer, c.dtype, tolerance);
  if (!comparison.holds())
    throw std::runtime_error(
        fmt::format("differs from the naive kernel by {:.3g}: {}", comparison.maxError(), comparison.firstBadText()));

  const double ms = medianMs(run, stream, flush);
  const double pairs = double(unmaskedPairs(mod, host, p)) * double(p.batch * p.qHeads);
  row["ms"] = std::round(ms * 1e4) / 1e4;
  row["tflops"] = std::round(4 * pairs * double(d) / ms / 1e8) / 10;
  row["max_error"] = comparison.maxError();
  const CompiledKernel& compiled = *prepared.kernel().compiled().front();
  row["registers"] = compiled.registers;
  row["spill_bytes"] = compiled.spillBytes;
  if (prepared.blockMaskKernel()) row["block_mask_ms"] = std::round(medianMs(initialise, stream, flush) * 1e4) / 1e4;
  return row;
}

} // namespace
} // namespace attnc::bench

int main(int argc, char** argv) {
  using namespace attnc;
  std::vector<std::string> files;
  std::string out, only, mods = ATTNC_SOURCE_DIR "/dsl/mods";
  Family family = Family::Auto;
  double seconds = 1e9;
  CLI::App app("Times attnc's forward kernels on the workloads of cases.json files.");
  app.add_option("--cases", files, "a file of workloads; repeatable, files are taken in order")
      ->required()
      ->allow_extra_args(false)
      ->type_name("FILE");
  app.add_option("--out", out, "file that JSON lines are appended to; they are printed as well");
  app.add_option("--only", only, "regular expression on the case id");
  app.add_option("--mods", mods, "folder of the mods, named as the cases' variants");
  app.add_option("--kernel-family", family, "auto, naive, sm80 or sm90")
      ->transform(CLI::CheckedTransformer(bench::familiesByName()));
  app.add_option("--seconds", seconds, "stop starting new cases after this long");
  CLI11_PARSE(app, argc, argv);

  // Every file before the first case: a bad last one must not cost the run.
  std::vector<bench::Case> cases;
  for (const std::string& path : files) {
    try {
      const std::vector<bench::Case> more = bench::readCases(path);
      cases.insert(cases.end(), more.begin(), more.end());
    } catch (const std::exception& error) {
      std::cerr << "attnc-bench: " << path << ": " << error.what() << "\n";
      return 3;
    }
  }
  const auto start = bench::Clock::now();
  auto context = device::Context::create();
  if (!context) {
    std::cerr << "attnc-bench: " << context.error().message << "\n";
    return 3;
  }
  bench::Bench bench{.mods = mods, .family = family};
  std::ofstream file(out, std::ios::app);
  for (const bench::Case& c : cases) {
    if (c.kind != "forward" || !std::regex_search(c.id, std::regex(only))) continue;
    if (bench::secondsSince(start) > seconds) break;
    nlohmann::json row;
    try {
      row = bench.measure(c);
    } catch (const std::exception& error) {
      row = {{"id", c.id}, {"peer", "attnc"}, {"error", error.what()}};
    }
    std::cout << row.dump() << std::endl;
    if (!out.empty()) file << row.dump() << std::endl;
  }
}
