#include "attnc/quantise.h"

#include "api/compiler_access.h"
#include "api/modless_kernel.h"
#include "api/quantise_programs.h"
#include "attnc/operands.h"
#include "jit/current_device.h"
#include "jit/enqueue_zeros.h"
#include "jit/loaded_kernel.h"
#include "launch/launch_operands.h"
#include "plan/arch.h"
#include "reference/quantise.h"
#include "support/ceil_div.h"
#include "support/try.h"

#include <fmt/format.h>

namespace attnc {
namespace {

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

/// Checks the table of a rotary embedding, and positions in it.
Status checkRotary(const QuantiseOptions& options, const TensorView& x) {
  if (!options.cosSin) {
    if (!options.positions && !options.interleaved) return {};
    return Error::environment("positions or interleaved pairs are given without cos_sin", "give cos_sin");
  }
  const TensorView& table = *options.cosSin;
  if (table.dtype != DType::F32 && table.dtype != x.dtype)
    return wrong("cos_sin", fmt::format("is {}, and neither f32 nor {}", dtypeName(table.dtype), dtypeName(x.dtype)));
  if (table.rank != 2) return wrong("cos_sin", fmt::format("has rank {}, and is not [positions, columns]", table.rank));
  const int64_t multiple = x.shape[3] > 128 ? 16 : 8, columns = table.shape[1];
  if (columns <= 0 || columns > x.shape[3] || columns % multiple)
    return wrong("cos_sin", fmt::format("has {} columns, and not a multiple of {} up to {}", columns, multiple,
                                        x.shape[3] / multiple * multiple));
  if (table.shape[0] < 1 || table.shape[0] > INT32_MAX)
    return wrong("cos_sin", fmt::format("has {} positions, and not 1 to 2^31 - 1", table.shape[0]));
  if (table.stride[1] != 1) return wrong("cos_sin", "has a last stride that is not 1");
  if (!table.data) return wrong("cos_sin", "is null");
  if (!options.positions) return {};
  const TensorView& positions = *options.positions;
  if ((positions.dtype != DType::I32 && positions.dtype != DType::I64) || positions.rank != 2 ||
      positions.shape[0] != x.shape[0] || positions.shape[1] != x.shape[2])
    return wrong("positions", fmt::format("are not i32 or i64 [{}, {}]", x.shape[0], x.shape[2]));
  if (!positions.data && positions.elements()) return wrong("positions", "are null");
  return {};
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
  ATTNC_TRY(checkRotary(options, x));
  if (options.readsScales) return checkGivenScales(scales, x);
  return checkScales(scales, x);
}

/// Adds a rotary embedding to the parameters.
Status addRotary(const QuantiseOptions& options, QuantiseParams& params) {
  const TensorView& table = *options.cosSin;
  const int64_t rowBytes = table.shape[0] > 1 ? table.stride[0] * dtypeBytes(table.dtype) : 0;
  if (reinterpret_cast<uintptr_t>(table.data) % 16 || rowBytes % 16)
    return wrong("cos_sin", "has rows that are not aligned to 16 bytes");
  params.rotary_columns = int(table.shape[1]);
  params.cos_sin = table.data;
  params.cos_sin_row = table.stride[0];
  params.last_position = int(table.shape[0] - 1);
  params.cos_sin_is_f32 = table.dtype == DType::F32;
  params.interleaved = options.interleaved;
  if (!options.positions) return {};
  const int64_t words = dtypeBytes(options.positions->dtype) / 4; // the low one of i64 comes first
  params.positions = static_cast<const int*>(options.positions->data);
  params.position_batch = words * options.positions->stride[0];
  params.position_row = words * options.positions->stride[1];
  return {};
}

} // namespace

Expected<KernelSource> quantiseProgram(DType dtype, int headDim, bool embeds, const std::string& arch) {
  plan::Stage stage{.templateName = "quantise.cu",
                    .entry = "attnc_quantise",
                    .config = {.dtype = dtype, .headDimQk = headDim, .headDimV = headDim, .warps = kQuantiseWarps},
                    .threads = 32 * kQuantiseWarps};
  stage.config.constants = codegen::constantText("kEmbeds", embeds);
  return modlessSource(
      stage, arch,
      fmt::format("kind=quantise dtype={} head-dim={}{}", dtypeName(dtype), headDim, embeds ? " with=rotary" : ""));
}

Expected<QuantiseParams> quantiseParams(const TensorView& x, const TensorView& out, const TensorView& scales,
                                        const QuantiseOptions& options) {
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
                        .rows_of_scale = int(rowsOfScale(scales, x)),
                        .rotates = options.rotates,
                        .seed = options.seed,
                        .scale_mask = options.scaleBits ? (1u << (24 - options.scaleBits)) - 1 : 0};
  if (options.cosSin) ATTNC_TRY(addRotary(options, params));
  return params;
}

