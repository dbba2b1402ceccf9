#include "launch/mask_shape.h"

#include "ir/ir.h"
#include "ir/walk.h"
#include "support/try.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace attnc::plan {
namespace {

bool maskDependsOn(const ir::Module& module, ir::ParamKind param) {
  const std::optional<ir::Value> mask = module.output(ir::kMask);
  return mask && ir::paramsOf(module, *mask).contains(param);
}

/// Refuses a batch or heads of 1 for a problem with more, if mask_mod depends on them.
Status checkShared(const ir::Module& module, const char* name, ir::ParamKind param, int64_t given, int64_t whole) {
  if (given >= whole || !maskDependsOn(module, param)) return {};
  return Error::environment(
      fmt::format("block mask: {} is {}, but mask_mod depends on {}", name, given, ir::name(param)),
      fmt::format("build it with {} {}", name, whole));
}

Status checkExtent(const char* name, int64_t given, int64_t whole) {
  if (given == whole || given == 1) return {};
  return Error::environment(
      fmt::format("block mask: {} is {}, the problem has {}; it must be that or 1", name, given, whole));
}

/// Checks lists along one axis, `count` for each head. `Lists`: BlockMaskView or BlockMaskColumns.
template <class Lists>
Status checkPointers(const BlockMaskView& mask, std::string_view prefix, const Lists& lists, int64_t count) {
  if (lists.indexStride < 0) return Error::environment(fmt::format("block mask: {}indexStride is negative", prefix));
  const bool hasLists = mask.shape.batch * mask.shape.heads * count > 0;
  const bool hasIndices = hasLists && lists.indexStride > 0;
  if ((hasLists && !lists.partialCount) || (hasIndices && !lists.partialIndex))
    return Error::environment(fmt::format("block mask: {0}partialCount and {0}partialIndex must not be null", prefix));
  if (lists.fullCount ? hasIndices && !lists.fullIndex : lists.fullIndex != nullptr)
    return Error::environment(
        fmt::format("block mask: {0}fullCount and {0}fullIndex must both be given or both be null", prefix));
  return {};
}

} // namespace

Status checkBlocks(int qBlock, int kvBlock) {
  const auto isSupported = [](int size) { return size == 64 || size == 128 || size == 256; };
  if (isSupported(qBlock) && isSupported(kvBlock)) return {};
  return Error::environment(fmt::format("block mask: blocks of {} x {} are not supported", qBlock, kvBlock),
                            "use 64, 128 or 256 for each side");
}

/// Checks a lattice of boxes that covers `tokens` tokens.
static Status checkLattice(const char* length, const BoxLattice& lattice, int64_t tokens) {
  constexpr int64_t kMostTokens = 256;
  // Products do not overflow: factors are between 1 and `most`, and products stop once they exceed it.
  const auto isSupported = [](const auto& extents, int64_t most) {
    int64_t product = 1;
    for (int64_t extent : extents) {
      if (extent < 1 || extent > most) return false;
      product *= extent;
      if (product > most) return false;
    }
    return true;
  };
  const auto text = [&](const auto& of) { return fmt::format("{}x{}x{}", of[0], of[1], of[2]); };
  if (!isSupported(lattice.box, kMostTokens) || !isSupported(lattice.extents, ir::kMaxExtent))
    return Error::environment(fmt::format("block mask: boxes of {} on a grid of {} are not supported",
                                          text(lattice.box), text(lattice.extents)),
                              fmt::format("extents of at least 1, {} tokens of a box, 2^24 of a grid", kMostTokens));
  if (lattice.tokens() == tokens) return {};
  return Error::environment(fmt::format("block mask: a grid of {} has {} tokens, {} is {}", text(lattice.extents),
                                        lattice.tokens(), length, tokens));
}

static Status checkBlocksOf(const BlockMaskShape& shape) {
  if (!shape.boxes) return checkBlocks(shape.qBlock, shape.kvBlock);
  ATTNC_TRY(checkLattice("Q_LEN", shape.boxes->queries, shape.qLen));
  return checkLattice("KV_LEN", shape.boxes->keys, shape.kvLen);
}

Status checkShape(const BlockMaskShape& shape) {
  ATTNC_TRY(checkBlocksOf(shape));
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
  // The bytes of the lists must fit into size_t.
  if (shape.kvLen > 0 && shape.batch * shape.heads * shape.qBlocks() > (int64_t(1) << 59) / shape.kvBlocks())
    return Error::environment("block mask: it has more than 2^59 blocks");
  return {};
}

Status checkServes(const BlockMaskShape& shape, const ProblemShape& problem, bool isRagged) {
  BlockMaskShape ofSome = shape; // batch or heads may be 0 if the problem's are 0
  if (shape.batch == 0 && problem.batch == 0) ofSome.batch = 1;
  if (shape.heads == 0 && problem.qHeads == 0) ofSome.heads = 1;
  ATTNC_TRY(checkShape(ofSome));
  if (shape.qLen != problem.qLen || shape.kvLen != problem.kvLen)
    return Error::environment(fmt::format("block mask: its lengths are {} x {}, those of the problem {} x {}",
                                          shape.qLen, shape.kvLen, problem.qLen, problem.kvLen),
                              isRagged ? "one of a ragged batch is of max_q_len queries and max_kv_len keys" : "");
  ATTNC_TRY(checkExtent("batch", shape.batch, problem.batch));
  return checkExtent("heads", shape.heads, problem.qHeads);
}

Status checkMaskProblem(const ir::Module& module, const ProblemShape& problem, const BlockMaskShape& shape) {
  ATTNC_TRY(checkServes(shape, problem));
  ATTNC_TRY(checkShared(module, "batch", ir::ParamKind::B, shape.batch, problem.batch));
  return checkShared(module, "heads", ir::ParamKind::H, shape.heads, problem.qHeads);
}

Status checkLists(const BlockMaskView& lists) { return checkPointers(lists, "", lists, lists.shape.qBlocks()); }

Status checkColumns(const BlockMaskView& lists) {
  if (!lists.columns.partialCount && lists.shape.batch * lists.shape.heads * lists.shape.kvBlocks() > 0)
    return Error::environment("block mask: it has no lists by column, which the kernel was compiled for",
                              "BlockMaskView::columns; block-mask kernels fill them with KernelOptions::columnLists");
  return checkPointers(lists, "columns.", lists.columns, lists.shape.kvBlocks());
}

BlockMaskShape smallestMask(const ir::Module& module, const ProblemShape& problem, int qBlock, int kvBlock) {
  BlockMaskShape shape{.qLen = problem.qLen, .kvLen = problem.kvLen, .qBlock = qBlock, .kvBlock = kvBlock};
  if (maskDependsOn(module, ir::ParamKind::B)) shape.batch = std::max<int64_t>(1, problem.batch);
  if (maskDependsOn(module, ir::ParamKind::H)) shape.heads = std::max<int64_t>(1, problem.qHeads);
  return shape;
}

} // namespace attnc::plan
