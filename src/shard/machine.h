// What computes the stages of a rank: the GPU by kernels, or the CPU by the reference.
#pragma once

#include "api/mod_impl.h"
#include "api/stage_kernels.h"
#include "attnc/compiler.h"
#include "jit/stream_order.h"

#include <memory>

namespace attnc::shard {

/// The tensors of a stage, for both passes or for the forward pass only.
struct StageTensors {
  BackwardOperands operands = {};
  Outputs outputs = {};
  BackwardOutputs gradients = {};
};

class Machine {
public:
  virtual ~Machine() = default;
  /// Prepares a further stage; stages count from 0. Addresses may be null.
  virtual Status add(const Mod& mod, const StageTensors& tensors, const PrepareOptions& options) = 0;
  /// Returns the bytes that a stage needs, and keeps between its launches.
  virtual size_t workspaceBytes(size_t stage) const = 0;
  /// Returns the bytes that a backward launch of any stage needs in addition.
  virtual size_t scratchBytes() const = 0;
  virtual Status initialise(size_t stage, const Operands& operands, void* workspace, Stream stream) const = 0;
  virtual Status attend(size_t stage, const Operands& operands, const Outputs& outputs, void* workspace,
                        Stream stream) const = 0;
  /// Computes gradients of a stage. The operands' out is that of all stages. Their lse is that of the stage. Its share
  /// of each row is a factor of dOut and dLse (templates/stage_gradients.cu).
  virtual Status differentiate(size_t stage, const BackwardOperands& operands, const BackwardOutputs& gradients,
                               void* workspace, void* scratch, Stream stream) const = 0;
  virtual Status merge(const MergeStagesParams& params, Stream stream) const = 0;
  virtual Status weigh(const WeighStageParams& params, Stream stream) const = 0;
  virtual Status sum(const AddStageParams& params, Stream stream) const = 0;
  virtual Status upload(void* to, const void* from, size_t bytes, Stream stream) const = 0;
  virtual Status zero(void* to, size_t bytes, Stream stream) const = 0;
  virtual Status copyRows(jit::RowsAt to, jit::RowsAt from, size_t bytes, size_t rows, Stream stream) const = 0;
  /// Lets a stream wait for the present work of another.
  virtual Status waitFor(Stream stream, Stream other) const = 0;
};

} // namespace attnc::shard
