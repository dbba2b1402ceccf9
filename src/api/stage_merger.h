// Merges the attention of the stages of a plan of shards, on the GPU.
#pragma once

#include "attnc/compiler.h"
#include "jit/loaded_kernel.h"
#include "plan/launch_operands.h"
#include "plan/stage.h"

namespace attnc {

/// It is immutable, copies share it, and any number of threads may launch it.
class StageMerger {
public:
  /// Compiles the kernel, or takes it from memory or disk. Loads it into the current CUDA context. Parts and outputs
  /// have this dtype: F32, F16 or BF16.
  static Expected<StageMerger> load(const Compiler& compiler, DType dtype, int headDimV);

  /// Returns what is static in the kernel.
  static plan::Stage stageOf(DType dtype, int headDimV);

  /// Enqueues a merge.
  Status launch(const MergeStagesParams& params, Stream stream) const;

private:
  explicit StageMerger(jit::LoadedKernel kernel) : kernel(std::move(kernel)) {}
  jit::LoadedKernel kernel;
};

} // namespace attnc
