#include "measure.h"

#include "ir/element.h"
#include "reference/compare.h"
#include "reference/parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

namespace attnc::bench {
namespace {

/// Gradients of q, k and v, NaN until they are written.
struct GradientTensors {
  explicit GradientTensors(const Workload& work)
      : dQ(allocateNaNLike(work.q)), dK(allocateNaNLike(work.k)), dV(allocateNaNLike(work.v)),
        outputs{.dQ = dQ.view, .dK = dK.view, .dV = dV.view} {}
  DeviceTensor dQ, dK, dV;
  BackwardOutputs outputs;
};

/// Rows of gradients, element by element, in units of the expected row's root mean square: rows differ by far more than
/// what rounding does, so an error that one tolerance for all lets pass could be a row that is wrong throughout.
/// Returns the largest error; throws std::exception for one beyond the tolerance.
double compareRows(const char* name, const DeviceTensor& actual, const DeviceTensor& expected) {
  const std::vector<uint16_t> x = download(actual), y = download(expected);
  const DType dtype = actual.view.dtype;
  const int64_t width = actual.view.shape[3];
  const auto at = [&](const std::vector<uint16_t>& values, int64_t i) {
    return ir::readElement(values.data(), dtype, i).real;
  };
  // An element is a sum of dS k, dS q or P d_out over the row or column; k, q and d_out are independent of one another.
  // dS and P round once each, so its error is the unit roundoff u, times a gaussian, times at most what the elements of
  // the row are like. Both kernels round the result. A row below 2^-8 is held to that: what f32 leaves of a sum that
  // cancels is below 1e-5.
  const double u = dtype == DType::F16 ? 0x1p-12 : 0x1p-9;
  const reference::Tolerance tolerance{.absolute = 12 * u, .relative = 4 * u};
  std::mutex mutex;
  double largest = 0;
  std::string bad;
  reference::parallelFor(int64_t(x.size()) / width, [&](int64_t begin, int64_t end) {
    double largestHere = 0;
    std::string badHere;
    for (int64_t row = begin; row < end && badHere.empty(); ++row) {
      double squares = 0;
      for (int64_t i = row * width; i < (row + 1) * width; ++i) squares += at(y, i) * at(y, i);
      const double unit = std::max(std::sqrt(squares / double(width)), 0x1p-8);
      reference::Comparison comparison(tolerance);
      for (int64_t i = row * width; i < (row + 1) * width; ++i) comparison.add(at(x, i) / unit, at(y, i) / unit);
      largestHere = std::max(largestHere, comparison.maxError());
      if (!std::isfinite(squares))
        badHere = fmt::format("row {} of the naive kernel's {} is not finite", row, name);
      else if (!comparison.holds())
        badHere = fmt::format("{} differs from the naive kernel's: row {}, in units of its RMS {:.3g}, {}", name, row,
                              unit, comparison.firstBadText());
    }
    const std::lock_guard lock(mutex);
    largest = std::max(largest, largestHere);
    if (bad.empty()) bad = badHere;
  });
  if (!bad.empty()) throw std::runtime_error(bad);
  return largest;
}

} // namespace

nlohmann::json measureBackward(Bench& bench, const Case& c) {
  const ProblemShape& p = c.problem;
  const Workload work(c, bench.mods);
  const DeviceTensor out = allocateNaNLike(work.q);
  const DeviceTensor lse = allocateNaN(DType::F32, {p.batch, p.qHeads, p.qLen});
  DeviceTensor dOut = drawNormal(c.dtype, {p.batch, p.qHeads, p.qLen, c.headDim}, 4);
  dOut.view.stride = work.q.view.stride;
  const GradientTensors gradients(work);
  BackwardOperands operands{work.operands};
  operands.out = out.view;
  operands.lse = lse.view;
  operands.dOut = dOut.view;
  const Outputs results{.out = out.view, .lse = lse.view};

  const Clock::time_point start = Clock::now();
  const Prepared prepared = take(bench.compiler.prepareTraining(work.mod.mod, operands, results, gradients.outputs,
                                                                {.family = bench.family}));
  const device::Buffer workspace = take(device::Buffer::allocate(prepared.workspaceBytes()));
  const auto initialise = [&] { take(prepared.initialise(operands, workspace.data(), bench.stream.get())); };
  const auto run = [&] {
    take(prepared.launchBackward(operands, gradients.outputs, workspace.data(), bench.stream.get()));
  };
  initialise();
  take(prepared.launch(work.operands, results, workspace.data(), bench.stream.get()));
  run();
  take(bench.stream.synchronize());
  nlohmann::json row{{"first_call_s", rounded(secondsSince(start), 3)}};

  const GradientTensors expected(work);
  // The oracle evaluates mask_mod everywhere.
  const BackwardKernel naive = take(bench.compiler.loadBackward(
      work.mod.mod, {.family = Family::Naive, .dtype = c.dtype, .headDim = c.headDim, .ragged = c.packed}));
  const device::Buffer naiveWorkspace = take(device::Buffer::allocate(take(naive.workspaceBytes(operands))));
  take(naive.launch(operands, expected.outputs, naiveWorkspace.data(), bench.stream.get()));
  take(bench.stream.synchronize());
  row["max_error"] =
      std::max({compareRows("dQ", gradients.dQ, expected.dQ), compareRows("dK", gradients.dK, expected.dK),
                compareRows("dV", gradients.dV, expected.dV)});

  const double ms = bench.medianMs(run);
  row["ms"] = rounded(ms, 4);
  row["tflops"] = rounded(10 * work.pairs(c) * double(c.headDim) / ms / 1e9, 1);
  row["workspace_bytes"] = workspace.bytes();
  int registers = 0, spillBytes = 0;
  for (const auto& stage : prepared.backwardKernel()->compiled()) {
    registers = std::max(registers, stage->registers);
    spillBytes += stage->spillBytes;
  }
  row["registers"] = registers; // the most of a stage
  row["spill_bytes"] = spillBytes;
  if (prepared.blockMaskKernel()) row["block_mask_ms"] = rounded(bench.medianMs(initialise), 4);
  return row;
}

} // namespace attnc::bench
