#include "attnc/quantise.h"

#include "api/modless_kernel.h"
#include "attnc/operands.h"
#include "jit/current_device.h"
#include "jit/enqueue_zeros.h"
#include "jit/loaded_kernel.h"
#include "plan/arch.h"
#include "plan/launch_operands.h"
#include "reference/quantise.h"
#include "support/ceil_div.h"
#include "support/try.h"

#include <fmt/format.h>

namespace attnc {
namespace {

constexpr int kWarps = 8;

Error wrong(const char* name, const std::string& what) { return Error::environment(fmt::format("{} {}", name, what)); }

Status checkRows(const char* name, const TensorView& tensor, DType dtype, const TensorView& like, int headDim) {
  if (tensor.dtype != dtype)
    return wrong(name, fmt::format("is {}, and not {}", dtypeName(tensor.dtype), dtypeName(dtype)));
  if (tensor.rank != 4) return wrong(name, fmt::format("has rank {}, and is not [B, H, L, D]", tensor.rank));
  if (tensor.shape != like.shape || tensor.shape[3] != headDim)
    return wrong(name, fmt::format("is not [B, H, L, {}] like x", headDim));
  if (tensor.stride[3] != 1 && tensor.elements()) return wrong(name, "has a last stride that is not 1");
  if (!tensor.data && tensor.elements()) return wrong(name, "is null");
  return {};
}

/// Returns the rows that share a scale: kRowsOfScale, 1, or 0 for all of a head.
int64_t rowsOfScale(const TensorView& scales, const TensorView& x) {
  if (scales.rank != 3) return 0;
  return scalesAreOfRows(scales, x.shape[2]) ? 1 : kRowsOfScale;
}

/// Checks that scales are of heads.
Status checkGivenScales(const TensorView& scales, const TensorView& x) {
  if (scales.dtype != DType::F32 || scales.rank != 2 || scales.shape[0] != x.shape[0] || scales.shape[1] != x.shape[1])
    return wrong("scales", fmt::format("are given, and not f32 [{}, {}]", x.shape[0], x.shape[1]));
  if (!scales.data && scales.elements()) return wrong("scales", "are null");
  return {};
}

/// Checks that scales are of heads, blocks or rows, and dense.
Status checkScales(const TensorView& scales, const TensorView& x) {
  const int64_t blocks = ceilDiv(x.shape[2], kRowsOfScale);
  const bool isOfParts = scales.rank == 3; // of a head
  if (scales.dtype != DType::F32 || (!isOfParts && scales.rank != 2) || scales.shape[0] != x.shape[0] ||
      scales.shape[1] != x.shape[1] || (isOfParts && scales.shape[2] != blocks && scales.shape[2] != x.shape[2]))
    return wrong("scales", fmt::format("are not f32 [{0}, {1}], [{0}, {1}, {2}] or [{0}, {1}, {3}]", x.shape[0],
                                       x.shape[1], blocks, x.shape[2]));
  const TensorView dense = isOfParts
                               ? TensorView::contiguous(nullptr, DType::F32, {x.shape[0], x.shape[1], scales.shape[2]})
                               : TensorView::contiguous(nullptr, DType::F32, {x.shape[0], x.shape[1]});
  for (int axis = 0; axis < scales.rank && scales.elements(); ++axis)
    if (scales.shape[axis] > 1 && scales.stride[axis] != dense.stride[axis]) return wrong("scales", "are not dense");
  if (!scales.data && scales.elements()) return wrong("scales", "are null");
  return {};
}

Status checkDType(DType dtype) {
  if (dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16) return {};
  return Error::environment(fmt::format("tensors of {} are not rounded to e4m3", dtypeName(dtype)),
                            "f32, f16 and bf16 are");
}

Status checkTensors(const TensorView& x, const TensorView& out, const TensorView& scales,
                    const QuantiseOptions& options, DType dtype, int headDim) {
  if (options.scaleBits < 0 || options.scaleBits > 24)
    return Error::environment(fmt::format("scale_bits is {}", options.scaleBits), "give 1 to 24, or 0 for all bits");
  if (options.scaleBits && options.readsScales)
    return Error::environment(fmt::format("scale_bits is {}, and scales are given", options.scaleBits),
                              "leave one of them out");
  ATTNC_TRY(checkRows("x", x, dtype, x, headDim));
  ATTNC_TRY(checkRows("out", out, DType::E4M3, x, headDim));
  if (options.readsScales) return checkGivenScales(scales, x);
  return checkScales(scales, x);
}

} // namespace

struct Quantiser::Impl {
  DType dtype;
  int headDim;
  jit::LoadedKernel scales, round;
};

Expected<Quantiser> Quantiser::load(const Compiler& compiler, DType dtype, int headDim) {
  ATTNC_TRY(checkDType(dtype));
  if (headDim < 8 || headDim > 256 || headDim % 8)
    return Error::environment(fmt::format("head dim {} is not supported", headDim), "multiples of 8 from 8 to 256 are");
  ATTNC_TRY_AS(device, jit::currentDevice());
  ATTNC_TRY_AS(arch, plan::parseArch(device->arch));
  if (arch->capability < 89)
    return Error::environment(fmt::format("{} converts nothing to e4m3", device->arch), "GPUs from sm_89 on do");
  const auto loaded = [&](const char* entry) {
    const plan::Stage stage{.templateName = "quantise.cu",
                            .entry = entry,
                            .config = {.dtype = dtype, .headDimQk = headDim, .headDimV = headDim, .warps = kWarps},
                            .threads = 32 * kWarps};
    return loadModless(compiler, stage, device->arch,
                       fmt::format("quantise {} head-dim-{} {}", dtypeName(dtype), headDim, device->arch));
  };
  ATTNC_TRY_AS(scales, loaded("attnc_quantise_scales"));
  ATTNC_TRY_AS(round, loaded("attnc_quantise"));
  return Quantiser(std::make_shared<const Impl>(Impl{dtype, headDim, *std::move(scales), *std::move(round)}));
}

Status Quantiser::launch(const TensorView& x, const TensorView& out, const TensorView& scales,
                         const QuantiseOptions& options, Stream stream) const {
  ATTNC_TRY(checkTensors(x, out, scales, options, impl->dtype, impl->headDim));
  const int64_t blocks = ceilDiv(x.shape[2], kRowsOfScale), ctas = x.shape[0] * x.shape[1] * blocks;
  if (ctas > INT32_MAX) return wrong("x", "has more rows than a launch takes");
  const int64_t ofScale = rowsOfScale(scales, x);
  const bool findsScales = !ofScale && !options.readsScales; // of heads, in a launch before
  QuantiseParams params{.x = x.data,
                        .out = out.data,
                        .scales = static_cast<float*>(scales.data),
                        .x_stride = plan::stridesOf(x),
                        .out_stride = plan::stridesOf(out),
                        .scale_batch = scales.stride[0],
                        .scale_head = scales.stride[1],
                        .batch = int(x.shape[0]),
                        .heads = int(x.shape[1]),
                        .rows = int(x.shape[2]),
                        .rows_of_scale = int(ofScale),
                        .rotates = options.rotates,
                        .seed = options.seed,
                        .scale_mask = options.scaleBits ? (1u << (24 - options.scaleBits)) - 1 : 0};
  if (findsScales) ATTNC_TRY(jit::enqueueZeros(scales.data, size_t(scales.elements()) * 4, stream));
  if (ctas == 0) return {};
  const jit::LaunchShape shape{.grid = {unsigned(ctas), 1, 1}, .block = {32 * kWarps, 1, 1}};
  void* arguments[] = {&params};
  if (findsScales) ATTNC_TRY(impl->scales.launch(shape, stream, arguments));
  return impl->round.launch(shape, stream, arguments);
}

Status quantiseOnCpu(const TensorView& x, const TensorView& out, const TensorView& scales,
                     const QuantiseOptions& options) {
  ATTNC_TRY(checkDType(x.dtype));
  ATTNC_TRY(checkTensors(x, out, scales, options, x.dtype, int(x.shape[3])));
  reference::quantise(x, out, scales, options);
  return {};
}

} // namespace attnc
