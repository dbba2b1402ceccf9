// Rounding to e4m3: the kernels run on the host, next to the same on the CPU, and what NVRTC makes of them. No GPU
// needed.
#include "api/compiler_access.h"
#include "api/quantise_programs.h"
#include "helpers/temp_directory.h"
#include "jit/nvrtc.h"
#include "kernels/findings.h"
#include "kernels/host_stage.h"
#include "kernels/host_tensor.h"
#include "support/ceil_div.h"

#include <catch2/catch.hpp>

#include <cmath>

using namespace attnc;
using namespace attnc::test;

namespace {

void runOnHost(const QuantiseParams& params, DType dtype, int headDim, bool embeds, const char* entry, int64_t ctas) {
  KernelSource source = take(quantiseProgram(dtype, headDim, embeds, "sm_90a"));
  source.entry = entry, source.text = "// " + source.entry + "\n" + source.text;
  const std::string parameter = "QuantiseParams p) {";
  for (size_t at = 0; (at = source.text.find(parameter, at)) != std::string::npos;)
    if (source.text.rfind("__grid_constant__", at) + 18 == at) // an entry
      source.text.replace(at, parameter.size(), "QuantiseParams p, const ModArgs&) {");
    else
      ++at;
  REQUIRE(hostStage(source, "QuantiseParams").run(&params, &params, unsigned(ctas), 32 * kQuantiseWarps, 1) ==
          std::string());
}

struct Case {
  DType dtype;
  int headDim;
  int64_t columns; ///< of cos_sin; 0: none
  DType ofTable = DType::F32;
  bool interleaved = false;
  DType ofPositions = DType::Bool; ///< Bool: none
};

void check(const Case& c, int64_t rowsOfScale, bool rotates) {
  INFO(dtypeName(c.dtype) << " x " << c.headDim << ", " << c.columns << " columns of " << dtypeName(c.ofTable)
                          << (c.interleaved ? ", interleaved" : "") << ", positions " << dtypeName(c.ofPositions)
                          << ", a scale for " << rowsOfScale << (rotates ? ", rotated" : ""));
  constexpr int64_t kRows = 150;
  std::mt19937 random(5);
  Tensor x(c.dtype, {2, 2, kRows, c.headDim}, random), out(DType::E4M3, {2, 2, kRows, c.headDim}, random),
      expected(DType::E4M3, {2, 2, kRows, c.headDim}, random);
  std::vector<int64_t> shape{2, 2};
  if (rowsOfScale) shape.push_back(ceilDiv(kRows, rowsOfScale));
  Tensor scales(DType::F32, shape, random), expectedScales(DType::F32, shape, random);
  for (int64_t i = 0; i < scales.view.elements(); ++i) writeElement(scales.view.data, DType::F32, i, 0);
  Tensor table(c.ofTable, {90, std::max<int64_t>(c.columns, 1)}, random, c.columns + 16);
  std::vector<int64_t> positions(2 * 2 * kRows);
  for (int64_t i = 0; i < 2 * kRows; ++i) {
    const int64_t position = i * 37 % 97 - 3; // some outside the table
    if (c.ofPositions == DType::I64)
      positions[size_t(2 * i)] = position;
    else
      reinterpret_cast<int32_t*>(positions.data())[2 * i] = int32_t(position);
  }
  QuantiseOptions options{.rotates = rotates, .seed = 3, .interleaved = c.interleaved};
  if (c.columns) options.cosSin = table.view;
  if (c.ofPositions != DType::Bool) {
    options.positions = TensorView::contiguous(positions.data(), c.ofPositions, {2, kRows});
    options.positions->stride = {2 * kRows, 2};
  }
  REQUIRE(quantiseOnCpu(x.view, expected.view, expectedScales.view, options));
  auto params = take(quantiseParams(x.view, out.view, scales.view, options));
  const int64_t ctas = 4 * ceilDiv(kRows, int64_t(kRowsOfScale));
  if (!rowsOfScale) runOnHost(params, c.dtype, c.headDim, c.columns, "attnc_quantise_scales", ctas);
  runOnHost(params, c.dtype, c.headDim, c.columns, "attnc_quantise", ctas);
  const auto element = [](const TensorView& tensor, int64_t i) {
    return double(readElement(tensor.data, tensor.dtype, i).real);
  };
  for (int64_t i = 0; i < scales.view.elements(); ++i)
    REQUIRE(std::fabs(element(scales.view, i) / element(expectedScales.view, i) - 1) < 1e-6);
  int64_t differ = 0;
  for (int64_t i = 0; i < out.view.elements(); ++i) {
    const double is = element(out.view, i), want = element(expected.view, i);
    differ += is != want;
    REQUIRE(std::fabs(is - want) <= std::max(std::fabs(want) / 8, 0x1p-9)); // a step
  }
  CHECK(differ <= out.view.elements() / 1000);
}

} // namespace

