#include "row_check.h"

#include "api/mod_impl.h"
#include "ir/walk.h"
#include "reference/some_rows.h"
#include "support/element.h"
#include "support/parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>

namespace attnc::bench {
namespace {

/// A tensor of the device in host memory.
struct HostCopy {
  std::vector<char> bytes;
  TensorView view;

  explicit HostCopy(const DeviceTensor& tensor) : bytes(tensor.buffer.bytes()), view(tensor.view) {
    take(tensor.buffer.download(bytes.data(), bytes.size()));
    view.data = bytes.data();
  }
};

/// The operands of a workload in host memory.
struct HostProblem {
  explicit HostProblem(const Workload& work) : q(work.q), k(work.k), v(work.v) {
    args.q = q.view, args.k = k.view, args.v = v.view;
    args.maxQLen = work.operands.maxQLen, args.maxKvLen = work.operands.maxKvLen;
    if (!work.operands.cuSeqlensQ) return;
    starts.emplace(work.captured.back());
    args.cuSeqlensQ = starts->view;
  }
  HostCopy q, k, v;
  std::optional<HostCopy> starts;
  BackwardOperands args;
};

/// Results are filled with NaN before a launch. So this finds every element that is not written, drawn or not.
void checkFinite(const char* name, const HostCopy& tensor) {
  const int64_t count = tensor.view.elements();
  std::atomic<int64_t> bad = 0;
  parallelFor(count, [&](int64_t begin, int64_t end) {
    int64_t here = 0;
    for (int64_t i = begin; i < end; ++i)
      here += !std::isfinite(readElement(tensor.bytes.data(), tensor.view.dtype, i).real);
    bad += here;
  });
  if (bad) throw std::runtime_error(fmt::format("{} of {} elements of {} are not finite", bad.load(), count, name));
}

int64_t rowsOf(const TensorView& tensor) { return tensor.shape[0] * tensor.shape[1] * tensor.shape[2]; }

/// The mod as the reference takes it for these operands.
Mod sequencesOf(const Workload& work, const Operands& operands) {
  const passes::SequenceForm form = sequenceForm(operands, PrepareOptions());
  return form.isPlain() ? work.mod.mod : take(sequencesMod(work.mod.mod, form, {}));
}

} // namespace

bool isCheckedByRows(const Case& c, const CaseMod& mod) {
  const ProblemShape& p = c.problem;
  const double pairs = double(p.batch * p.qHeads) * double(p.qLen) * double(p.kvLen);
  return pairs >= 0x1p30 && !ir::uses(mod.mod.module(), ir::Op::TanhApprox);
}

double checkOutRows(const Workload& work, const DeviceTensor& out) {
  const HostProblem problem(work);
  const HostCopy results(out);
  const Mod mod = sequencesOf(work, problem.args);
  const auto some = take(reference::SomeRows::make(mod.module(), work.host, problem.args));
  checkFinite("out", results);
  const std::vector<int64_t> rows = reference::drawRows(rowsOf(results.view), kCheckedRows, 1);
  return compareSomeRows("out", results.view, rows, some.out(rows));
}

double checkGradientRows(const Workload& work, const BackwardResult& result) {
  HostProblem problem(work);
  const HostCopy out(result.out), lse(result.lse), dOut(result.dOut), dQ(result.dQ), dK(result.dK), dV(result.dV);
  const Mod mod = take(gradientMod(sequencesOf(work, problem.args)));
  problem.args.out = out.view, problem.args.lse = lse.view, problem.args.dOut = dOut.view;
  const auto some = take(reference::SomeRows::make(mod.module(), work.host, problem.args));
  checkFinite("dQ", dQ), checkFinite("dK", dK), checkFinite("dV", dV);
  const std::vector<int64_t> rows = reference::drawRows(rowsOf(dQ.view), kCheckedRows, 2),
                             kvRows = reference::drawRows(rowsOf(dK.view), kCheckedKvRows, 3);
  // The gradients are those behind the launch's own out and lse: these rows are checked as well.
  const reference::SomeRows::KvGradients gradients = some.dKv(kvRows);
  return std::max(
      {compareSomeRows("out", out.view, rows, some.out(rows)), compareSomeRows("dQ", dQ.view, rows, some.dQ(rows)),
       compareSomeRows("dK", dK.view, kvRows, gradients.dK), compareSomeRows("dV", dV.view, kvRows, gradients.dV)});
}

} // namespace attnc::bench
