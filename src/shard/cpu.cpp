#include "shard/cpu.h"

#include "attnc/reference.h"
#include "support/element.h"
#include "support/try.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace attnc::shard {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

/// Returns exp(lse - largest), 0 if nothing lives.
double weightOf(double lse, double largest) { return lse == kNothing ? 0 : std::exp(lse - largest); }

/// A row of the parameters of a stage.
struct Row {
  int64_t index = 0; ///< among all
  int64_t batch = 0, head = 0, row = 0;
  int64_t in(const Strides& stride) const { return batch * stride.batch + head * stride.head + row * stride.row; }
};

template <class Params, class Visit> void eachRow(const Params& p, Visit visit) {
  Row row;
  for (row.batch = 0; row.batch < p.batch; ++row.batch)
    for (row.head = 0; row.head < p.heads; ++row.head)
      for (row.row = 0; row.row < p.rows; ++row.row, ++row.index) visit(row);
}

class Cpu : public Machine {
public:
  Cpu(DType dtype, int headDimV) : dtype(dtype), headDimV(headDimV) {}

  Status add(const Mod& mod, const StageTensors&, const PrepareOptions&) override {
    mods.push_back(mod);
    return {};
  }
  size_t workspaceBytes(size_t) const override { return 0; }
  size_t scratchBytes() const override { return 0; }
  Status initialise(size_t, const Operands&, void*, Stream) const override { return {}; }
  Status attend(size_t stage, const Operands& operands, const Outputs& outputs, void*, Stream) const override {
    return computeOnCpu(mods[stage], operands, outputs);
  }
  Status differentiate(size_t stage, const BackwardOperands& operands, const BackwardOutputs& gradients, void*, void*,
                       Stream) const override;
  // templates/merge_stages.cu and stage_gradients.cu say what these compute.
  Status merge(const MergeStagesParams& params, Stream) const override;
  Status weigh(const WeighStageParams& params, Stream) const override;
  Status sum(const AddStageParams& params, Stream) const override;
  Status upload(void* to, const void* from, size_t bytes, Stream) const override {
    if (bytes) std::memcpy(to, from, bytes);
    return {};
  }
  Status zero(void* to, size_t bytes, Stream) const override {
    if (bytes) std::memset(to, 0, bytes);
    return {};
  }
  Status copyRows(jit::RowsAt to, jit::RowsAt from, size_t bytes, size_t rows, Stream) const override {
    for (size_t row = 0; row < rows && bytes; ++row)
      std::memcpy(static_cast<char*>(to.data) + row * to.pitch, static_cast<char*>(from.data) + row * from.pitch,
                  bytes);
    return {};
  }
  Status waitFor(Stream, Stream) const override { return {}; }

private:
  double read(const void* from, int64_t at) const { return readElement(from, dtype, at).real; }

  const DType dtype;
  const int headDimV;
  std::vector<Mod> mods;
};

Status Cpu::differentiate(size_t stage, const BackwardOperands& operands, const BackwardOutputs& gradients, void*,
                          void*, Stream) const {
  // The reference takes out of the stage's own keys, so the rest of delta goes into d_lse:
  //   d_out out - d_lse = d_out out_stage - (d_lse + d_out (out_stage - out))
  const auto& q = operands.q.shape;
  std::vector<float> own(size_t(q[0] * q[1] * q[2] * headDimV)), change(size_t(q[0] * q[1] * q[2]));
  const TensorView ofStage = TensorView::contiguous(own.data(), DType::F32, {q[0], q[1], q[2], headDimV});
  ATTNC_TRY(computeOnCpu(mods[stage], operands, {.out = ofStage}));
  const auto* const dLse = operands.dLse ? static_cast<const float*>(operands.dLse->data) : nullptr;
  const MergeStagesParams rows{.batch = int(q[0]), .heads = int(q[1]), .rows = int(q[2])};
  const Strides outAt = plan::stridesOf(operands.out), dOutAt = plan::stridesOf(operands.dOut);
  eachRow(rows, [&](const Row& row) {
    double sum = dLse ? dLse[row.index] : 0;
    for (int64_t column = 0; column < headDimV; ++column)
      sum += read(operands.dOut.data, row.in(dOutAt) + column) *
             (own[size_t(row.index * headDimV + column)] - read(operands.out.data, row.in(outAt) + column));
    change[size_t(row.index)] = float(sum);
  });
  BackwardOperands all = operands;
  all.dLse = TensorView::contiguous(change.data(), DType::F32, {q[0], q[1], q[2]});
  return computeBackwardOnCpu(mods[stage], all, gradients);
}

Status Cpu::merge(const MergeStagesParams& p, Stream) const {
  eachRow(p, [&](const Row& row) {
    const double before = p.is_first ? kNothing : p.sum_lse[row.index],
                 part = p.part ? p.part_lse[row.index] : kNothing;
    const double larger = before > part ? before : part; // NaN stays NaN
    const double ofBefore = weightOf(before, larger), ofPart = weightOf(part, larger), both = ofBefore + ofPart;
    for (int64_t column = 0; column < headDimV; ++column) {
      const int64_t at = row.index * headDimV + column;
      double x = 0;
      if (ofBefore != 0) x += ofBefore / both * p.sum[at];
      if (ofPart != 0) x += ofPart / both * read(p.part, at);
      if (p.out)
        writeElement(p.out, dtype, row.in(p.out_stride) + column, x);
      else
        p.sum[at] = float(x);
    }
    const float lse = float(larger == kNothing ? kNothing : larger + std::log(both));
    if (!p.out) p.sum_lse[row.index] = lse;
    if (p.out && p.out_lse) p.out_lse[row.index] = lse;
  });
  return {};
}

Status Cpu::weigh(const WeighStageParams& p, Stream) const {
  const int64_t rows = int64_t(p.batch) * p.heads * p.rows;
  eachRow(p, [&](const Row& row) {
    const auto lseOf = [&](int64_t stage) -> double { return p.lses[stage * rows + row.index]; };
    double largest = kNothing, sum = 0;
    for (int i = 0; i < p.stages; ++i)
      if (lseOf(i) > largest || std::isnan(lseOf(i))) largest = lseOf(i);
    for (int i = 0; i < p.stages; ++i) sum += weightOf(lseOf(i), largest);
    const double weight = largest == kNothing ? 0 : weightOf(lseOf(p.stage), largest) / sum;
    for (int64_t column = 0; column < headDimV; ++column)
      writeElement(p.to, dtype, row.index * headDimV + column,
                   weight == 0 ? 0 : weight * read(p.d_out, row.in(p.d_out_stride) + column));
    if (p.d_lse) p.to_lse[row.index] = weight == 0 ? 0 : float(weight * p.d_lse[row.index]);
  });
  return {};
}

Status Cpu::sum(const AddStageParams& p, Stream) const {
  const DType of = p.is_f32 ? DType::F32 : dtype;
  eachRow(p, [&](const Row& row) {
    for (int64_t column = 0; column < p.columns; ++column) {
      float& sum = p.sum[row.in(p.sum_stride) + column];
      const double x = sum + (p.part ? readElement(p.part, of, row.in(p.part_stride) + column).real : 0);
      if (p.out)
        writeElement(p.out, of, row.in(p.out_stride) + column, x);
      else
        sum = float(x);
    }
  });
  return {};
}

} // namespace

std::unique_ptr<Machine> makeCpu(DType dtype, int headDimV) { return std::make_unique<Cpu>(dtype, headDimV); }

} // namespace attnc::shard
