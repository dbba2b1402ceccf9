#include "api/stage_kernels.h"

#include "api/modless_kernel.h"
#include "jit/current_device.h"
#include "support/ceil_div.h"
#include "support/try.h"

#include <fmt/format.h>

namespace attnc {
namespace {

constexpr int kStageWarps = 8;

plan::Stage stageOf(const char* templateName, const char* entry, DType dtype, int headDimV) {
  return {.templateName = templateName,
          .entry = entry,
          .config = {.dtype = dtype, .headDimQk = headDimV, .headDimV = headDimV, .warps = kStageWarps},
          .threads = 32 * kStageWarps};
}

} // namespace

plan::Stage StageKernels::mergeStage(DType dtype, int headDimV) {
  return stageOf("merge_stages.cu", "attnc_merge_stages", dtype, headDimV);
}

plan::Stage StageKernels::weighStage(DType dtype, int headDimV) {
  return stageOf("stage_gradients.cu", "attnc_weigh_stage", dtype, headDimV);
}

plan::Stage StageKernels::addStage(DType dtype, int headDimV) {
  return stageOf("stage_gradients.cu", "attnc_add_stage", dtype, headDimV);
}

Expected<StageKernels> StageKernels::load(const Compiler& compiler, DType dtype, int headDimV, bool trains) {
  ATTNC_TRY_AS(device, jit::currentDevice());
  const auto loaded = [&](const plan::Stage& stage) {
    return loadModless(compiler, stage, device->arch,
                       fmt::format("{} {} head-dim-{} {}", stage.entry, dtypeName(dtype), headDimV, device->arch));
  };
  ATTNC_TRY_AS(merges, loaded(mergeStage(dtype, headDimV)));
  StageKernels all(*std::move(merges));
  if (!trains) return all;
  ATTNC_TRY_AS(weighs, loaded(weighStage(dtype, headDimV)));
  ATTNC_TRY_AS(adds, loaded(addStage(dtype, headDimV)));
  all.weighs = *std::move(weighs), all.adds = *std::move(adds);
  return all;
}

template <class Params>
Status StageKernels::launch(const jit::LoadedKernel& kernel, const Params& params, Stream stream) {
  const int64_t ctas = ceilDiv(int64_t(params.batch) * params.heads * params.rows, int64_t(kStageWarps));
  if (ctas == 0) return {};
  if (ctas > INT32_MAX) return Error::environment("shards: q has more rows than a merge takes", "plan for more ranks");
  const jit::LaunchShape shape{.grid = {unsigned(ctas), 1, 1}, .block = {32 * kStageWarps, 1, 1}};
  Params copy = params;
  void* arguments[] = {&copy};
  return kernel.launch(shape, stream, arguments);
}

template Status StageKernels::launch(const jit::LoadedKernel&, const MergeStagesParams&, Stream);
template Status StageKernels::launch(const jit::LoadedKernel&, const WeighStageParams&, Stream);
template Status StageKernels::launch(const jit::LoadedKernel&, const AddStageParams&, Stream);

} // namespace attnc
