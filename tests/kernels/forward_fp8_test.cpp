// The forward kernel of e4m3 with mma.sync: compiled; and run on the host, its generated text, with the parameters that
// a launch would have, on a stand-in for the GPU (host_gpu.h), next to the fp64 reference on the same bytes.
#include "api/mod_impl.h"
#include "attnc/attnc.h"
#include "helpers/plans.h"
#include "kernels/findings.h"
#include "kernels/host_launch.h"
#include "kernels/host_tensor.h"
#include "launch/launch_operands.h"
#include "launch/workspace.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

using namespace attnc;
using test::Tensor;

namespace {

enum class Kind { None, OfHeads, OfSequences, OfBlocks };

struct Case {
  std::string mod = "q_idx >= kv_idx";
  ProblemShape shape;
  int headDim = 64, headDimV = 64;
  Kind scales = Kind::OfSequences;
  std::vector<int32_t> lengths = {};
  int pageSize = 0;
  std::vector<int32_t> cuSeqlensQ = {}; ///< of a ragged batch; without pages, k and v have the same lengths
  int qBlock = 0;                       ///< of a block mask; 0: none
  std::string tile = {};
  DType dtype = DType::F16;
  int rowPadding = 0; ///< elements behind a row of q, k and v
  float qFactor = 1;  ///< q's scales are that many times as large
  int deadBlock = -1; ///< a block of v with the scale 2^-60
};

/// Draws scales of a tensor of e4m3, from 2^-3 to 2^3.
Tensor scalesFor(Kind kind, int64_t batch, int64_t heads, int64_t rows, std::mt19937& random, float factor) {
  const int64_t blocks = (rows + kRowsOfScale - 1) / kRowsOfScale;
  Tensor scales(DType::F32,
                kind == Kind::OfHeads       ? std::vector{heads}
                : kind == Kind::OfSequences ? std::vector{batch, heads}
                                            : std::vector{batch, heads, blocks},
                random);
  std::uniform_real_distribution<float> exponent(-3, 3);
  auto* data = static_cast<float*>(scales.view.data);
  for (int64_t i = 0; i < scales.view.elements(); ++i) data[i] = factor * std::exp2(exponent(random));
  return scales;
}

/// Copies rows of each sequence to pages in any order. Rows that no sequence has are NaN.
Tensor inPages(const Tensor& from, const std::vector<int32_t>& table, const Case& c, std::mt19937& random) {
  const auto& shape = from.view.shape;
  const int64_t pages = c.shape.kvLen / c.pageSize;
  Tensor pool(from.view.dtype, {int64_t(table.size()), shape[1], c.pageSize, shape[3]}, random);
  std::fill(pool.bytes.begin(), pool.bytes.end(), char(0x7f));
  for (int64_t b = 0; b < c.shape.batch; ++b)
    for (int64_t h = 0; h < shape[1]; ++h)
      for (int64_t i = 0; i < c.lengths[size_t(b)]; ++i)
        for (int64_t d = 0; d < shape[3]; ++d)
          pool.set({table[size_t(b * pages + i / c.pageSize)], h, i % c.pageSize, d}, from.at({b, h, i, d}));
  return pool;
}

struct Results {
  Tensor out, lse, rowMax;
  Outputs outputs() { return {.out = out.view, .lse = lse.view, .rowMax = rowMax.view}; }
};

void runOnHost(const Mod& mod, const KernelOptions& options, const Operands& operands, const Outputs& outputs,
               unsigned seed) {
  test::launchOnHost(mod, options, operands, outputs, {.seed = seed},
                     [](const plan::Stage&) { return "sm80::Params"; });
}

double rms(const std::vector<double>& x) {
  return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0) / double(std::max<size_t>(1, x.size())));
}

