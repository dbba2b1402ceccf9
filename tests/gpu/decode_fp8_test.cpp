// K and V of e4m3 against the fp64 reference on the same bytes.
#include "gpu.h"

#include "helpers/turns.h"

#include "support/element.h"
#include "tools/attnc/problem/pages.h"

#include <random>

using namespace attnc;
using namespace attnc::gputest;

namespace {

bool servesFp8() {
  const std::string& arch = gpu()->context.info().arch;
  if (arch != "sm_80" && arch != "sm_86" && arch != "sm_87") return true;
  WARN("SKIPPED: " << arch << " converts no fp8");
  return false;
}

cli::HostTensor toFp8(const cli::HostTensor& tensor) {
  cli::HostTensor bytes = cli::HostTensor::make(DType::E4M3, tensor.shape);
  for (int64_t i = 0; i < tensor.elements(); ++i)
    writeElement(bytes.bytes.data(), DType::E4M3, i, readElement(tensor.bytes.data(), tensor.dtype, i).real);
  return bytes;
}

cli::HostTensor drawScales(std::vector<int64_t> shape, uint64_t seed) {
  cli::HostTensor scales = cli::HostTensor::make(DType::F32, std::move(shape));
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < scales.elements(); ++i)
    writeElement(scales.bytes.data(), DType::F32, i, std::uniform_real_distribution<double>(0.2, 1)(random));
  return scales;
}

/// OfPages: of pages of `pageSize` rows.
enum class Scales { None, OfHeads, OfSequences, OfPages, OfRows };

/// Returns [pages, HKV, 1] of [pages, HKV, page_size].
cli::HostTensor firstOfPages(const cli::HostTensor& of) {
  cli::HostTensor first = cli::HostTensor::make(DType::F32, {of.shape[0], of.shape[1], 1});
  for (int64_t i = 0; i < first.elements(); ++i)
    writeElement(first.bytes.data(), DType::F32, i, readElement(of.bytes.data(), DType::F32, i * of.shape[2]).real);
  return first;
}

/// Returns the last rows of each sequence times the scales of their heads, for newK and newV, and makes them NaN.
/// `counts`: how many of them each sequence has; empty: Q_LEN.
cli::HostTensor takeNewRows(cli::HostTensor& of, const std::optional<cli::HostTensor>& scales, const Problem& problem,
                            const std::vector<int32_t>& lengths, const std::vector<int32_t>& counts) {
  const ProblemShape& s = problem.shape;
  const int64_t columns = of.shape[3];
  cli::HostTensor rows = cli::HostTensor::make(problem.dtype, {s.batch, s.kvHeads, s.qLen, columns});
  for (int64_t i = 0; i < rows.elements(); ++i) {
    const int64_t head = i / columns / s.qLen,
                  position = lengths[size_t(head / s.kvHeads)] - s.qLen + i / columns % s.qLen;
    if (position < 0) continue;
    if (!counts.empty() && i / columns % s.qLen < s.qLen - counts[size_t(head / s.kvHeads)]) continue;
    const int64_t from = (head * s.kvLen + position) * columns + i % columns;
    const double scale = scales ? readElement(scales->bytes.data(), DType::F32, head % scales->elements()).real : 1;
    writeElement(rows.bytes.data(), problem.dtype, i, scale * readElement(of.bytes.data(), DType::E4M3, from).real);
    of.bytes[size_t(from)] = 0x7f;
  }
  return rows;
}

/// Packs the last rows of each sequence's q or new rows, [B, H, Q_LEN, D], as [1, H, rows of all, D]. `starts`: of the
/// sequences, cumulative.
void packRows(cli::HostTensor& tensor, const std::vector<int32_t>& starts) {
  const cli::HostTensor from = tensor;
  const int64_t heads = from.shape[1], rows = from.shape[2], total = starts.back(),
                bytes = from.shape[3] * dtypeBytes(from.dtype);
  tensor = cli::HostTensor::make(from.dtype, {1, heads, total, from.shape[3]});
  for (size_t b = 0; b + 1 < starts.size(); ++b)
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t length = starts[b + 1] - starts[b];
      std::copy_n(from.bytes.begin() + ((int64_t(b) * heads + h + 1) * rows - length) * bytes, length * bytes,
                  tensor.bytes.begin() + (h * total + starts[b]) * bytes);
    }
}

