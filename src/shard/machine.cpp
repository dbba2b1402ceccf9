#include "shard/machine.h"

#include "attnc/reference.h"
#include "jit/stream_order.h"
#include "support/element.h"
#include "support/try.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace attnc::shard {
namespace {

class Gpu : public Machine {
public:
  Gpu(const Compiler& compiler, StageMerger merger) : compiler(compiler), merger(std::move(merger)) {}

  Status add(const Mod& mod, const Operands& operands, const Outputs& outputs, const PrepareOptions& options) override {
    ATTNC_TRY_AS(prepared, compiler.prepare(mod, operands, outputs, options));
    stages.push_back(*std::move(prepared));
    return {};
  }
  size_t workspaceBytes(size_t stage) const override { return stages[stage].workspaceBytes(); }
  Status upload(void* to, const void* from, size_t bytes, Stream stream) const override {
    return jit::upload(to, from, bytes, stream);
  }
  Status initialise(size_t stage, const Operands& operands, void* workspace, Stream stream) const override {
    return stages[stage].initialise(operands, workspace, stream);
  }
  Status attend(size_t stage, const StageLaunch& launch, Stream stream) const override {
    return stages[stage].launch(launch.operands, launch.outputs, launch.workspace, stream);
  }
  Status merge(const MergeStagesParams& params, Stream stream) const override { return merger.launch(params, stream); }
  Status waitFor(Stream stream, Stream other) const override { return jit::waitFor(stream, other); }

private:
  const Compiler compiler; // copies share the cache
  const StageMerger merger;
  std::vector<Prepared> stages;
};

class Cpu : public Machine {
public:
  Cpu(DType dtype, int headDimV) : dtype(dtype), headDimV(headDimV) {}

  Status add(const Mod& mod, const Operands&, const Outputs&, const PrepareOptions&) override {
    mods.push_back(mod);
    return {};
  }
  size_t workspaceBytes(size_t) const override { return 0; }
  Status upload(void* to, const void* from, size_t bytes, Stream) const override {
    if (bytes) std::memcpy(to, from, bytes);
    return {};
  }
  Status initialise(size_t, const Operands&, void*, Stream) const override { return {}; }
  Status attend(size_t stage, const StageLaunch& launch, Stream) const override {
    return computeOnCpu(mods[stage], launch.operands, launch.outputs);
  }
  Status merge(const MergeStagesParams& params, Stream) const override;
  Status waitFor(Stream, Stream) const override { return {}; }

private:
  void mergeRow(const MergeStagesParams& p, int64_t row, int64_t outOffset) const;

  const DType dtype;
  const int headDimV;
  std::vector<Mod> mods;
};

/// templates/merge_stages.cu says what it computes.
void Cpu::mergeRow(const MergeStagesParams& p, int64_t row, int64_t outOffset) const {
  constexpr double kNothing = -std::numeric_limits<double>::infinity();
  const double before = p.is_first ? kNothing : p.sum_lse[row], part = p.part ? p.part_lse[row] : kNothing;
  const double larger = before > part ? before : part; // NaN stays NaN
  const auto weight = [&](double lse) { return lse == kNothing ? 0 : std::exp(lse - larger); };
  const double both = weight(before) + weight(part);
  for (int64_t column = 0; column < headDimV; ++column) {
    const int64_t at = row * headDimV + column;
    double x = 0;
    if (weight(before) != 0) x += weight(before) / both * p.sum[at];
    if (weight(part) != 0) x += weight(part) / both * double(readElement(p.part, dtype, at).real);
    if (p.out)
      writeElement(p.out, dtype, outOffset + column, x);
    else
      p.sum[at] = float(x);
  }
  const float lse = float(larger == kNothing ? kNothing : larger + std::log(both));
  if (!p.out) p.sum_lse[row] = lse;
  if (p.out && p.out_lse) p.out_lse[row] = lse;
}

Status Cpu::merge(const MergeStagesParams& p, Stream) const {
  int64_t row = 0;
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.heads; ++h)
      for (int64_t i = 0; i < p.rows; ++i, ++row)
        mergeRow(p, row, b * p.out_stride.batch + h * p.out_stride.head + i * p.out_stride.row);
  return {};
}

} // namespace

Expected<std::unique_ptr<Machine>> makeMachine(const Compiler* compiler, DType dtype, int headDimV) {
  if (!compiler) return std::unique_ptr<Machine>(std::make_unique<Cpu>(dtype, headDimV));
  ATTNC_TRY_AS(merger, StageMerger::load(*compiler, dtype, headDimV));
  return std::unique_ptr<Machine>(std::make_unique<Gpu>(*compiler, *std::move(merger)));
}

} // namespace attnc::shard
