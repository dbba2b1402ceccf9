// Forward kernels with q, k and v of e4m3 against the fp64 reference on the same bytes.
#include "gpu.h"

#include "helpers/turns.h"

#include "helpers/plans.h"
#include "plan/arch.h"
#include "support/element.h"
#include "tools/attnc/problem/pages.h"
#include "tools/attnc/problem/random.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

using namespace attnc;
using namespace attnc::gputest;

namespace {

/// Returns the families of fast kernels that serve the GPU.
std::vector<Family> fastFamilies() {
  const std::string arch = gpu()->context.info().arch;
  if (arch == "sm_90a") return {Family::Sm80, Family::Sm90};
  return plan::parseArch(arch)->capability >= 89 ? std::vector{Family::Sm80} : std::vector<Family>();
}

bool servesFp8() {
  if (!fastFamilies().empty()) return true;
  WARN("SKIPPED: " << gpu()->context.info().arch << " has no forward kernels of e4m3");
  return false;
}

/// OfPages: of pages of `pageSize` rows. Mixed: of rows for q and k, and of heads for v.
enum class Scales { None, OfHeads, OfSequences, OfBlocks, OfRows, OfPages, Mixed };

bool areOfRows(Scales scales) {
  return scales == Scales::OfRows || scales == Scales::OfPages || scales == Scales::Mixed;
}

/// Draws operands of e4m3 for a problem whose dtype is that of out. `qFactor`: q's scales are that many times as large.
HostOperands drawFp8(const Mod& mod, const Problem& problem, Scales scales, float qFactor = 1, int pageSize = 0) {
  HostOperands operands = draw(mod, problem);
  for (cli::HostTensor* tensor : {&operands.q, &operands.k, &operands.v}) {
    cli::HostTensor bytes = cli::HostTensor::make(DType::E4M3, tensor->shape);
    for (int64_t i = 0; i < tensor->elements(); ++i)
      writeElement(bytes.bytes.data(), DType::E4M3, i, readElement(tensor->bytes.data(), tensor->dtype, i).real);
    *tensor = std::move(bytes);
  }
  if (scales == Scales::None) return operands;
  cli::Generator generator(problem.seed + 1, problem.shape, 1 << 20);
  for (auto [to, like] :
       {std::pair(&operands.qScales, &operands.q), {&operands.kScales, &operands.k}, {&operands.vScales, &operands.v}})
    *to = generator.scales(
        scales == Scales::OfHeads || (scales == Scales::Mixed && like == &operands.v) ? std::vector{like->shape[1]}
        : areOfRows(scales) ? std::vector(like->shape.begin(), like->shape.end() - 1)
        : scales == Scales::OfSequences
            ? std::vector{like->shape[0], like->shape[1]}
            : std::vector{like->shape[0], like->shape[1], (like->shape[2] + kRowsOfScale - 1) / kRowsOfScale});
  std::mt19937_64 random(problem.seed);
  if (areOfRows(scales)) // from 2^-6 to 2^6, and far apart in a step
    for (cli::HostTensor* tensor : {&*operands.kScales, &*operands.vScales})
      for (int64_t i = 0; i < tensor->elements(); ++i) {
        const bool isRepeated = scales == Scales::OfPages && i % pageSize;
        const double exponent =
            std::uniform_real_distribution<double>(-6, tensor == &*operands.vScales ? 6 : 0)(random);
        writeElement(tensor->bytes.data(), DType::F32, i,
                     isRepeated ? readElement(tensor->bytes.data(), DType::F32, i - 1).real : std::exp2(exponent));
      }
  cli::HostTensor& ofQ = *operands.qScales;
  for (int64_t i = 0; i < ofQ.elements(); ++i)
    writeElement(ofQ.bytes.data(), DType::F32, i, qFactor * readElement(ofQ.bytes.data(), DType::F32, i).real);
  return operands;
}

double rms(const std::vector<double>& values) {
  double squares = 0;
  for (double value : values) squares += value * value;
  return std::sqrt(squares / double(std::max<size_t>(1, values.size())));
}

std::vector<double> difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  std::vector<double> result(a.size());
  for (size_t i = 0; i < a.size(); ++i) result[i] = a[i] - b[i];
  return result;
}