/// `qFactor`: q is drawn that many times as large, and scores scaled back. `pageSize`: with lengths, K and V in pages;
/// 0: not. `qLengths`: of a ragged batch in pages, at most Q_LEN.
void checkFp8(const Mod& mod, const Problem& problem, Scales scales, const std::vector<int32_t>& lengths = {},
              float qFactor = 1, int pageSize = 0, bool appends = false, const std::vector<int32_t>& qLengths = {}) {
  INFO(mod.name() << ", " << problem.text() << ", scales " << int(scales) << ", q times " << qFactor << ", pages "
                  << pageSize);
  const ProblemShape& s = problem.shape;
  HostOperands operands = draw(mod, problem);
  operands.k = toFp8(operands.k);
  operands.v = toFp8(operands.v);
  operands.kvLengths = lengths;
  for (int64_t i = 0; i < operands.q.elements(); ++i)
    writeElement(operands.q.bytes.data(), operands.q.dtype, i,
                 qFactor * readElement(operands.q.bytes.data(), operands.q.dtype, i).real);
  if (scales != Scales::None) {
    const std::vector<int64_t> shape = scales == Scales::OfHeads ? std::vector{s.kvHeads}
                                       : scales == Scales::OfSequences
                                           ? std::vector{operands.k.shape[0], s.kvHeads}
                                           : std::vector{operands.k.shape[0], s.kvHeads, s.kvLen};
    operands.kScales = drawScales(shape, 1);
    operands.vScales = drawScales(shape, 2);
    if (scales == Scales::OfPages)
      for (cli::HostTensor* tensor : {&*operands.kScales, &*operands.vScales})
        for (int64_t i = 0; i < tensor->elements(); ++i) // as of the page's first row
          if (i % pageSize)
            writeElement(tensor->bytes.data(), DType::F32, i,
                         readElement(tensor->bytes.data(), DType::F32, i - 1).real);
  }
  const float scale = 1 / (qFactor * std::sqrt(float(problem.headDim)));
  Problem given = problem; // of the tensors
  if (!qLengths.empty()) {
    operands.cuSeqlensQ = {0};
    for (int32_t length : qLengths) operands.cuSeqlensQ.push_back(operands.cuSeqlensQ.back() + length);
    operands.maxQLen = s.qLen;
    packRows(operands.q, operands.cuSeqlensQ);
    given.shape.batch = 1, given.shape.qLen = operands.q.shape[2];
  }
  const Outcome expected = runReference(mod, problem, operands, scale);
  if (appends) {
    operands.newK = takeNewRows(operands.k, operands.kScales, problem, lengths, qLengths);
    operands.newV = takeNewRows(operands.v, operands.vScales, problem, lengths, qLengths);
    if (!qLengths.empty())
      for (cli::HostTensor* tensor : {&*operands.newK, &*operands.newV}) packRows(*tensor, operands.cuSeqlensQ);
  }
  for (cli::HostTensor* tensor : {&operands.k, &operands.v}) // NaN in rows that no sequence has
    for (int64_t i = 0; !lengths.empty() && i < tensor->elements(); ++i) {
      const int64_t row = i / tensor->shape[3] % s.kvLen, b = i / tensor->shape[3] / s.kvLen / s.kvHeads;
      if (row >= lengths[size_t(b)]) tensor->bytes[size_t(i)] = 0x7f;
    }
  if (pageSize) {
    const int64_t columns = s.kvLen / pageSize;
    cli::HostTensor table = cli::drawPageTable(s.batch, columns, 5);
    cli::HostTensor lengthsTensor = cli::HostTensor::make(DType::I32, {s.batch});
    for (int64_t b = 0; b < s.batch; ++b) writeElement(lengthsTensor.bytes.data(), DType::I32, b, lengths[size_t(b)]);
    for (cli::HostTensor* tensor : {&operands.k, &operands.v})
      *tensor = cli::dealToPages(*tensor, table, lengthsTensor, s.batch * columns, pageSize);
    if (scales == Scales::OfPages || scales == Scales::OfRows)
      for (cli::HostTensor* tensor : {&*operands.kScales, &*operands.vScales}) {
        tensor->shape.push_back(1);
        *tensor = cli::dealToPages(*tensor, table, lengthsTensor, s.batch * columns, pageSize); // NaN behind lengths
        tensor->shape.pop_back();
        if (scales == Scales::OfPages) *tensor = firstOfPages(*tensor);
      }
    operands.pageTable = std::move(table);
  }
  RunOptions options{.family = Family::Auto, .scale = scale, .decode = true};
  const Outcome outcome = runKernel(mod, given, operands, options);
  checkClose(outcome, expected, problem, false, 2.5 * 2 * double(s.kvLen) * 0x1p-23);
  options.launches = 3;
  const Outcome again = runKernel(mod, given, operands, options);
  CHECK(again.out == outcome.out);
  CHECK(again.lse == outcome.lse);
  options.launches = 1, options.family = Family::Sm80; // where Hopper's is the first choice
  checkClose(runKernel(mod, given, operands, options), expected, problem, false, 2.5 * 2 * double(s.kvLen) * 0x1p-23);
}

} // namespace

#define FP8_TEST_CASE(...) ATTNC_TEST_CASE(ATTNC_NEED_GPU(); if (!servesFp8()) return, __VA_ARGS__)

