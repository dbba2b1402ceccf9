// Launches: arguments checked, packed and enqueued. Nothing here allocates, compiles or waits.
#include "attnc/kernel.h"

#include "api/forward_params.h"
#include "api/kernel_impl.h"
#include "api/mod_impl.h"
#include "ir/bindings.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace attnc {
namespace {

/// ModArgs at their largest: an address, and of each axis a stride, a size and a free extent.
constexpr size_t kMaxArgWords = ir::kBuiltinDims + ir::kMaxCaptures * (1 + 3 * TensorView::kMaxRank);
/// What ptxas allows on every arch from sm_70 on.
constexpr size_t kMaxParameterBytes = 32'764;
static_assert(8 * kMaxArgWords + std::max(sizeof(ForwardParamsSm90), sizeof(BlockMaskParams)) <= kMaxParameterBytes);

/// Enqueues with the parameters (params, ModArgs).
template <class Params>
Status enqueue(const BuiltKernel& built, const jit::LoadedKernel& loaded, int64_t ctas, Params& params, const Captures& captures,
               const ProblemShape& problem, Stream stream) {
  Expected<ir::Bindings> bindings = ir::bind(built.mod.module(), captures, problem);
  if (!bindings) return bindings.error();
  if (Status status = checkPins(built.mod.module(), *bindings, built.plan.options.pins); !status) return status;
  if (ctas > std::numeric_limits<int32_t>::max())
    return Error::environment(fmt::format("{} CTAs are more than a grid holds", ctas), "split the batch");
  uint64_t words[kMaxArgWords];
  words[0] = 0; // read by nobody, where the mod captures nothing
  codegen::packArgs(built.slots, *bindings, loaded.variable(), words);
  void* arguments[] = {&params, words};
  jit::LaunchShape shape;
  shape.grid[0] = unsigned(ctas);
  shape.block[0] = unsigned(built.plan.threads);
  shape.dynamicSharedBytes = unsigned(built.plan.sharedBytes);
  return loaded.launch(shape, stream, arguments);
}

const Captures kNoCaptures;

} // namespace

Kernel::Kernel(std::shared_ptr<const Impl> impl) : impl(std::move(impl)) {}

const CompiledKernel& Kernel::compiled() const { return *impl->compiled; }

const KernelOptions& Kernel::options() const { return impl->built->plan.options; }

size_t Kernel::workspaceBytes(const ForwardArgs&) const {
  return impl->built->plan.options.family == Family::Sm90 ? kSm90WorkspaceBytes : 0;
}

Status Kernel::forward(const ForwardArgs& args, void* workspace, Stream stream) const {
  const plan::Plan& plan = impl->built->plan;
  if (plan.options.kind != KernelKind::Forward) return Error::environment("forward() of a kernel of another kind");
  Expected<ForwardParams> params = makeForwardParams(args, plan.options);
  if (!params) return params.error();
  const int64_t rows = int64_t(params->batch) * params->q_heads;
  const int64_t tiles = rows * ((params->q_len + plan.blockM - 1) / plan.blockM);
  if (tiles == 0) return {};
  const Captures& captures = args.captures ? *args.captures : kNoCaptures;
  if (plan.options.family != Family::Sm90)
    return enqueue(*impl->built, impl->loaded, tiles, *params, captures, problemShape(args), stream);
  Expected<ForwardParamsSm90> sm90 = makeForwardParamsSm90(args, *params, plan, impl->device, workspace);
  if (!sm90) return sm90.error();
  const int64_t ctas = std::min<int64_t>(tiles, impl->device.multiprocessors);
  return enqueue(*impl->built, impl->loaded, ctas, *sm90, captures, problemShape(args), stream);
}

Status Kernel::buildBlockMask(const BlockMaskView& mask, const ProblemShape& problem, const Captures& captures,
                              Stream stream) const {
  const BlockMaskShape& shape = mask.shape;
  if (impl->built->plan.options.kind != KernelKind::BlockMask)
    return Error::environment("buildBlockMask() of a kernel of another kind");
  if (shape.qLen != problem.qLen || shape.kvLen != problem.kvLen)
    return Error::environment(fmt::format("block mask is for {} x {}, expected the problem's {} x {}", shape.qLen,
                                          shape.kvLen, problem.qLen, problem.kvLen));
  if (shape.qLen > kMaxLength || shape.kvLen > kMaxLength)
    return Error::environment(fmt::format("block mask has a length beyond {}", kMaxLength));
  if (mask.indexStride != shape.kvBlocks())
    return Error::environment("block mask storage is compacted, expected room for every block",
                              "use BlockMask::viewInto");
  const int64_t ctas = shape.batch * shape.heads * shape.qBlocks();
  if (ctas == 0) return {};
  if (!mask.partialCount || !mask.fullCount || (shape.kvLen && (!mask.partialIndex || !mask.fullIndex)))
    return Error::environment("block mask storage is null, expected four lists in device memory");
  BlockMaskParams params{mask.partialCount, mask.partialIndex, mask.fullCount,   mask.fullIndex, int(shape.batch),
                         int(shape.heads),  int(shape.qLen),   int(shape.kvLen), shape.qBlock,   shape.kvBlock};
  return enqueue(*impl->built, impl->loaded, ctas, params, captures, problem, stream);
}

} // namespace attnc
