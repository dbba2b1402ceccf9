// Prepared attention: everything that operands decide, decided once.
#include "attnc/prepared.h"

#include "api/compiler_impl.h"
#include "api/mask_shape.h"
#include "api/mod_impl.h"
#include "ir/bindings.h"
#include "jit/enqueue_zeros.h"
#include "plan/catalog.h"

#include <fmt/format.h>
#include <llvm/Support/MathExtras.h>

namespace attnc {
namespace {

/// The options that the operands themselves give.
KernelOptions optionsOf(const Operands& operands, const Outputs& outputs, const PrepareOptions& options) {
  KernelOptions kernel{.family = options.family,
                       .arch = options.arch,
                       .dtype = operands.q.dtype,
                       .headDim = int(operands.q.shape[3]),
                       .headDimV = int(operands.v.shape[3]),
                       .rowMax = outputs.rowMax.has_value(),
                       .tf32 = options.tf32,
                       .pins = options.pins};
  if (const BlockMaskView* mask = operands.blockMask) {
    kernel.blockSparse = true;
    kernel.maskQBlock = mask->shape.qBlock;
    kernel.maskKvBlock = mask->shape.kvBlock;
  }
  return kernel;
}

ProblemShape problemIn(const Operands& operands) {
  const auto &q = operands.q.shape, &k = operands.k.shape;
  return {q[0], q[1], k[1], q[2], k[2]};
}

std::string problemText(const ProblemShape& problem) {
  return fmt::format("B {}, H {}, HKV {}, Q_LEN {}, KV_LEN {}", problem.batch, problem.qHeads, problem.kvHeads,
                     problem.qLen, problem.kvLen);
}

/// The lists stand behind what the kernel needs.
size_t listsOffset(const plan::Plan& plan) { return size_t(llvm::alignTo(plan.workspace.bytes, 16)); }

Status checkCaptures(const Mod& mod, const Captures& captures, const ProblemShape& problem,
                     const std::map<std::string, int64_t>& pins) {
  auto bindings = ir::bind(mod.module(), captures, problem);
  return bindings ? checkPins(mod.module(), *bindings, pins) : bindings.error();
}

Expected<Preparation> settleFor(const Mod& derived, const Operands& operands, const Outputs& outputs,
                                KernelOptions options, bool buildBlockMask) {
  Expected<plan::LaunchOperands> layout = plan::checkLayout(operands, outputs, options);
  if (!layout) return layout.error();
  if (operands.captures)
    if (Status status = checkCaptures(derived, *operands.captures, layout->problem, options.pins); !status)
      return status.error();
  auto kernelMod = kernelModOf(derived, plan::algebraFor(options));
  if (!kernelMod) return kernelMod.error();
  Expected<plan::Plan> plan = plan::choosePlan(**kernelMod, options, &*layout);
  if (!plan) return plan.error();
  const bool buildsMask = buildBlockMask && !options.blockSparse && plan::wantsBlockMask((*kernelMod)->facts, *plan);
  if (buildsMask) {
    options.blockSparse = true;
    plan = plan::choosePlan(**kernelMod, options, &*layout);
    if (!plan) return plan.error();
  }
  Preparation preparation{.options = plan->options,
                          .passedOver = plan->misfit.empty() ? plan->unserved : plan->misfit,
                          .problem = layout->problem,
                          .workspaceBytes = plan->workspace.bytes};
  if (buildsMask) {
    preparation.blockMask = smallestMask(derived.module(), layout->problem, options.maskQBlock, options.maskKvBlock);
    preparation.workspaceBytes = listsOffset(*plan) + BlockMask::storageBytes(*preparation.blockMask);
  }
  return preparation;
}

} // namespace

struct Prepared::Impl {
  Preparation preparation;
  ForwardKernel kernel;
  std::optional<BlockMaskKernel> blockMaskKernel; ///< iff a mask is built in the workspace
  size_t listsOffset = 0;