/// Weights of e4m3 are off by 2^-5.3 of their size in the mean, and so is out. A row of few keys has less luck.
void compare(const Results& got, const Results& want, const Case& c) {
  const auto& shape = want.out.view.shape;
  const double weights = c.headDimV > 128 ? 0x1p-9 : 0x1p-5;
  std::vector<double> all, errors;
  int wrong = 0;
  for (int64_t b = 0; b < shape[0]; ++b)
    for (int64_t h = 0; h < shape[1]; ++h)
      for (int64_t i = 0; i < shape[2]; ++i) {
        std::vector<double> row, error;
        for (int64_t d = 0; d < shape[3]; ++d) {
          row.push_back(want.out.at({b, h, i, d})), error.push_back(got.out.at({b, h, i, d}) - row.back());
          if (!std::isfinite(error.back())) ++wrong;
        }
        all.insert(all.end(), row.begin(), row.end()), errors.insert(errors.end(), error.begin(), error.end());
        if (!(rms(error) <= 4 * weights * rms(row)) && ++wrong < 4)
          WARN(fmt::format("b {} h {} row {}: off by {} of {}", b, h, i, rms(error), rms(row)));
        for (const Tensor Results::*of : {&Results::lse, &Results::rowMax}) {
          const double is = (got.*of).at({b, h, i}), expected = (want.*of).at({b, h, i});
          if (!(is == expected || std::fabs(is - expected) < 1e-4 * std::max(1.0, std::fabs(expected)))) ++wrong;
        }
      }
  CHECK(wrong == 0);
  CHECK(rms(errors) <= weights * rms(all));
}

void check(const Case& c, unsigned seed = 1) {
  if (!test::isCaseDue()) return;
  const ProblemShape& s = c.shape;
  INFO(c.mod << fmt::format(", B {} H {} HKV {} q {} kv {}, d {}/{}, scales {}, pages {}, q block {}, tile {}, seed {}",
                            s.batch, s.qHeads, s.kvHeads, s.qLen, s.kvLen, c.headDim, c.headDimV, int(c.scales),
                            c.pageSize, c.qBlock, c.tile, seed));
  std::mt19937 random(seed);
  const bool isRagged = !c.cuSeqlensQ.empty(), isKvPacked = isRagged && !c.pageSize;
  const int64_t rows = isRagged ? c.cuSeqlensQ.back() : s.qLen, kvRows = isKvPacked ? rows : s.kvLen;
  const int64_t batch = isRagged ? 1 : s.batch, kvBatch = isKvPacked ? 1 : s.batch;
  const auto draw = [&](int64_t b, int64_t heads, int64_t length, int64_t dim) {
    return Tensor(DType::E4M3, {b, heads, length, dim}, random, c.rowPadding ? dim + c.rowPadding : 0);
  };
  Tensor q = draw(batch, s.qHeads, rows, c.headDim), k = draw(kvBatch, s.kvHeads, kvRows, c.headDim),
         v = draw(kvBatch, s.kvHeads, kvRows, c.headDimV);
  for (size_t b = 0; b < c.lengths.size(); ++b)
    for (Tensor* tensor : {&k, &v})
      for (int64_t h = 0; h < s.kvHeads; ++h)
        for (int64_t i = c.lengths[b]; i < s.kvLen; ++i)
          for (int64_t d = 0; d < tensor->view.shape[3]; ++d) tensor->set({int64_t(b), h, i, d}, NAN);
  Operands operands{.q = q.view, .k = k.view, .v = v.view};
  std::vector<int32_t> table, lengths = c.lengths, starts = c.cuSeqlensQ;
  std::optional<Tensor> poolK, poolV;
  if (c.pageSize) {
    table.resize(size_t(s.batch * s.kvLen / c.pageSize));
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), random);
    poolK = inPages(k, table, c, random), poolV = inPages(v, table, c, random);
    operands.k = poolK->view, operands.v = poolV->view;
    operands.pageTable = TensorView::contiguous(table.data(), DType::I32, {s.batch, s.kvLen / c.pageSize});
  }
  if (!lengths.empty()) operands.kvLengths = TensorView::contiguous(lengths.data(), DType::I32, {s.batch});
  if (isRagged) {
    operands.cuSeqlensQ = TensorView::contiguous(starts.data(), DType::I32, {s.batch + 1});
    operands.maxQLen = s.qLen;
  }
  std::optional<Tensor> qScales, kScales, vScales;
  if (c.scales != Kind::None) {
    qScales = scalesFor(c.scales, s.batch, s.qHeads, s.qLen, random, c.qFactor / 8);
    kScales = scalesFor(c.scales, s.batch, s.kvHeads, s.kvLen, random, 1);
    vScales = scalesFor(c.scales, s.batch, s.kvHeads, s.kvLen, random, 1);
    if (c.deadBlock >= 0)
      for (int64_t h = 0; h < s.kvHeads; ++h) vScales->set({0, h, c.deadBlock}, 0x1p-60);
    operands.qScales = qScales->view, operands.kScales = kScales->view, operands.vScales = vScales->view;
  }

  KernelOptions options{.family = Family::Sm80,
                        .arch = "sm_89",
                        .dtype = c.dtype,
                        .headDim = c.headDim,
                        .headDimV = c.headDimV,
                        .features = {Feature::Fp8Q, Feature::Fp8Kv, Feature::RowMax},
                        .pageSize = c.pageSize,
                        .tile = c.tile};
  options.features.set(Feature::Lengths, !c.lengths.empty());
  options.features.set(Feature::Ragged, isRagged);
  std::vector<int32_t> offsets(size_t(s.batch), 0);
  if (!c.lengths.empty()) options.offsets = c.qBlock ? QueryOffsets::Tensor : QueryOffsets::FromLengths;
  if (options.offsets == QueryOffsets::Tensor) // blocks are of rows
    operands.qOffsets = TensorView::contiguous(offsets.data(), DType::I32, {s.batch});
  auto mod = take(Mod::parse(c.mod));
  std::optional<BlockMask> mask;
  BlockMaskView lists;
  if (c.qBlock) {
    auto built = take(BlockMask::build(mod, {}, s, {1, 1, s.qLen, s.kvLen, c.qBlock, 128}));
    mask = std::move(built), lists = mask->view();
    operands.blockMask = &lists;
    options.blockSparse = true, options.maskQBlock = c.qBlock;
  }
  const auto results = [&] {
    Results r{{c.dtype, {batch, s.qHeads, rows, c.headDimV}, random},
              {DType::F32, {batch, s.qHeads, rows}, random},
              {DType::F32, {batch, s.qHeads, rows}, random}};
    for (Tensor* tensor : {&r.out, &r.lse, &r.rowMax})
      std::fill(tensor->bytes.begin(), tensor->bytes.end(), char(0xff)); // NaN
    return r;
  };
  Results got = results(), want = results();
  Status status = computeOnCpu(mod, operands, want.outputs());
  if (!status) FAIL(status.error().message);
  runOnHost(mod, options, operands, got.outputs(), seed);
  compare(got, want, c);
}

} // namespace

