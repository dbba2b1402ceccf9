#include "measure.h"

namespace attnc::bench {

namespace {

/// Returns the largest error. Throws std::exception for one beyond the tolerance.
double checkByNaive(Bench& bench, const Case& c, const Workload& work, const PrepareOptions& options,
                    const DeviceTensor& out) {
  const ProblemShape& p = c.problem;
  const DeviceTensor expected = allocate(c.dtype, {p.batch, p.qHeads, p.qLen, c.headDim});
  PrepareOptions naiveOptions = options;
  naiveOptions.family = Family::Naive;
  naiveOptions.buildBlockMask = false;
  Operands wide = work.operands;
  DeviceTensor k, v; // the fp8 values in the dtype of q, which represents them exactly
  if (c.fp8Kv) {
    const auto draw = [&](uint64_t seed) {
      return drawNormal(c.dtype, {work.copies * p.batch, p.kvHeads, p.kvLen, c.headDim}, seed, 1, DType::E4M3);
    };
    k = draw(2), v = draw(3);
    wide.k = k.view, wide.v = v.view;
    wide.k.shape[0] = wide.v.shape[0] = p.batch;
  }
  const Prepared naive = take(bench.compiler.prepare(work.mod.mod, wide, {.out = expected.view}, naiveOptions));
  take(naive.launch(wide, {.out = expected.view}, nullptr, bench.stream.get()));
  take(bench.stream.synchronize());
  return compareRows("out", out, expected);
}

} // namespace

nlohmann::json measureDecode(Bench& bench, const Case& c) {
  const ProblemShape& p = c.problem;
  const Workload work(c, bench.mods);
  const DeviceTensor out = allocateNaN(c.dtype, {p.batch, p.qHeads, p.qLen, c.headDim});
  const Outputs outputs{.out = out.view};
  const PrepareOptions options{.family = bench.family, .offsets = QueryOffsets::FromLengths};

  const Clock::time_point start = Clock::now();
  const Prepared prepared = take(bench.compiler.prepare(work.mod.mod, work.operands, outputs, options));
  const device::Buffer workspace = take(device::Buffer::allocate(prepared.workspaceBytes()));
  const auto launch = [&](const Operands& operands) {
    take(prepared.launch(operands, outputs, workspace.data(), bench.stream.get()));
  };
  take(prepared.initialise(work.operands, workspace.data(), bench.stream.get()));
  launch(work.operands);
  take(bench.stream.synchronize());
  nlohmann::json row;
  if (!bench.again) {
    row["first_call_s"] = rounded(secondsSince(start), 3);
    row["max_error"] = checkByNaive(bench, c, work, options, out);
  }

  const double ms = bench.medianMs([&] { launch(work.operands); });
  row["ms"] = rounded(ms, 4);
  row["gbps"] = rounded(double(work.liveBytes) / ms / 1e6, 1);
  constexpr int kLaunches = 20;
  const Clock::time_point calls = Clock::now();
  for (int i = 0; i < kLaunches; ++i) launch(work.operands);
  row["host_us"] = rounded(secondsSince(calls) * 1e6 / kLaunches, 1);
  take(bench.stream.synchronize());
  if (work.copies > 1)
    row["graph_ms"] = rounded(
        bench.graphMs([&](int i) { launch(work.copy(i % work.copies)); }, int(std::max<int64_t>(work.copies, 16))), 5);
  const CompiledKernel& compiled = *prepared.kernel().compiled().back();
  row["template"] = compiled.templateName;
  row["registers"] = compiled.registers;
  row["spill_bytes"] = compiled.spillBytes;
  row["workspace_bytes"] = workspace.bytes();
  return row;
}

} // namespace attnc::bench
