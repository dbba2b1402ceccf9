// What computes the stages of a rank: the GPU by kernels, or the CPU by the reference.
#pragma once

#include "api/mod_impl.h"
#include "api/stage_merger.h"
#include "attnc/compiler.h"

#include <map>
#include <memory>
#include <vector>

namespace attnc::shard {

/// One launch.
struct StageLaunch {
  const Operands& operands;
  const Outputs& outputs;
  void* workspace; ///< Machine::workspaceBytes() of the stage
};

class Machine {
public:
  virtual ~Machine() = default;
  /// Prepares a further stage; stages count from 0.
  virtual Status add(const Mod& mod, const Operands& operands, const Outputs& outputs,
                     const PrepareOptions& options) = 0;
  virtual size_t workspaceBytes(size_t stage) const = 0;
  virtual Status upload(void* to, const void* from, size_t bytes, Stream stream) const = 0;
  virtual Status initialise(size_t stage, const Operands& operands, void* workspace, Stream stream) const = 0;
  virtual Status attend(size_t stage, const StageLaunch& launch, Stream stream) const = 0;
  virtual Status merge(const MergeStagesParams& params, Stream stream) const = 0;
  /// Lets a stream wait for the present work of another.
  virtual Status waitFor(Stream stream, Stream other) const = 0;
};

/// Returns a machine. `compiler` null: the CPU. It must outlive the calls of add(). Out has this dtype and head dim.
Expected<std::unique_ptr<Machine>> makeMachine(const Compiler* compiler, DType dtype, int headDimV);

} // namespace attnc::shard
