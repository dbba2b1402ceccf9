#include "measure.h"
#include "row_check.h"

#include <algorithm>

namespace attnc::bench {
namespace {

/// Gradients of q, k and v, filled with NaN.
struct GradientTensors {
  explicit GradientTensors(const Workload& work)
      : dQ(allocateNaNLike(work.q)), dK(allocateNaNLike(work.k)),
        dV(allocateNaNLike(work.v)), outputs{.dQ = dQ.view, .dK = dK.view, .dV = dV.view} {}
  DeviceTensor dQ, dK, dV;
  BackwardOutputs outputs;
};

/// Returns the largest error. Throws std::exception for one beyond the tolerance.
double checkByNaive(Bench& bench, const Case& c, const Workload& work, const BackwardOperands& operands,
                    const GradientTensors& gradients) {
  const GradientTensors expected(work);
  // The oracle evaluates mask_mod for every pair.
  const Plan plan = take(bench.compiler.plan(work.mod.mod, {.kind = KernelKind::Backward,
                                                            .family = Family::Naive,
                                                            .dtype = c.dtype,
                                                            .headDim = c.headDim,
                                                            .features = {Feature::Ragged, c.packed}}));
  const BackwardKernel naive = take(bench.compiler.loadBackward(plan));
  const device::Buffer naiveWorkspace = take(device::Buffer::allocate(take(naive.workspaceBytes(operands))));
  take(naive.launch(operands, expected.outputs, naiveWorkspace.data(), bench.stream.get()));
  take(bench.stream.synchronize());
  return std::max({compareRows("dQ", gradients.dQ, expected.dQ), compareRows("dK", gradients.dK, expected.dK),
                   compareRows("dV", gradients.dV, expected.dV)});
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
  const Prepared prepared = take(bench.compiler.prepareTraining(
      work.mod.mod, operands, results, gradients.outputs, {.family = bench.family, .deterministic = c.deterministic}));
  const device::Buffer workspace = take(device::Buffer::allocate(prepared.workspaceBytes()));
  const auto initialise = [&] { take(prepared.initialise(operands, workspace.data(), bench.stream.get())); };
  const auto run = [&] {
    take(prepared.launchBackward(operands, gradients.outputs, workspace.data(), bench.stream.get()));
  };
  initialise();
  take(prepared.launch(work.operands, results, workspace.data(), bench.stream.get()));
  run();
  take(bench.stream.synchronize());
  nlohmann::json row;
  if (!bench.again) {
    row["first_call_s"] = rounded(secondsSince(start), 3);
    row["max_error"] = isCheckedByRows(c, work.mod)
                           ? checkGradientRows(work, {out, lse, dOut, gradients.dQ, gradients.dK, gradients.dV})
                           : checkByNaive(bench, c, work, operands, gradients);
  }

  const double ms = bench.medianMs(run);
  row["ms"] = rounded(ms, 4);
  row["tflops"] = rounded(10 * work.pairs(c) * double(c.headDim) / ms / 1e9, 1);
  row["workspace_bytes"] = workspace.bytes();
  int registers = 0, spillBytes = 0;
  for (const auto& stage : prepared.backwardKernel()->compiled()) {
    registers = std::max(registers, stage->registers);
    spillBytes += stage->spillBytes;
  }
  row["registers"] = registers; // maximum over the stages
  row["spill_bytes"] = spillBytes;
  if (prepared.blockMaskKernel()) row["block_mask_ms"] = rounded(bench.medianMs(initialise), 4);
  return row;
}

} // namespace attnc::bench
