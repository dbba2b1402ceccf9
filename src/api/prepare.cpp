// Prepared attention: launches of what was settled for operands.
#include "attnc/prepared.h"

#include "api/check_values.h"
#include "api/compiler_access.h"
#include "api/compiler_impl.h"
#include "families/catalog.h"
#include "jit/measure.h"
#include "support/try.h"

#include <fmt/format.h>

#include <functional>
#include <future>
#include <mutex>
#include <utility>

namespace attnc {
namespace {

std::string problemText(const ProblemShape& problem) {
  return fmt::format("B {}, H {}, HKV {}, Q_LEN {}, KV_LEN {}", problem.batch, problem.qHeads, problem.kvHeads,
                     problem.qLen, problem.kvLen);
}

/// Returns the tuned choices that a preparation uses, as in Preparation::tunedBy. Empty if it uses none.
std::string tunedByOf(const Preparation& preparation) {
  const std::string& forward = preparation.kernel.tunedBy();
  const std::string backward = preparation.backward ? preparation.backward->tunedBy() : std::string();
  return forward + (forward.empty() || backward.empty() ? "" : " or ") + backward;
}

} // namespace

std::vector<Plan> Preparation::kernels() const {
  std::vector<Plan> all{kernel};
  if (blockMaskKernel) all.push_back(*blockMaskKernel);
  if (backward) all.push_back(*backward);
  return all;
}

struct Prepared::Impl {
  Preparation preparation;
  ForwardKernel kernel;
  std::optional<BlockMaskKernel> blockMaskKernel;         ///< set if a mask is built in the workspace
  bool checks;                                            ///< PrepareOptions::check
  std::function<Expected<BackwardKernel>()> loadBackward; ///< for PrepareOptions::backwardLater
  mutable std::optional<BackwardKernel> backwardKernel;
  mutable std::mutex mutex = {}; ///< guards `backwardKernel`

  const Kernel::Impl& loaded() const { return CompilerAccess::implOf(kernel); }

  void* backwardMemory(void* memory) const {
    return memory ? static_cast<char*>(memory) + backwardOffset(preparation.impl->workspace) : nullptr;
  }

  /// Returns the backward kernel. The first call compiles and loads it if prepare() did not.
  Expected<const BackwardKernel*> backward(Stream stream) const;

  /// Whether each launch builds the mask.
  bool listsAnew() const { return blockMaskKernel && preparation.kernel.kvLoop() == KvLoop::Listed; }

  /// Checks that a call fits what was prepared.
  Status check(const Operands& operands, void* memory) const;

  /// check(), and checks values if launches do.
  Status checkLaunch(const Operands& operands, void* memory, KernelKind kind, Stream stream) const {
    ATTNC_TRY(check(operands, memory));
    if (!checks && !loaded().checks) return {};
    ATTNC_TRY(checkOnDevice(loaded().module(), operands, kind, stream));
    return checkZeros({preparation.impl->workspace, memory}, stream);
  }