/// Fails unless the results are those of the reference. Weights are rounded to e4m3, by 2^-5 of their size in the mean,
/// so out is off by that part of its own size; a wrong order of rows or columns is off by more than all of it. Products
/// keep some 13 bits, and so do scores of `scoreSize`.
void checkFp8(const Outcome& actual, const Outcome& expected, bool isNaive, double scoreSize) {
  const double scores = isNaive ? 0x1p-19 : 0x1p-11, weights = isNaive ? 0x1p-8 : 0x1p-5;
  for (size_t i = 0; i < expected.out.size(); ++i) REQUIRE(std::isfinite(actual.out[i]));
  const double error = rms(difference(actual.out, expected.out)), size = rms(expected.out);
  INFO("out: RMSE " << error << ", its own size " << size);
  CHECK(error <= (weights + 2 * scores * scoreSize) * size);
  for (auto [name, got, want] :
       {std::tuple("lse", &actual.lse, &expected.lse), {"row max", &actual.rowMax, &expected.rowMax}})
    for (size_t i = 0; i < got->size(); ++i) {
      INFO(name << " " << i << ": " << (*got)[i] << ", expected " << (*want)[i]);
      if (std::isfinite((*want)[i]))
        REQUIRE(std::fabs((*got)[i] - (*want)[i]) <= scores * scoreSize);
      else
        REQUIRE((*got)[i] == (*want)[i]);
    }
}

struct Case {
  Scales scales = Scales::OfSequences;
  std::vector<int32_t> lengths = {};
  int pageSize = 0;
  std::vector<int32_t> qLengths = {}; ///< of a ragged batch, whose Q_LEN is the longest; needs pages
  bool blockMask = false;
  float qFactor = 1;
  int qBlock = 128;                  ///< of the block mask
  std::optional<Family> family = {}; ///< the only fast one that runs
  std::string tile = {};
};

/// Packs the first rows of each sequence's q.
void packQ(HostOperands& operands, const Case& of) {
  operands.cuSeqlensQ = {0};
  for (int32_t length : of.qLengths) operands.cuSeqlensQ.push_back(operands.cuSeqlensQ.back() + length);
  const cli::HostTensor q = operands.q;
  const int64_t heads = q.shape[1], rows = q.shape[2], row = q.shape[3], total = operands.cuSeqlensQ.back();
  operands.maxQLen = rows;
  operands.q = cli::HostTensor::make(q.dtype, {1, heads, total, row});
  const auto pack = [&](const cli::HostTensor& from, cli::HostTensor& to, int64_t bytes) { // of a row
    for (size_t b = 0; b < of.qLengths.size(); ++b)
      for (int64_t h = 0; h < heads; ++h)
        std::copy_n(from.bytes.begin() + (int64_t(b) * heads + h) * rows * bytes, of.qLengths[b] * bytes,
                    to.bytes.begin() + (h * total + operands.cuSeqlensQ[b]) * bytes);
  };
  pack(q, operands.q, row);
  if (!areOfRows(of.scales)) return;
  const cli::HostTensor scales = *operands.qScales;
  operands.qScales = cli::HostTensor::make(DType::F32, {1, heads, total});
  pack(scales, *operands.qScales, 4);
}