FP8_TEST_CASE("decode kernels take k and v of e4m3, with any mod and lengths", "[gpu]") {
  const std::vector<int32_t> lengths = {0, 1, 15, 16, 17, 63, 64, 65, 1000, 3001};
  for (const char* name : {"noop", "causal", "alibi", "softcap", "sliding_window", "document"})
    for (int headDim : {64, 128})
      for (int64_t qLen : {1, 7, 20})
        if (test::isCaseDue())
          checkFp8(libraryMod(name), {{int64_t(lengths.size()), 6, 2, qLen, 3001}, headDim, headDim, DType::BF16},
                   Scales::OfSequences, lengths);
}

FP8_TEST_CASE("decode kernels take k and v of e4m3 with scales of rows", "[gpu]") {
  const std::vector<int32_t> lengths = {0, 1, 15, 64, 65, 3001};
  for (const char* name : {"noop", "causal", "softcap", "document"})
    for (auto [qk, v] : {std::pair{64, 64}, {128, 128}, {256, 256}, {48, 80}})
      for (int64_t qLen : {1, 20})
        if (test::isCaseDue())
          checkFp8(libraryMod(name), {{int64_t(lengths.size()), 6, 2, qLen, 3001}, qk, v, DType::BF16}, Scales::OfRows,
                   lengths);
}

FP8_TEST_CASE("decode kernels take k and v of e4m3, of any head dim, layout and scales", "[gpu]") {
  for (auto [qk, v] : {std::pair{16, 16}, {48, 80}, {16, 256}, {192, 128}, {256, 256}})
    for (DType dtype : {DType::BF16, DType::F16})
      for (Scales scales : {Scales::None, Scales::OfHeads, Scales::OfSequences}) {
        Problem problem{{2, 8, 2, 3, 2000}, qk, v, dtype};
        if (test::isCaseDue()) checkFp8(libraryMod("causal"), problem, scales);
        problem.headsLast = true;
        problem.rowPadding = 3;
        if (test::isCaseDue()) checkFp8(libraryMod("noop"), problem, scales);
        problem.rowPadding = 0;
        problem.kvBatchOne = true;
        if (test::isCaseDue())
          checkFp8(libraryMod("noop"), problem, scales == Scales::OfSequences ? Scales::OfHeads : scales);
      }
}

FP8_TEST_CASE("decode kernels take pages of e4m3", "[gpu]") {
  for (const char* name : {"causal", "document"})
    for (int pageSize : {1, 4, 16, 64, 128})
      for (Scales scales : {Scales::OfHeads, Scales::OfSequences, Scales::OfPages, Scales::OfRows})
        checkFp8(libraryMod(name), {{4, 8, 2, 3, 2944}, 128, 64, DType::BF16}, scales, {0, 1, 1000, 2944}, 1, pageSize);
}

FP8_TEST_CASE("rows that are appended to k and v of e4m3 are rounded", "[gpu]") {
  for (int pageSize : {0, 1, 64})
    for (auto [qk, v] : {std::pair{128, 64}, {48, 80}})
      for (Scales scales : {Scales::None, Scales::OfHeads, Scales::OfSequences})
        checkFp8(libraryMod("causal"), {{4, 8, 2, 3, 2944}, qk, v, DType::BF16}, scales, {3, 5, 1000, 2944}, 1,
                 pageSize, true);
}

FP8_TEST_CASE("decode kernels take ragged batches of e4m3 in pages", "[gpu][ragged]") {
  const std::vector<int32_t> lengths = {0, 1, 5, 1000, 2944, 64, 65, 700}, queries = {0, 1, 9, 1, 3, 0, 7, 8};
  for (auto [name, qk, v] :
       {std::tuple("causal", 128, 128), {"causal", 48, 80}, {"causal", 256, 256}, {"document", 128, 64}})
    for (int pageSize : {1, 16, 128})
      for (Scales scales : {Scales::None, Scales::OfHeads, Scales::OfSequences, Scales::OfPages, Scales::OfRows})
        if (test::isCaseDue())
          checkFp8(libraryMod(name), {{8, 8, 2, 9, 2944}, qk, v, DType::BF16}, scales, lengths, 1, pageSize, false,
                   queries);
  for (int pageSize : {1, 64})
    for (Scales scales : {Scales::None, Scales::OfHeads, Scales::OfSequences})
      if (test::isCaseDue())
        checkFp8(libraryMod("causal"), {{8, 8, 2, 9, 2944}, 128, 64, DType::BF16}, scales, lengths, 1, pageSize, true,
                 queries); // the third sequence has more queries than keys
}

FP8_TEST_CASE("q of bf16 beyond what f16 holds meets k of e4m3", "[gpu]") {
  for (float factor : {0x1p-60f, 0x1p40f})
    checkFp8(Mod::identity(), {{2, 8, 2, 2, 3000}, 128, 128, DType::BF16}, Scales::OfHeads, {}, factor);
}