  /// Which lists the block mask kernel builds. A backward pass walks those by column.
  BlockMask::Lists lists() const {
    const bool byColumn = blockMaskKernel && blockMaskKernel->options().columnLists;
    return byColumn ? BlockMask::Lists::ByRowAndColumn : BlockMask::Lists::ByRow;
  }
};

Status Prepared::Impl::check(const Operands& operands, void* memory) const {
  if (const ProblemShape given = plan::problemOf(operands); given != preparation.problem)
    return Error::environment(
        fmt::format("operands are of {}, prepared were {}", problemText(given), problemText(preparation.problem)),
        "prepare for these; kernels are kept, so it costs microseconds");
  if (operands.q.shape[2] != preparation.impl->qRows || operands.k.shape[2] != preparation.impl->kvRows)
    return Error::environment(fmt::format("operands have {} rows of q and {} of k, prepared were {} and {}",
                                          operands.q.shape[2], operands.k.shape[2], preparation.impl->qRows,
                                          preparation.impl->kvRows),
                              "prepare for these; kernels are kept, so it costs microseconds");
  if (preparation.blockMask && operands.blockMask)
    return Error::environment("a block mask is given, but the one of the workspace was prepared",
                              "give it to prepare() as well, or not at all");
  // A kernel may do without its counters, but a workspace that initialise() never saw must not pass for an initialised
  // one.
  if (preparation.workspaceBytes && !memory)
    return Error::environment(fmt::format("the workspace is null, expected {} bytes", preparation.workspaceBytes));
  return plan::checkWorkspace({preparation.impl->workspace, memory});
}

const Preparation& Prepared::preparation() const { return impl->preparation; }

size_t Prepared::workspaceBytes() const { return impl->preparation.workspaceBytes; }

const ForwardKernel& Prepared::kernel() const { return impl->kernel; }

const BlockMaskKernel* Prepared::blockMaskKernel() const {
  return impl->blockMaskKernel ? &*impl->blockMaskKernel : nullptr;
}

BlockMaskView Prepared::blockMaskIn(void* workspace) const {
  const plan::WorkspaceView view{impl->preparation.impl->workspace, workspace};
  BlockMaskView lists = BlockMask::viewInto(view.at(plan::Use::Lists), *impl->preparation.blockMask, impl->lists());
  lists.ofWholeMod = true;
  return lists;
}

Status Prepared::initialise(const Operands& operands, void* workspace, Stream stream) const {
  ATTNC_TRY(impl->check(operands, workspace));
  const plan::WorkspaceView view{impl->preparation.impl->workspace, workspace};
  ATTNC_TRY(enqueueZeros(view, plan::WorkspaceUse::Zeroed::Once, stream));
  if (impl->preparation.backward) {
    const plan::WorkspaceView backward{*impl->preparation.impl->backwardWorkspace, impl->backwardMemory(workspace)};
    ATTNC_TRY(enqueueZeros(backward, plan::WorkspaceUse::Zeroed::Once, stream));
  }
  if (!impl->blockMaskKernel || impl->listsAnew()) return {};
  static const Captures kNone;
  const Captures& captures = operands.captures ? *operands.captures : kNone;
  return impl->blockMaskKernel->launch(blockMaskIn(workspace), impl->preparation.problem, captures, stream);
}

Status Prepared::launch(const Operands& operands, const Outputs& outputs, void* workspace, Stream stream) const {
  ATTNC_TRY(impl->checkLaunch(operands, workspace, KernelKind::Forward, stream));
  if (!impl->preparation.blockMask) return impl->kernel.launch(operands, outputs, workspace, stream);
  const BlockMaskView lists = blockMaskIn(workspace);
  Operands all = operands;
  all.blockMask = &lists;
  if (!impl->listsAnew()) return impl->kernel.launch(all, outputs, workspace, stream);
  ATTNC_TRY_AS(checked, plan::checkForward(all, outputs, impl->kernel.options()));
  const Kernel::Impl& builder = CompilerAccess::implOf(*impl->blockMaskKernel);
  ATTNC_TRY_AS(build,
               plan::checkBlockMask(builder.module(), lists, impl->preparation.problem, builder.options(), &*checked));
  return impl->loaded().launch(*std::move(checked), operands.captures, workspace, stream,
                               [&] { return builder.launch(*std::move(build), operands.captures, nullptr, stream); });
}

const BackwardKernel* Prepared::backwardKernel() const {
  std::lock_guard lock(impl->mutex);
  return impl->backwardKernel ? &*impl->backwardKernel : nullptr;
}

Expected<const BackwardKernel*> Prepared::Impl::backward(Stream stream) const {
  std::lock_guard lock(mutex);
  if (backwardKernel) return &*backwardKernel;
  if (!preparation.backward)
    return Error::environment("only the forward pass is prepared", "Compiler::prepareTraining prepares both");
  ATTNC_TRY_AS(captured, jit::isCaptured(stream));
  if (*captured)
    return Error::environment("the backward kernels are not loaded yet, which a CUDA graph cannot do",
                              "launch the backward pass once before it is captured");
  ATTNC_TRY_AS(loaded, loadBackward());
  backwardKernel = *std::move(loaded);
  return &*backwardKernel;
}

Status Prepared::launchBackward(const BackwardOperands& operands, const BackwardOutputs& outputs, void* workspace,
                                Stream stream) const {
  return PreparedAccess::launchBackward(*this, operands, outputs, workspace, impl->backwardMemory(workspace), stream);
}

size_t PreparedAccess::keptBytes(const Prepared& prepared) {
  return backwardOffset(prepared.impl->preparation.impl->workspace);
}

size_t PreparedAccess::scratchBytes(const Prepared& prepared) {
  return prepared.impl->preparation.impl->backwardWorkspace->bytes();
}

Status PreparedAccess::launchBackward(const Prepared& prepared, const BackwardOperands& operands,
                                      const BackwardOutputs& outputs, void* kept, void* scratch, Stream stream) {
  const auto& impl = prepared.impl;
  ATTNC_TRY_AS(found, impl->backward(stream));
  const BackwardKernel& kernel = **found;
  ATTNC_TRY(impl->checkLaunch(operands, kept, KernelKind::Backward, stream));
  if (!kernel.options().gradients.empty()) {
    ATTNC_TRY_AS(bytes, kernel.workspaceBytes(operands, outputs));
    if (*bytes > impl->preparation.impl->backwardWorkspace->bytes())
      return Error::environment("gradients of captures take more workspace than those that were prepared for",
                                "prepare for tensors of this layout and dtype");
  }
  if (!impl->preparation.blockMask) return kernel.launch(operands, outputs, scratch, stream);
  const BlockMaskView lists = prepared.blockMaskIn(kept);
  BackwardOperands all = operands;
  all.blockMask = &lists;
  return kernel.launch(all, outputs, scratch, stream);
}

Expected<Prepared> Compiler::Impl::prepared(const Compiler& compiler, Preparation preparation, bool checks,
                                            bool backwardLater) {
  Impl& impl = *compiler.impl;
  const bool now = preparation.backward && !(backwardLater && !impl.isLoaded(*preparation.backward));
  // All kernels compile at once.
  std::future<Expected<CompiledStages>> mask, gradients;
  if (preparation.blockMaskKernel) mask = impl.building(*preparation.blockMaskKernel);
  if (now) gradients = impl.building(*preparation.backward);
  ATTNC_TRY_AS(kernel, impl.load(preparation.kernel));
  std::optional<BlockMaskKernel> builder;
  if (preparation.blockMaskKernel) {
    ATTNC_TRY_AS(loaded, CompilerAccess::loadBlockMask(compiler, *preparation.blockMaskKernel, std::move(mask)));
    builder = *std::move(loaded);
  }
  std::optional<BackwardKernel> backward;
  std::function<Expected<BackwardKernel>()> loadBackward;
  if (now) {
    ATTNC_TRY_AS(loaded, impl.load(*preparation.backward, std::move(gradients)));
    backward = BackwardKernel(*std::move(loaded));
  } else if (preparation.backward) {
    loadBackward = [plan = *preparation.backward, of = std::weak_ptr(compiler.impl)]() -> Expected<BackwardKernel> {
      const auto impl = of.lock();
      if (!impl) return Error::environment("the compiler was destroyed before the backward kernels were loaded");
      ATTNC_TRY_AS(loaded, impl->load(plan));
      return BackwardKernel(*std::move(loaded));
    };
  }
  return Prepared(std::shared_ptr<const Prepared::Impl>(
      new Prepared::Impl{std::move(preparation), ForwardKernel(*std::move(kernel)), std::move(builder), checks,
                         std::move(loadBackward), std::move(backward)}));
}

Expected<Prepared> Compiler::Impl::prepare(const Compiler& compiler, const Mod& mod, const Operands& operands,
                                           const Outputs& outputs, const PrepareOptions& options,
                                           const Training* training) {
  Impl& impl = *compiler.impl;
  ATTNC_TRY_AS(settled, impl.settle(mod, operands, outputs, options, Lookup::Device, training));
  const std::string tunedBy = tunedByOf(*settled);
  // A tuned tile whose kernel cannot be built has another one in its place, so that is found out here.
  const bool later = options.backwardLater && tunedBy.empty();
  Expected<Prepared> result = prepared(compiler, *std::move(settled), options.check, later);
  if (result || tunedBy.empty()) return result;
  impl.log.line(fmt::format("tuned choice {} ignored: {}", tunedBy, result.error().message));
  settled = impl.settle(mod, operands, outputs, options, Lookup::None, training);
  if (!settled) return settled.error();
  return prepared(compiler, *std::move(settled), options.check, options.backwardLater);
}

Expected<Prepared> Compiler::prepare(const Mod& mod, const Operands& operands, const Outputs& outputs,
                                     const PrepareOptions& options) const {
  return Impl::prepare(*this, mod, operands, outputs, options);
}

Expected<Prepared> Compiler::prepareTraining(const Mod& mod, const BackwardOperands& operands, const Outputs& outputs,
                                             const BackwardOutputs& gradients, const PrepareOptions& options) const {
  const Training training{operands, gradients};
  return Impl::prepare(*this, mod, operands, outputs, options, &training);
}

} // namespace attnc