void check(const Mod& mod, const Problem& problem, const Case& of = {}) {
  INFO(mod.name() << ", " << problem.text() << ", scales " << int(of.scales) << ", pages " << of.pageSize << ", lists "
                  << of.blockMask << ", q times " << of.qFactor << ", tile " << of.tile);
  const ProblemShape& s = problem.shape;
  HostOperands operands = drawFp8(mod, problem, of.scales, of.qFactor, of.pageSize);
  operands.kvLengths = of.lengths;
  Problem given = problem; // of the tensors
  if (!of.qLengths.empty()) {
    packQ(operands, of);
    given.shape.batch = 1, given.shape.qLen = operands.q.shape[2];
  }
  const Outcome expected = runReference(mod, problem, operands);
  for (cli::HostTensor* tensor : {&operands.k, &operands.v}) // NaN in rows that no sequence has
    for (int64_t i = 0; !of.lengths.empty() && i < tensor->elements(); ++i) {
      const int64_t row = i / tensor->shape[3] % s.kvLen, b = i / tensor->shape[3] / s.kvLen / s.kvHeads;
      if (row >= of.lengths[size_t(b)]) tensor->bytes[size_t(i)] = 0x7f;
    }
  if (of.pageSize) {
    const int64_t columns = s.kvLen / of.pageSize;
    cli::HostTensor table = cli::drawPageTable(s.batch, columns, 5);
    cli::HostTensor lengths = cli::HostTensor::make(DType::I32, {s.batch});
    for (int64_t b = 0; b < s.batch; ++b) writeElement(lengths.bytes.data(), DType::I32, b, of.lengths[size_t(b)]);
    for (cli::HostTensor* tensor : {&operands.k, &operands.v})
      *tensor = cli::dealToPages(*tensor, table, lengths, s.batch * columns, of.pageSize);
    for (cli::HostTensor* tensor : {&*operands.kScales, &*operands.vScales}) {
      if (!areOfRows(of.scales) || tensor->shape.size() < 3) continue;
      tensor->shape.push_back(1); // it stays, since pages may be as many as sequences
      *tensor = cli::dealToPages(*tensor, table, lengths, s.batch * columns, of.pageSize); // NaN behind lengths
      if (of.scales == Scales::OfPages) {
        cli::HostTensor first = cli::HostTensor::make(DType::F32, {tensor->shape[0], tensor->shape[1], 1, 1});
        for (int64_t i = 0; i < first.elements(); ++i)
          writeElement(first.bytes.data(), DType::F32, i,
                       readElement(tensor->bytes.data(), DType::F32, i * of.pageSize).real);
        *tensor = std::move(first);
      }
    }
    operands.pageTable = std::move(table);
  }
  double scoreSize = 16;
  for (double score : expected.rowMax)
    if (std::isfinite(score)) scoreSize = std::max(scoreSize, std::fabs(score));
  std::vector<Family> families = of.family ? std::vector{*of.family} : fastFamilies();
  families.insert(families.begin(), Family::Naive);
  for (Family family : families) {
    if (family == Family::Sm80 && areOfRows(of.scales)) continue;
    INFO(familyName(family));
    const bool isFast = family != Family::Naive;
    RunOptions options{.family = family, .blockMask = of.blockMask, .qBlock = of.qBlock, .decode = false};
    if (isFast) options.tile = of.tile;
    checkFp8(runKernel(mod, given, operands, options), expected, !isFast, scoreSize);
    options.rowMax = false; // then references lag behind the maxima
    checkFp8(runKernel(mod, given, operands, options), expected, !isFast, scoreSize);
  }
}

} // namespace

static void checkMods(int headDim) {
  ATTNC_NEED_GPU();
  if (!servesFp8()) return;
  for (const char* name : {"noop", "causal", "alibi", "softcap", "sliding_window", "document"})
    for (Scales scales : {Scales::OfSequences, Scales::OfBlocks, Scales::OfRows, Scales::Mixed})
      if (test::isCaseDue())
        check(libraryMod(name), {{2, 6, 2, 333, 1001}, headDim, headDim, DType::BF16}, {.scales = scales});
}
TEST_CASE("forward kernels take q, k and v of e4m3, with any mod, at head dim 64", "[gpu]") { checkMods(64); }
TEST_CASE("forward kernels take q, k and v of e4m3, with any mod, at head dim 128", "[gpu]") { checkMods(128); }
TEST_CASE("forward kernels take q, k and v of e4m3, with any mod, at head dim 256", "[gpu]") { checkMods(256); }

static void checkHeadDims(DType dtype) {
  ATTNC_NEED_GPU();
  if (!servesFp8()) return;
  for (auto [qk, v] : {std::pair{16, 16}, {32, 64}, {64, 32}, {48, 80}, {96, 96}, {160, 144}, {192, 128}, {112, 240}})
    for (Scales scales : {Scales::None, Scales::OfHeads, Scales::OfSequences, Scales::OfRows}) {
      Problem problem{{2, 4, 2, 130, 515}, qk, v, dtype};
      if (test::isCaseDue()) check(libraryMod("causal"), problem, {.scales = scales});
      problem.headsLast = true;
      problem.rowPadding = 16;
      if (test::isCaseDue()) check(libraryMod("noop"), problem, {.scales = scales});
    }
}
TEST_CASE("forward kernels take e4m3 of any head dim, layout and scales, with out in bf16", "[gpu]") {
  checkHeadDims(DType::BF16);
}
TEST_CASE("forward kernels take e4m3 of any head dim, layout and scales, with out in fp16", "[gpu]") {
  checkHeadDims(DType::F16);
}

