#include "plan/mask_shape.h"

#include "ir/walk.h"

#include <fmt/format.h>

namespace attnc {
namespace {

bool supportedBlock(int size) { return size == 64 || size == 128 || size == 256; }

bool maskDependsOn(const ir::Module& module, ir::ParamKind param) {
  const std::optional<ir::Value> mask = module.output(ir::kMask);
  return mask && ir::paramsOf(module, *mask).contains(param);
}

Status checkExtent(const ir::Module& module, const char* name, ir::ParamKind param, int64_t given, int64_t whole) {
  if (given == whole) return {};
  if (given != 1)
    return Error::environment(
        fmt::format("block mask: {} is {}, the problem has {}; it must be that or 1", name, given, whole));
  if (!maskDependsOn(module, param)) return {};
  return Error::environment(fmt::format("block mask: {} is 1, but mask_mod depends on {}", name, ir::name(param)),
                            fmt::format("build it with {} {}", name, whole));
}

} // namespace

Status checkShape(const BlockMaskShape& shape) {
  if (!supportedBlock(shape.qBlock) || !supportedBlock(shape.kvBlock))
    return Error::environment(
        fmt::format("block mask: blocks of {} x {} are not supported", shape.qBlock, shape.kvBlock),
        "use 64, 128 or 256 for each side");
  if (shape.batch < 1 || shape.heads < 1)
    return Error::environment(
        fmt::format("block mask: batch {} and heads {} must be at least 1", shape.batch, shape.heads));
  constexpr int64_t kLongest = INT32_MAX; // indices are int32
  if (shape.qLen < 0 || shape.kvLen < 0 || shape.qLen > kLongest || shape.kvLen > kLongest)
    return Error::environment(
        fmt::format("block mask: lengths {} x {} must be 0 .. 2^31 - 1", shape.qLen, shape.kvLen));
  if (shape.batch > kLongest || shape.heads > kLongest || shape.batch * shape.heads > kLongest)
    return Error::environment(
        fmt::format("block mask: batch {} times heads {} is beyond 2^31 - 1", shape.batch, shape.heads));
  return {};
}

Status checkMaskProblem(const ir::Module& module, const ProblemShape& problem, const BlockMaskShape& shape) {
  if (auto status = checkShape(shape); !status) return status;
  if (shape.qLen != problem.qLen || shape.kvLen != problem.kvLen)
    return Error::environment(fmt::format("block mask: its lengths are {} x {}, those of the problem {} x {}",
                                          shape.qLen, shape.kvLen, problem.qLen, problem.kvLen));
  if (auto status = checkExtent(module, "batch", ir::ParamKind::B, shape.batch, problem.batch); !status) return status;
  return checkExtent(module, "heads", ir::ParamKind::H, shape.heads, problem.qHeads);
}

BlockMaskShape smallestMask(const ir::Module& module, const ProblemShape& problem, int qBlock, int kvBlock) {
  BlockMaskShape shape{.qLen = problem.qLen, .kvLen = problem.kvLen, .qBlock = qBlock, .kvBlock = kvBlock};
  if (maskDependsOn(module, ir::ParamKind::B)) shape.batch = problem.batch;
  if (maskDependsOn(module, ir::ParamKind::H)) shape.heads = problem.qHeads;
  return shape;
}

} // namespace attnc