  /// Whether a call fits what was prepared.
  Status check(const Operands& operands, const void* workspace) const;
};

Status Prepared::Impl::check(const Operands& operands, const void* workspace) const {
  if (const ProblemShape given = problemIn(operands); given != preparation.problem)
    return Error::environment(
        fmt::format("operands are of {}, prepared were {}", problemText(given), problemText(preparation.problem)),
        "prepare for these; kernels are kept, so it costs microseconds");
  if (preparation.blockMask && operands.blockMask)
    return Error::environment("a block mask is given, but the one of the workspace was prepared",
                              "give it to prepare() as well, or not at all");
  if (preparation.workspaceBytes && !workspace)
    return Error::environment(fmt::format("the workspace is null, expected {} bytes", preparation.workspaceBytes));
  if (reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlignment)
    return Error::environment(
        fmt::format("the workspace does not begin at a multiple of {} bytes", kWorkspaceAlignment));
  return {};
}

const Preparation& Prepared::preparation() const { return impl->preparation; }

size_t Prepared::workspaceBytes() const { return impl->preparation.workspaceBytes; }

const ForwardKernel& Prepared::kernel() const { return impl->kernel; }

const BlockMaskKernel* Prepared::blockMaskKernel() const {
  return impl->blockMaskKernel ? &*impl->blockMaskKernel : nullptr;
}

BlockMaskView Prepared::blockMaskIn(void* workspace) const {
  return BlockMask::viewInto(static_cast<char*>(workspace) + impl->listsOffset, *impl->preparation.blockMask);
}

Status Prepared::initialise(const Operands& operands, void* workspace, Stream stream) const {
  if (Status status = impl->check(operands, workspace); !status) return status;
  if (const size_t bytes = impl->kernel.workspaceBytes())
    if (Status status = jit::enqueueZeros(workspace, bytes, stream); !status) return status;
  if (!impl->blockMaskKernel) return {};
  static const Captures kNone;
  const Captures& captures = operands.captures ? *operands.captures : kNone;
  return impl->blockMaskKernel->launch(blockMaskIn(workspace), impl->preparation.problem, captures, stream);
}

Status Prepared::launch(const Operands& operands, const Outputs& outputs, void* workspace, Stream stream) const {
  if (Status status = impl->check(operands, workspace); !status) return status;
  if (!impl->preparation.blockMask) return impl->kernel.launch(operands, outputs, workspace, stream);
  const BlockMaskView lists = blockMaskIn(workspace);
  Operands all = operands;
  all.blockMask = &lists;
  return impl->kernel.launch(all, outputs, workspace, stream);
}

Expected<Preparation> Compiler::settle(const Mod& mod, const Operands& operands, const Outputs& outputs,
                                       const PrepareOptions& options) const {
  Expected<KernelOptions> kernel = withArch(optionsOf(operands, outputs, options));
  if (!kernel) return kernel.error();
  Expected<Mod> derived = impl->derived(mod, kernel->pins);
  if (!derived) return derived.error();
  return settleFor(*derived, operands, outputs, *std::move(kernel), options.buildBlockMask);
}

Expected<Prepared> Compiler::prepare(const Mod& mod, const Operands& operands, const Outputs& outputs,
                                     const PrepareOptions& options) const {
  Expected<Preparation> preparation = settle(mod, operands, outputs, options);
  if (!preparation) return preparation.error();
  Expected<ForwardKernel> kernel = loadForward(mod, preparation->options);
  if (!kernel) return kernel.error();
  Prepared::Impl made{*std::move(preparation), *std::move(kernel), {}, 0};
  if (made.preparation.blockMask) {
    Expected<BlockMaskKernel> builder = loadBlockMask(mod, made.preparation.options);
    if (!builder) return builder.error();
    made.blockMaskKernel = *std::move(builder);
    made.listsOffset = made.preparation.workspaceBytes - BlockMask::storageBytes(*made.preparation.blockMask);
  }
  return Prepared(std::make_shared<const Prepared::Impl>(std::move(made)));
}

} // namespace attnc