TEST_CASE("forward kernels of e4m3 compute attention, whatever the order of threads and copies", "[on-host]") {
  for (unsigned seed : {1, 2, 3}) check({.shape = {1, 2, 1, 70, 200}}, seed);
  check({.mod = "score", .shape = {2, 4, 2, 65, 129}, .headDim = 128, .headDimV = 128});
  check({.mod = "20 * torch.tanh(score / 20)", .shape = {1, 2, 2, 33, 95}, .dtype = DType::BF16});
  check({.mod = "(q_idx + kv_idx) % 3 != 0", .shape = {1, 2, 2, 64, 64}});
  check({.mod = "kv_idx >= 64", .shape = {1, 1, 1, 17, 64}}); // no key lives
  check({.shape = {1, 1, 1, 1, 1}});
}

TEST_CASE("forward kernels of e4m3 take head dims that are multiples of 16, and any rows", "[on-host]") {
  for (auto [qk, v] : {std::pair{16, 16}, {48, 80}, {96, 112}, {32, 256}, {256, 144}, {240, 48}})
    for (int padding : {0, 3}) check({.shape = {1, 2, 1, 20, 70}, .headDim = qk, .headDimV = v, .rowPadding = padding});
}

TEST_CASE("forward kernels of e4m3 multiply by scales of heads, sequences or blocks", "[on-host]") {
  for (Kind scales : {Kind::None, Kind::OfHeads, Kind::OfSequences, Kind::OfBlocks})
    for (int dim : {64, 144}) check({.shape = {2, 2, 1, 70, 300}, .headDim = dim, .headDimV = dim, .scales = scales});
  for (float factor : {1e-3f, 100.f}) check({.shape = {1, 2, 1, 40, 130}, .qFactor = factor});
  for (int dim : {64, 144})
    for (int block : {0, 1, 2})
      check({.mod = "score",
             .shape = {1, 1, 1, 20, 300},
             .headDim = dim,
             .headDimV = dim,
             .scales = Kind::OfBlocks,
             .deadBlock = block});
}

