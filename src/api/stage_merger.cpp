#include "api/stage_merger.h"

#include "api/modless_kernel.h"
#include "jit/current_device.h"
#include "support/ceil_div.h"
#include "support/try.h"

#include <fmt/format.h>

namespace attnc {
namespace {
constexpr int kMergeWarps = 8;
}

plan::Stage StageMerger::stageOf(DType dtype, int headDimV) {
  return {.templateName = "merge_stages.cu",
          .entry = "attnc_merge_stages",
          .config = {.dtype = dtype, .headDimQk = headDimV, .headDimV = headDimV, .warps = kMergeWarps},
          .threads = 32 * kMergeWarps};
}

Expected<StageMerger> StageMerger::load(const Compiler& compiler, DType dtype, int headDimV) {
  ATTNC_TRY_AS(device, jit::currentDevice());
  const std::string label = fmt::format("merge-stages {} head-dim-{} {}", dtypeName(dtype), headDimV, device->arch);
  ATTNC_TRY_AS(kernel, loadModless(compiler, stageOf(dtype, headDimV), device->arch, label));
  return StageMerger(*std::move(kernel));
}

Status StageMerger::launch(const MergeStagesParams& params, Stream stream) const {
  const int64_t ctas = ceilDiv(int64_t(params.batch) * params.heads * params.rows, int64_t(kMergeWarps));
  if (ctas == 0) return {};
  if (ctas > INT32_MAX) return Error::environment("shards: q has more rows than a merge takes", "plan for more ranks");
  const jit::LaunchShape shape{.grid = {unsigned(ctas), 1, 1}, .block = {32 * kMergeWarps, 1, 1}};
  MergeStagesParams copy = params;
  void* arguments[] = {&copy};
  return kernel.launch(shape, stream, arguments);
}

} // namespace attnc