TEST_CASE("kernels that round write what the CPU writes", "[kernels]") {
  for (const Case& c : {Case{DType::BF16, 64, 0},
                        {DType::BF16, 8, 8, DType::BF16, false, DType::I32},
                        {DType::F32, 32, 16, DType::F32, true, DType::I64},
                        {DType::F16, 64, 64, DType::F32, true},
                        {DType::BF16, 96, 24, DType::F32, false, DType::I64},
                        {DType::BF16, 128, 128, DType::BF16, false, DType::I32},
                        {DType::BF16, 128, 64, DType::BF16, true, DType::I32},
                        {DType::BF16, 192, 64, DType::F32, true, DType::I32},
                        {DType::F16, 256, 256, DType::F32, false, DType::I64}})
    for (int64_t rowsOfScale : {int64_t(0), int64_t(1), int64_t(kRowsOfScale)})
      for (bool rotates : {false, true})
        if (test::isCaseDue()) check(c, rowsOfScale, rotates);
}

TEST_CASE("kernels read tables whose rows are aligned to 16 bytes", "[kernels]") {
  std::mt19937 random(5);
  Tensor x(DType::BF16, {1, 1, 9, 16}, random), out(DType::E4M3, {1, 1, 9, 16}, random),
      scales(DType::F32, {1, 1}, random), table(DType::F32, {9, 16}, random, 20);
  QuantiseOptions options{.cosSin = table.view};
  CHECK(quantiseParams(x.view, out.view, scales.view, options));
  options.cosSin->stride[0] = 18;
  CHECK_FALSE(quantiseParams(x.view, out.view, scales.view, options));
  options.cosSin = table.view;
  options.cosSin->data = static_cast<float*>(table.view.data) + 1;
  CHECK_FALSE(quantiseParams(x.view, out.view, scales.view, options));
}

NVRTC_TEST_CASE("kernels that round compile without spills, and two CTAs fit into an SM", "[kernels]") {
  jit::Nvrtc nvrtc(jit::Env::read());
  for (const char* arch : {"sm_89", "sm_90a", "sm_100"})
    for (const DType dtype : {DType::BF16, DType::F16, DType::F32})
      for (const int headDim : {64, 96, 128, 192, 256})
        for (const bool embeds : {false, true}) {
          const int others = (headDim != 128) + (dtype != DType::BF16) + (arch != std::string_view("sm_90a"));
          if (others > 1 || !test::isCaseDue()) continue;
          CAPTURE(arch, dtypeName(dtype), headDim, embeds);
          auto job = take(quantiseProgram(dtype, headDim, embeds, arch));
          auto compiled = take(nvrtc.compile(job));
          CHECK(compiled.spillBytes == 0);
          CHECK(compiled.registers <= (headDim == 64 && !embeds ? 80 : 128));
        }
}

NVRTC_TEST_CASE("packs of kernels of e4m3 have those that round to it", "[kernels]") {
  const TempDirectory folder;
  const std::string path = folder / "kernels.attnc";
  const auto packOf = [&](const KernelOptions& options) {
    auto plan = take(compiler().plan(Mod::identity(), options));
    auto pack = take(compiler().pack({plan}));
    writeText(path, pack);
    CompilerOptions bare;
    bare.cacheMode = CompilerOptions::CacheMode::Off;
    bare.nvrtcPath = "/no/such/libnvrtc.so";
    bare.packs = {path};
    return Compiler(bare);
  };
  const auto has = [](const Compiler& bare, DType dtype, int headDim, bool embeds) {
    auto job = take(quantiseProgram(dtype, headDim, embeds, "sm_90a"));
    return bool(CompilerAccess::compile(bare, job));
  };
  const KernelOptions forward{.family = Family::Sm90, .arch = "sm_90a", .headDim = 64, .headDimV = 128};
  KernelOptions rounded = forward;
  rounded.features = {Feature::Fp8Q, Feature::Fp8Kv};
  const Compiler bare = packOf(rounded);
  for (int headDim : {64, 128})
    for (bool embeds : {false, true}) CHECK(has(bare, DType::BF16, headDim, embeds));
  CHECK_FALSE(has(bare, DType::F16, 64, false));
  CHECK_FALSE(has(bare, DType::BF16, 96, false));
  KernelOptions decode{
      .kind = KernelKind::Decode, .arch = "sm_90a", .dtype = DType::F16, .headDim = 64, .features = {Feature::Fp8Kv}};
  decode.packedRows = 16;
  decode.headDimV = 64;
  CHECK(has(packOf(decode), DType::F16, 64, true));
  CHECK_FALSE(has(packOf(forward), DType::BF16, 64, false));
}