TEST_CASE("forward kernels of e4m3 take lengths, pages, ragged batches and lists", "[on-host]") {
  const std::vector<int32_t> lengths = {0, 1, 63, 64, 65, 192};
  for (int pageSize : {0, 2, 16, 64})
    check({.shape = {6, 1, 1, 20, 192}, .scales = Kind::OfBlocks, .lengths = lengths, .pageSize = pageSize});
  check({.shape = {4, 4, 2, 100, 100}, .cuSeqlensQ = {0, 100, 100, 101, 171}});
  for (int pageSize : {1, 4, 128})
    check({.shape = {5, 2, 1, 100, 256},
           .scales = Kind::OfBlocks,
           .lengths = {256, 65, 2, 0, 170},
           .pageSize = pageSize,
           .cuSeqlensQ = {0, 1, 1, 4, 5, 105}});
  for (int qBlock : {64, 128}) {
    check({.mod = "(q_idx // 70) == (kv_idx // 70)", .shape = {1, 1, 1, 200, 300}, .qBlock = qBlock});
    check({.mod = "(q_idx // 70) == (kv_idx // 70)",
           .shape = {3, 1, 1, 200, 300},
           .lengths = {300, 0, 131},
           .qBlock = qBlock});
  }
}

TEST_CASE("forward kernels of e4m3 take all tiles of the family", "[on-host]") {
  for (int dim : {64, 128, 256}) {
    const KernelOptions options{.family = Family::Sm80,
                                .arch = "sm_89",
                                .headDim = dim,
                                .features = {Feature::Fp8Q, Feature::Fp8Kv, Feature::RowMax}};
    auto tiles = take(test::tilesOf(test::compiler(), Mod::identity(), options));
    CHECK(tiles.size() >= 3);
    for (const std::string& tile : tiles)
      check({.shape = {1, 1, 1, 140, 140}, .headDim = dim, .headDimV = dim, .tile = tile});
  }
}

NVRTC_TEST_CASE("forward kernels of e4m3 compile with mma.sync without advisories, and hardly spill", "[kernels]") {
  using test::library;
  std::vector<test::Job> jobs;
  for (const auto& [name, mod] : library())
    for (const char* arch : {"sm_89", "sm_90a", "sm_100", "sm_120"})
      for (auto [qk, v] : {std::pair{16, 16}, {64, 64}, {128, 128}, {192, 128}, {256, 256}})
        for (bool sparse : {false, true}) {
          if ((sparse && !mod.hasMaskMod()) || (qk != v && name != "causal") || (qk == 16 && name != "alibi")) continue;
          KernelOptions options{.family = Family::Sm80,
                                .arch = arch,
                                .headDim = qk,
                                .headDimV = v,
                                .features = {Feature::Fp8Q, Feature::Fp8Kv},
                                .blockSparse = sparse};
          // Rows of 256 columns leave few registers. On sm_90a this kernel serves what that of Hopper does not.
          const int spillBytes = qk < 256                        ? 0
                                 : arch == std::string("sm_90a") ? 256
                                 : arch == std::string("sm_100") ? 68
                                                                 : 0;
          const std::string text = fmt::format("{} sm80 {} d{}/{}{}", name, arch, qk, v, sparse ? " lists" : "");
          jobs.push_back({text, mod, options, spillBytes});
          options.features.set(Feature::Lengths);
          options.features.set(Feature::RowMax);
          options.offsets = QueryOffsets::FromLengths;
          options.dtype = DType::F16;
          jobs.push_back({text + " lengths", mod, options, spillBytes});
          if (sparse) continue;
          options.pageSize = 16;
          jobs.push_back({text + " pages", mod, options, spillBytes});
          options.features.set(Feature::Ragged);
          jobs.push_back({text + " ragged, in pages", mod, options, spillBytes});
        }
  REQUIRE(jobs.size() > 500);
  CHECK(findings(jobs) == "");
}
