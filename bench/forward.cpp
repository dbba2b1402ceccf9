#include "measure.h"
#include "row_check.h"

#include "reference/compare.h"
#include "support/element.h"

#include <fmt/format.h>

namespace attnc::bench {
namespace {

reference::Comparison compareElements(const DeviceTensor& actual, const DeviceTensor& expected, double tolerance) {
  const std::vector<uint16_t> x = download(actual), y = download(expected);
  reference::Comparison comparison({.absolute = tolerance});
  for (size_t i = 0; i < x.size(); ++i)
    comparison.add(readElement(x.data(), actual.view.dtype, int64_t(i)).real,
                   readElement(y.data(), actual.view.dtype, int64_t(i)).real);
  return comparison;
}

/// Returns the largest error. Throws std::exception for one beyond the tolerance.
double checkByNaive(Bench& bench, const Case& c, const Workload& work, const DeviceTensor& out) {
  const DeviceTensor expected = allocateNaNLike(work.q);
  // The oracle evaluates mask_mod for every pair.
  const Prepared naive = take(bench.compiler.prepare(work.mod.mod, work.operands, {.out = expected.view},
                                                     {.family = Family::Naive, .buildBlockMask = false}));
  take(naive.launch(work.operands, {.out = expected.view}, nullptr, bench.stream.get()));
  take(bench.stream.synchronize());
  // Values of v stay below 6. A weight and the result each round once: 2^-9 or 2^-12 relative.
  const double tolerance = 12 * (c.dtype == DType::F16 ? 0x1p-11 : 0x1p-8);
  const reference::Comparison comparison = compareElements(out, expected, tolerance);
  if (!comparison.holds())
    throw std::runtime_error(
        fmt::format("differs from the naive kernel by {:.3g}: {}", comparison.maxError(), comparison.firstBadText()));
  return comparison.maxError();
}

} // namespace

nlohmann::json measureForward(Bench& bench, const Case& c) {
  const Workload work(c, bench.mods);
  const Operands& operands = work.operands;
  const DeviceTensor out = allocateNaNLike(work.q);
  const Outputs outputs{.out = out.view};

  const Clock::time_point start = Clock::now();
  const Prepared prepared = take(bench.compiler.prepare(work.mod.mod, operands, outputs, {.family = bench.family}));
  const device::Buffer workspace = take(device::Buffer::allocate(prepared.workspaceBytes()));
  const auto initialise = [&] { take(prepared.initialise(operands, workspace.data(), bench.stream.get())); };
  const auto run = [&] { take(prepared.launch(operands, outputs, workspace.data(), bench.stream.get())); };
  initialise();
  run();
  take(bench.stream.synchronize());
  nlohmann::json row;
  if (!bench.again) {
    row["first_call_s"] = rounded(secondsSince(start), 3);
    row["max_error"] = isCheckedByRows(c, work.mod) ? checkOutRows(work, out) : checkByNaive(bench, c, work, out);
  }

  const double ms = bench.medianMs(run);
  row["ms"] = rounded(ms, 4);
  row["tflops"] = rounded(4 * work.pairs(c) * double(c.headDim) / ms / 1e9, 1);
  const CompiledKernel& compiled = *prepared.kernel().compiled().front();
  row["registers"] = compiled.registers;
  row["spill_bytes"] = compiled.spillBytes;
  if (prepared.blockMaskKernel()) row["block_mask_ms"] = rounded(bench.medianMs(initialise), 4);
  return row;
}

} // namespace attnc::bench