struct Quantiser::Impl {
  struct Kernels {
    jit::LoadedKernel scales, round;
  };
  DType dtype;
  int headDim;
  Kernels plain, embedding;
};

Expected<Quantiser> Quantiser::load(const Compiler& compiler, DType dtype, int headDim) {
  ATTNC_TRY(checkDType(dtype));
  if (headDim < 8 || headDim > 256 || headDim % 8)
    return Error::environment(fmt::format("head dim {} is not supported", headDim), "multiples of 8 from 8 to 256 are");
  ATTNC_TRY_AS(device, jit::currentDevice());
  ATTNC_TRY_AS(arch, plan::parseArch(device->arch));
  if (arch->capability < 89)
    return Error::environment(fmt::format("{} converts nothing to e4m3", device->arch), "GPUs from sm_89 on do");
  const auto loaded = [&](bool embeds) -> Expected<Impl::Kernels> {
    ATTNC_TRY_AS(source, quantiseProgram(dtype, headDim, embeds, device->arch));
    ATTNC_TRY_AS(cached, CompilerAccess::compile(compiler, *source));
    const std::vector<char>& cubin = cached->cubin;
    const auto kernel = [&](const char* entry) {
      return jit::LoadedKernel::load({.cubin = {cubin.data(), cubin.size()}, .entry = entry, .arch = source->arch});
    };
    ATTNC_TRY_AS(scales, kernel("attnc_quantise_scales"));
    ATTNC_TRY_AS(round, kernel("attnc_quantise"));
    return Impl::Kernels{*std::move(scales), *std::move(round)};
  };
  ATTNC_TRY_AS(plain, loaded(false));
  ATTNC_TRY_AS(embedding, loaded(true));
  return Quantiser(std::make_shared<const Impl>(Impl{dtype, headDim, *std::move(plain), *std::move(embedding)}));
}

Status Quantiser::launch(const TensorView& x, const TensorView& out, const TensorView& scales,
                         const QuantiseOptions& options, Stream stream) const {
  ATTNC_TRY(checkTensors(x, out, scales, options, impl->dtype, impl->headDim));
  const int64_t blocks = ceilDiv(x.shape[2], kRowsOfScale), ctas = x.shape[0] * x.shape[1] * blocks;
  if (ctas > INT32_MAX) return wrong("x", "has more rows than a launch takes");
  const bool findsScales = !rowsOfScale(scales, x) && !options.readsScales; // of heads, in a launch before
  ATTNC_TRY_AS(params, quantiseParams(x, out, scales, options));
  if (findsScales) ATTNC_TRY(jit::enqueueZeros(scales.data, size_t(scales.elements()) * 4, stream));
  if (ctas == 0) return {};
  const jit::LaunchShape shape{.grid = {unsigned(ctas), 1, 1}, .block = {32 * kQuantiseWarps, 1, 1}};
  void* arguments[] = {&*params};
  const Impl::Kernels& kernels = options.cosSin ? impl->embedding : impl->plain;
  if (findsScales) ATTNC_TRY(kernels.scales.launch(shape, stream, arguments));
  return kernels.round.launch(shape, stream, arguments);
}

Status quantiseOnCpu(const TensorView& x, const TensorView& out, const TensorView& scales,
                     const QuantiseOptions& options) {
  ATTNC_TRY(checkDType(x.dtype));
  ATTNC_TRY(checkTensors(x, out, scales, options, x.dtype, int(x.shape[3])));
  reference::quantise(x, out, scales, options);
  return {};
}

} // namespace attnc
