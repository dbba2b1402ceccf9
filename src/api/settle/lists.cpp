#include "api/settle/lists.h"

#include "launch/mask_shape.h"

#include <algorithm>

namespace attnc {

BlockMaskShape shapeToBuild(const ir::Module& module, const ProblemShape& problem, const KernelOptions& options) {
  BlockMaskShape shape = plan::smallestMask(module, problem, options.maskQBlock, options.maskKvBlock);
  if (options.offsets != QueryOffsets::None) shape.batch = std::max<int64_t>(1, problem.batch);
  return shape;
}

bool mayBuildLists(const plan::LaunchOperands& layout, const ir::Module& module, const KernelOptions& options,
                   BlockMask::Lists lists) {
  if (options.offsets != QueryOffsets::None) {
    constexpr size_t kMostBytes = size_t(256) << 20;
    constexpr int64_t kLeastKeys = 512, kFewRows = 16, kManyBlocks = 64;
    const BlockMaskShape shape = shapeToBuild(module, layout.problem, options);
    if (lists != BlockMask::Lists::ByRow || shape.kvLen < kLeastKeys || !plan::checkShape(shape)) return false;
    const bool isSlow = shape.batch * shape.heads * shape.qBlocks() < kFewRows && shape.kvBlocks() > kManyBlocks;
    return !isSlow && BlockMask::storageBytes(shape, lists) <= kMostBytes;
  }
  if (!layout.cuSeqlensQ) return true;
  if (!layout.maxQLen || !layout.maxKvLen) return false;
  constexpr double kMostPadding = 4; // pairs of the lists for each pair of rows and keys of a sequence
  const auto sequences = double(std::max<int64_t>(1, layout.problem.batch));
  const double keys = layout.pageTable ? sequences * double(layout.maxKvLen) : double(layout.k.shape[2]);
  const auto batch = double(plan::smallestMask(module, layout.problem, 128, 128).batch);
  return batch * double(layout.maxQLen) * double(layout.maxKvLen) <=
         kMostPadding * double(layout.q.shape[2]) * keys / sequences;
}

} // namespace attnc
