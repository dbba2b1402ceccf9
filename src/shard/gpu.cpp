#include "shard/gpu.h"

#include "api/compiler_access.h"
#include "jit/enqueue_zeros.h"
#include "support/try.h"

#include <algorithm>
#include <vector>

namespace attnc::shard {
namespace {

class Gpu : public Machine {
public:
  Gpu(const Compiler& compiler, StageKernels kernels, bool trains)
      : compiler(compiler), kernels(std::move(kernels)), trains(trains) {}

  Status add(const Mod& mod, const StageTensors& tensors, const PrepareOptions& options) override {
    Expected<Prepared> prepared =
        trains ? compiler.prepareTraining(mod, tensors.operands, tensors.outputs, tensors.gradients, options)
               : compiler.prepare(mod, tensors.operands, tensors.outputs, options);
    if (!prepared) return prepared.error();
    stages.push_back(*std::move(prepared));
    return {};
  }
  size_t workspaceBytes(size_t stage) const override {
    return trains ? PreparedAccess::keptBytes(stages[stage]) : stages[stage].workspaceBytes();
  }
  size_t scratchBytes() const override {
    size_t most = 0;
    for (const Prepared& stage : stages)
      if (trains) most = std::max(most, PreparedAccess::scratchBytes(stage));
    return most;
  }
  Status initialise(size_t stage, const Operands& operands, void* workspace, Stream stream) const override {
    return stages[stage].initialise(operands, workspace, stream);
  }
  Status attend(size_t stage, const Operands& operands, const Outputs& outputs, void* workspace,
                Stream stream) const override {
    return stages[stage].launch(operands, outputs, workspace, stream);
  }
  Status differentiate(size_t stage, const BackwardOperands& operands, const BackwardOutputs& gradients,
                       void* workspace, void* scratch, Stream stream) const override {
    return PreparedAccess::launchBackward(stages[stage], operands, gradients, workspace, scratch, stream);
  }
  Status merge(const MergeStagesParams& params, Stream stream) const override { return kernels.merge(params, stream); }
  Status weigh(const WeighStageParams& params, Stream stream) const override { return kernels.weigh(params, stream); }
  Status sum(const AddStageParams& params, Stream stream) const override { return kernels.add(params, stream); }
  Status upload(void* to, const void* from, size_t bytes, Stream stream) const override {
    return jit::upload(to, from, bytes, stream);
  }
  Status zero(void* to, size_t bytes, Stream stream) const override { return jit::enqueueZeros(to, bytes, stream); }
  Status copyRows(jit::RowsAt to, jit::RowsAt from, size_t bytes, size_t rows, Stream stream) const override {
    return jit::copyRows(to, from, bytes, rows, stream);
  }
  Status waitFor(Stream stream, Stream other) const override { return jit::waitFor(stream, other); }

private:
  const Compiler compiler; // copies share the cache
  const StageKernels kernels;
  const bool trains;
  std::vector<Prepared> stages;
};

} // namespace

Expected<std::unique_ptr<Machine>> makeGpu(const Compiler& compiler, DType dtype, int headDimV, bool trains) {
  ATTNC_TRY_AS(kernels, StageKernels::load(compiler, dtype, headDimV, trains));
  return std::unique_ptr<Machine>(std::make_unique<Gpu>(compiler, *std::move(kernels), trains));
}

} // namespace attnc::shard