const std::vector<int32_t> kLengths = {0, 1, 15, 16, 17, 127, 128, 129, 700, 1024};

static void checkPages(int headDim) {
  ATTNC_NEED_GPU();
  if (!servesFp8()) return;
  const Problem problem{{int64_t(kLengths.size()), 4, 2, 70, 1024}, headDim, headDim, DType::BF16};
  for (const char* name : {"noop", "causal", "document"})
    for (int pageSize : {8, 16, 32, 64, 128, 256})
      for (Scales scales : {Scales::OfSequences, Scales::OfRows, Scales::OfPages, Scales::Mixed})
        if (scales == Scales::OfSequences || (pageSize != 8 && pageSize != 32))
          if (test::isCaseDue())
            check(libraryMod(name), problem, {.scales = scales, .lengths = kLengths, .pageSize = pageSize});
}
TEST_CASE("forward kernels take e4m3 in pages, at head dim 64", "[gpu]") { checkPages(64); }
TEST_CASE("forward kernels take e4m3 in pages, at head dim 128", "[gpu]") { checkPages(128); }

#define FP8_TEST_CASE(...) ATTNC_TEST_CASE(ATTNC_NEED_GPU(); if (!servesFp8()) return, __VA_ARGS__)

FP8_TEST_CASE("forward kernels take e4m3 with lengths and lists", "[gpu]") {
  for (const char* name : {"noop", "causal", "document"})
    for (int headDim : {64, 128}) {
      const Problem problem{{int64_t(kLengths.size()), 4, 2, 70, 1024}, headDim, headDim, DType::BF16};
      for (Scales scales : {Scales::OfSequences, Scales::OfBlocks, Scales::OfRows})
        if (test::isCaseDue()) check(libraryMod(name), problem, {.scales = scales, .lengths = kLengths});
    }
  for (const char* name : {"document", "prefix_lm"})
    for (int headDim : {64, 128, 256})
      for (Scales scales : {Scales::OfSequences, Scales::OfRows})
        if (test::isCaseDue())
          check(libraryMod(name), {{2, 4, 2, 515, 515}, headDim, headDim, DType::BF16},
                {.scales = scales, .blockMask = true});
}

FP8_TEST_CASE("forward kernels take ragged batches of e4m3 in pages", "[gpu][ragged]") {
  for (const char* name : {"noop", "causal", "document"})
    for (int headDim : {64, 128})
      for (int pageSize : {16, 128})
        for (Scales scales : {Scales::OfSequences, Scales::OfBlocks, Scales::OfRows, Scales::OfPages})
          if (test::isCaseDue())
            check(libraryMod(name), {{6, 4, 2, 300, 1024}, headDim, headDim, DType::BF16},
                  {.scales = scales,
                   .lengths = {0, 1, 129, 700, 1024, 300},
                   .pageSize = pageSize,
                   .qLengths = {1, 0, 129, 1, 300, 128}});
}

FP8_TEST_CASE("forward kernels take e4m3 in all tiles", "[gpu]") {
  for (int headDim : {64, 128, 256}) {
    const Problem problem{{1, 2, 2, 333, 1001}, headDim, headDim, DType::BF16};
    for (Family family : fastFamilies()) {
      KernelOptions options = kernelOptions(libraryMod("causal"), problem, {.family = family});
      options.features.set(Feature::Fp8Q);
      options.features.set(Feature::Fp8Kv);
      options.arch = gpu()->context.info().arch;
      for (Scales scales : {Scales::OfSequences, Scales::OfRows}) {
        if (family == Family::Sm80 && areOfRows(scales)) continue;
        options.features.set(Feature::RowScales, scales == Scales::OfRows);
        for (const std::string& tile : take(test::tilesOf(gpu()->compiler, libraryMod("causal"), options)))
          for (const char* name : {"noop", "causal"})
            if (test::isCaseDue()) check(libraryMod(name), problem, {.scales = scales, .family = family, .tile = tile});
      }
    }
  }
}

