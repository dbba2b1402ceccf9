// What joins the stages of a plan of shards on the GPU: their attention, and their gradients.
#pragma once

#include "attnc/compiler.h"
#include "jit/loaded_kernel.h"
#include "launch/launch_operands.h"
#include "plan/stage.h"

#include <optional>

namespace attnc {

/// It is immutable, copies share it, and any number of threads may launch it.
class StageKernels {
public:
  /// Compiles the kernels, or takes them from memory or disk. Loads them into the current CUDA context. Parts and
  /// outputs have this dtype: F32, F16 or BF16. `trains`: also those of gradients.
  static Expected<StageKernels> load(const Compiler& compiler, DType dtype, int headDimV, bool trains);

  /// What is static in each kernel.
  static plan::Stage mergeStage(DType dtype, int headDimV);
  static plan::Stage weighStage(DType dtype, int headDimV);
  static plan::Stage addStage(DType dtype, int headDimV);

  /// Enqueues a kernel. Precondition for weigh() and add(): they were loaded for training.
  Status merge(const MergeStagesParams& params, Stream stream) const { return launch(merges, params, stream); }
  Status weigh(const WeighStageParams& params, Stream stream) const { return launch(*weighs, params, stream); }
  Status add(const AddStageParams& params, Stream stream) const { return launch(*adds, params, stream); }

private:
  explicit StageKernels(jit::LoadedKernel merges) : merges(std::move(merges)) {}
  template <class Params> static Status launch(const jit::LoadedKernel& kernel, const Params& params, Stream stream);

  jit::LoadedKernel merges;
  std::optional<jit::LoadedKernel> weighs, adds;
};

} // namespace attnc