FP8_TEST_CASE("warpgroups of many tiles of e4m3 leave each other's rows of q alone", "[gpu]") {
  for (int headDim : {48, 64, 128}) // against the naive kernel: the reference would take minutes
    for (const char* name : {"noop", "causal"}) {
      const Problem problem{{1, 16, 16, 4096, 2048}, headDim, headDim, DType::BF16};
      // With scales of blocks, a tile of 192 rows has two of them.
      const HostOperands operands =
          drawFp8(libraryMod(name), problem, name == std::string_view("noop") ? Scales::OfBlocks : Scales::OfHeads);
      const Outcome expected =
          runKernel(libraryMod(name), problem, operands, {.family = Family::Naive, .decode = false});
      for (Family family : fastFamilies()) {
        INFO(problem.text() << ", " << name << ", " << familyName(family));
        checkFp8(runKernel(libraryMod(name), problem, operands, {.family = family, .decode = false}), expected,
                 /*isNaive=*/false, 16);
      }
    }
}

FP8_TEST_CASE("the kernel of mma.sync takes rows, pages and blocks that Hopper's does not", "[gpu]") {
  for (int headDim : {64, 144}) {
    Problem problem{{2, 4, 2, 130, 515}, headDim, headDim, DType::BF16};
    for (int64_t padding : {1, 8}) {
      problem.rowPadding = padding;
      check(libraryMod("causal"), problem, {.scales = Scales::OfBlocks, .family = Family::Sm80});
    }
    for (int pageSize : {1, 2, 8})
      check(libraryMod("alibi"), {{3, 4, 2, 70, 256}, headDim, headDim, DType::BF16},
            {.lengths = {0, 130, 256}, .pageSize = pageSize, .family = Family::Sm80});
    check(libraryMod("document"), {{2, 4, 2, 515, 515}, headDim, headDim, DType::BF16},
          {.blockMask = true, .qBlock = 64, .family = Family::Sm80});
  }
}

FP8_TEST_CASE("sums over many keys of e4m3 do not fall short", "[gpu]") {
  for (int headDim : {64, 96, 128, 256}) {
    const Problem problem{{1, 1, 1, 64, 32768}, headDim, headDim, DType::F16};
    HostOperands operands = drawFp8(libraryMod("noop"), problem, Scales::None);
    for (char& byte : operands.v.bytes) byte &= 0x7f; // all sums grow
    const Outcome expected = runReference(libraryMod("noop"), problem, operands);
    const auto mean = [](const std::vector<double>& x) {
      return std::accumulate(x.begin(), x.end(), 0.0) / double(x.size());
    };
    for (Family family : fastFamilies()) {
      // The tensor cores of Hopper cut off products at some 14 bits of the sum of a step.
      const double bound = family == Family::Sm90 ? 0x1p-8 : 0x1p-9;
      const Outcome actual = runKernel(libraryMod("noop"), problem, operands, {.family = family, .decode = false});
      INFO(familyName(family) << ", head dim " << headDim << ": mean " << mean(actual.out) << ", expected "
                              << mean(expected.out));
      CHECK(std::fabs(mean(actual.out) - mean(expected.out)) <= bound * mean(expected.out));
    }
  }
}

FP8_TEST_CASE("blocks of v of e4m3 may have a scale of 0", "[gpu]") {
  const Problem problem{{1, 2, 1, 130, 700}, 64, 64, DType::BF16};
  for (int64_t zero = 0; zero < 6; ++zero) {
    HostOperands operands = drawFp8(libraryMod("noop"), problem, Scales::OfBlocks);
    writeElement(operands.vScales->bytes.data(), DType::F32, zero, 0);
    const Outcome expected = runReference(libraryMod("noop"), problem, operands);
    for (Family family : fastFamilies()) {
      INFO("block " << zero << ", " << familyName(family));
      checkFp8(runKernel(libraryMod("noop"), problem, operands, {.family = family, .decode = false}), expected,
               /*isNaive=*/false, 16);
    }
  }
}

FP8_TEST_CASE("scores of e4m3 may be large", "[gpu]") {
  for (float factor : {1e-3f, 30.f, 3e3f, -100.f})
    for (const char* name : {"noop", "causal"})
      for (Scales scales : {Scales::OfSequences, Scales::OfRows})
        check(libraryMod(name), {{1, 4, 2, 200, 700}, 128, 128, DType::BF16}, {.scales = scales, .qFactor = factor});
}
