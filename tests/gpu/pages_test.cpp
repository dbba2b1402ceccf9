// K and V in pages, and rows appended to them: every family and the decode kernels against the fp64 reference, which
// gets the same rows one behind the other. Pages lie in any order; prefixes are shared; rows and pages that no sequence
// has hold NaN, and entries of the table behind a sequence's length are no pages at all.
#include "gpu.h"

#include "helpers/turns.h"

#include "tools/attnc/problem/pages.h"
#include "tools/attnc/problem/random.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

using namespace attnc;
using namespace attnc::gputest;

namespace {

struct PagedCase {
  std::string mod;
  Problem problem; ///< KV_LEN: in whole pages; headsLast also applies to the pool: [pages, page_size, HKV, D]
  int pageSize;    ///< 0: not in pages
  std::vector<int32_t> lengths;
  int64_t shared = 0; ///< rows at the beginning of all sequences that lie in the same pages
  std::vector<int32_t> qOffsets = {};
  bool blockMask = false;
  bool appends =
      false; ///< the last Q_LEN rows of each sequence are given to the launch, and are not in the cache before
  std::vector<int32_t> qLengths = {}; ///< of a ragged batch, whose Q_LEN is the longest; empty: none
  bool tellsLongest = true;           ///< whether the launch is told Q_LEN

  bool isRagged() const { return !qLengths.empty(); }
  int64_t qLength(int64_t b) const { return isRagged() ? qLengths[size_t(b)] : problem.shape.qLen; }
  /// First row of q of a sequence; for the number of sequences, the end of the last one.
  int64_t qStart(int64_t b) const { return std::accumulate(qLengths.begin(), qLengths.begin() + b, kBefore); }
  /// Rows of q in the tensor.
  int64_t qRows() const { return isRagged() ? qStart(problem.shape.batch) + kBehind : problem.shape.qLen; }

  static constexpr int64_t kBefore = 3, kBehind = 5; ///< rows of no sequence in a ragged batch
};

std::string textOf(const PagedCase& c) {
  return fmt::format("{}, {}, pages of {}, lengths {}, ragged {}", c.mod, c.problem.text(), c.pageSize,
                     fmt::join(c.lengths, " "), fmt::join(c.qLengths, " "));
}

cli::HostTensor numbers(const std::vector<int32_t>& values) {
  cli::HostTensor tensor = cli::HostTensor::make(DType::I32, {int64_t(values.size())});
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

/// NaN in the rows [begin(b), end(b)) of each sequence.
template <class Begin, class End> void erase(cli::HostTensor& tensor, Begin begin, End end) {
  const int64_t row = tensor.shape[3] * dtypeBytes(tensor.dtype), heads = tensor.shape[1], length = tensor.shape[2];
  for (int64_t b = 0; b < tensor.shape[0]; ++b)
    for (int64_t h = 0; h < heads; ++h)
      std::fill(tensor.bytes.begin() + ((b * heads + h) * length + begin(b)) * row,
                tensor.bytes.begin() + ((b * heads + h) * length + end(b)) * row, char(0xff));
}

/// Rows one behind the other; the first `shared` of all sequences are those of the first one.
HostOperands contiguous(const Mod& mod, const PagedCase& c) {
  HostOperands operands = draw(mod, c.problem);
  operands.kvLengths = c.lengths;
  operands.qOffsets = c.qOffsets;
  if (c.isRagged()) {
    for (int64_t b = 0; b <= c.problem.shape.batch; ++b) operands.cuSeqlensQ.push_back(int32_t(c.qStart(b)));
    if (c.tellsLongest) operands.maxQLen = c.problem.shape.qLen;
    cli::Generator generator(c.problem.seed + 1, c.problem.shape, int64_t(1) << 30);
    operands.q = generator.normal(c.problem.dtype, {1, c.problem.shape.qHeads, c.qRows(), c.problem.headDim});
    const auto at = [](int64_t row) { return [=](int64_t) { return row; }; };
    erase(operands.q, at(0), at(c.kBefore));
    erase(operands.q, at(c.qRows() - c.kBehind), at(c.qRows()));
  }
  for (cli::HostTensor* tensor : {&operands.k, &operands.v}) {
    const size_t row = size_t(tensor->shape[3] * dtypeBytes(tensor->dtype));
    const size_t head = row * size_t(tensor->shape[2]), entry = head * size_t(tensor->shape[1]);
    for (int64_t b = 1; b < tensor->shape[0]; ++b)
      for (int64_t h = 0; h < tensor->shape[1]; ++h)
        std::memcpy(tensor->bytes.data() + size_t(b) * entry + size_t(h) * head,
                    tensor->bytes.data() + size_t(h) * head, row * size_t(c.shared));
  }
  return operands;
}

/// The last rows of each sequence, as many as it has of q, laid out as q is; NaN where it has fewer.
cli::HostTensor lastRows(const cli::HostTensor& tensor, const PagedCase& c) {
  const int64_t row = tensor.shape[3] * dtypeBytes(tensor.dtype), heads = tensor.shape[1], rows = c.qRows();
  cli::HostTensor last =
      cli::HostTensor::make(tensor.dtype, {c.isRagged() ? 1 : tensor.shape[0], heads, rows, tensor.shape[3]});
  std::fill(last.bytes.begin(), last.bytes.end(), char(0xff));
  for (int64_t b = 0; b < tensor.shape[0]; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < c.qLength(b); ++i)
        if (const int64_t from = c.lengths[size_t(b)] - c.qLength(b) + i; from >= 0) {
          const int64_t to = c.isRagged() ? h * rows + c.qStart(b) + i : (b * heads + h) * rows + i;
          std::copy_n(tensor.bytes.begin() + ((b * heads + h) * tensor.shape[2] + from) * row, row,
                      last.bytes.begin() + to * row);
        }
  return last;
}

/// Takes the rows away that the launch appends.
void takeNewRows(HostOperands& operands, const PagedCase& c) {
  operands.newK = lastRows(operands.k, c);
  operands.newV = lastRows(operands.v, c);
  for (cli::HostTensor* tensor : {&operands.k, &operands.v})
    erase(
        *tensor, [&](int64_t b) { return std::max<int64_t>(c.lengths[size_t(b)] - c.qLength(b), 0); },
        [&](int64_t b) { return c.lengths[size_t(b)]; });
}

HostOperands inPages(HostOperands operands, const PagedCase& c) {
  for (cli::HostTensor* tensor : {&operands.k, &operands.v})
    erase(
        *tensor, [&](int64_t b) { return c.lengths[size_t(b)]; }, [&](int64_t) { return tensor->shape[2]; });
  if (c.pageSize == 0) return operands;
  const int64_t batch = c.problem.shape.batch, columns = c.problem.shape.kvLen / c.pageSize;
  cli::HostTensor table = cli::drawPageTable(batch, columns, c.problem.seed);
  auto* pages = static_cast<int32_t*>(table.view().data);
  for (int64_t b = 1; b < batch; ++b) std::copy_n(pages, c.shared / c.pageSize, pages + b * columns);
  const cli::HostTensor lengths = numbers(operands.kvLengths);
  for (cli::HostTensor* tensor : {&operands.k, &operands.v})
    *tensor = cli::dealToPages(*tensor, table, lengths, batch * columns, c.pageSize);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = (c.lengths[size_t(b)] + c.pageSize - 1) / c.pageSize; i < columns; ++i)
      pages[b * columns + i] = i % 2 ? -1 : 1 << 30;
  operands.pageTable = std::move(table);
  return operands;
}

/// NaN is NaN.
bool isSame(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

/// Takes the rows of no sequence out of a ragged batch's result, [heads, rows, columns].
void keepSequences(std::vector<double>& values, const PagedCase& c, int64_t columns) {
  if (!c.isRagged() || values.empty()) return;
  std::vector<double> kept;
  const int64_t first = c.qStart(0) * columns, end = c.qStart(c.problem.shape.batch) * columns;
  for (auto head = values.begin(); head != values.end(); head += c.qRows() * columns)
    kept.insert(kept.end(), head + first, head + end);
  values = std::move(kept);
}

enum class Kernels { Forward, Decode, DecodeSm80 };

void checkPaged(const PagedCase& c, Kernels kernels) {
  const Mod mod = libraryMod(c.mod);
  if (c.blockMask && !mod.hasMaskMod()) return;
  const HostOperands rows = contiguous(mod, c), after = inPages(rows, c);
  HostOperands before = rows;
  if (c.appends) takeNewRows(before, c);
  const HostOperands pages = inPages(before, c);
  // Lists are of rows of q, which then stand at them.
  const auto offsets = c.blockMask ? std::optional(QueryOffsets::None) : std::nullopt;
  Problem given = c.problem; // of the tensors
  if (c.isRagged()) given.shape.batch = 1, given.shape.qLen = c.qRows();
  const auto keep = [&](Outcome outcome) {
    keepSequences(outcome.out, c, c.problem.headDimV);
    for (std::vector<double>* values : {&outcome.lse, &outcome.rowMax}) keepSequences(*values, c, 1);
    return outcome;
  };
  const Outcome expected = keep(runReference(mod, c.problem, rows, {}, offsets));
  const auto check = [&](RunOptions options) {
    INFO(fmt::format("{}, family {}, decode {}, lists {}", textOf(c), int(options.family),
                     options.decode.value_or(false), c.blockMask));
    options.blockMask = c.blockMask;
    options.offsets = offsets;
    const Outcome outcome = keep(runKernel(mod, given, pages, options));
    checkClose(outcome, expected, c.problem, false, scoreErrorOf(c.mod, c.problem.shape, c.problem.dtype));
    if (!c.appends) return;
    CHECK(isSame(outcome.k, toDoubles(after.k)));
    if (!c.problem.vInK) CHECK(isSame(outcome.v, toDoubles(after.v)));
  };
  if (kernels != Kernels::Forward)
    return check({.family = kernels == Kernels::Decode ? Family::Auto : Family::Sm80, .decode = true});
  for (Family family : familiesFor(mod, c.problem, {.blockMask = c.blockMask}))
    if (family != Family::Sm90 || c.pageSize >= 8) check({.family = family, .decode = false});
}

constexpr int64_t kSequences = 9;

/// Around the edges of pages and of blocks of 16, 32, 64 and 128; none, and all.
std::vector<int32_t> lengthsAround(int pageSize, int64_t most) {
  std::vector<int32_t> lengths = {0, 1, int32_t(most), pageSize - 1, pageSize, pageSize + 1, 127, 129, 64};
  for (int32_t& length : lengths) length = std::clamp(length, 0, int32_t(most));
  return lengths;
}

PagedCase caseOf(const std::string& mod, int pageSize, int64_t qLen, int64_t heads, int64_t kvHeads, int headDim,
                 int64_t most = 512) {
  PagedCase c{mod,
              {{kSequences, heads, kvHeads, qLen, most}, headDim, headDim, DType::BF16},
              pageSize,
              lengthsAround(pageSize, most)};
  c.problem.seed = uint64_t(pageSize) * 1000 + uint64_t(qLen);
  return c;
}

} // namespace

GPU_TEST_CASE("forward kernels of every family take pages of every size", "[gpu]") {
  for (const char* mod : {"noop", "causal", "alibi", "sliding_window", "document"})
    for (int pageSize : kPageSizes)
      for (int64_t qLen : {1, 7, 127, 300})
        if (test::isCaseDue()) checkPaged(caseOf(mod, pageSize, qLen, 6, 2, 64), Kernels::Forward);
}

static void checkEveryPageSize(Kernels kernels) {
  for (int pageSize : kPageSizes) {
    for (const char* mod : {"noop", "sliding_window"})
      if (test::isCaseDue()) checkPaged(caseOf(mod, pageSize, 2, 6, 2, 128), kernels);
    for (int64_t qLen : {1, 7, 64})
      if (test::isCaseDue()) checkPaged(caseOf("causal", pageSize, qLen, 6, 2, 128), kernels);
    for (int64_t qLen : {1, 127})
      if (test::isCaseDue()) checkPaged(caseOf("document", pageSize, qLen, 16, 2, 64), kernels);
  }
}

GPU_TEST_CASE("decode kernels take pages of every size, and any number of queries and heads", "[gpu]") {
  checkEveryPageSize(Kernels::Decode);
}

GPU_TEST_CASE("sm80's decode kernels take pages of every size, and any number of queries and heads", "[gpu]") {
  checkEveryPageSize(Kernels::DecodeSm80);
}

GPU_TEST_CASE("every library mod reads positions, whatever pages they lie in", "[gpu]") {
  for (const std::string& mod : libraryNames())
    for (int pageSize : {1, 16, 128}) {
      if (test::isCaseDue()) checkPaged(caseOf(mod, pageSize, 130, 4, 2, 128), Kernels::Forward);
      if (test::isCaseDue()) checkPaged(caseOf(mod, pageSize, 3, 4, 2, 128), Kernels::Decode);
    }
}

GPU_TEST_CASE("decode kernels and forward kernels agree on long sequences in pages", "[gpu]") {
  for (int pageSize : {1, 16, 64, 256}) {
    PagedCase c{"causal", {{4, 8, 1, 4, 5120}, 128, 128, DType::F16}, pageSize, {5000, 4097, 0, 513}};
    checkPaged(c, Kernels::Decode);
    checkPaged(c, Kernels::DecodeSm80);
    checkPaged(c, Kernels::Forward);
  }
}

GPU_TEST_CASE("sequences share the pages of a prefix", "[gpu]") {
  for (int pageSize : {1, 16, 64}) {
    PagedCase c{"alibi", {{5, 8, 2, 5, 640}, 64, 64, DType::BF16}, pageSize, {600, 257, 256, 640, 300}, 256};
    checkPaged(c, Kernels::Decode);
    checkPaged(c, Kernels::Forward);
  }
}

GPU_TEST_CASE("a pool lies heads last, unaligned, and with any head dims", "[gpu]") {
  for (auto [qk, v] : {std::pair{64, 64}, {40, 72}, {8, 256}, {192, 128}, {256, 256}})
    for (int pageSize : {1, 8, 32, 256})
      for (int64_t padding : {0, 8, 3}) {
        PagedCase c = caseOf("causal", pageSize, 5, 4, 2, qk);
        c.problem.headDimV = v;
        c.problem.headsLast = true;
        c.problem.rowPadding = padding;
        if (test::isCaseDue()) checkPaged(c, Kernels::Decode);
        if (test::isCaseDue()) checkPaged(c, Kernels::Forward);
      }
}

GPU_TEST_CASE("pages hold for fp32, for wide heads, with lists and with offsets", "[gpu]") {
  for (int pageSize : {1, 8, 64, 256}) {
    PagedCase c = caseOf("causal", pageSize, 70, 4, 2, 64);
    c.problem.dtype = DType::F32;
    if (test::isCaseDue()) checkPaged(c, Kernels::Forward);
    if (test::isCaseDue()) checkPaged(caseOf("alibi", pageSize, 140, 4, 2, 256), Kernels::Forward);
    if (test::isCaseDue()) checkPaged(caseOf("softcap", pageSize, 140, 4, 2, 192), Kernels::Forward);
    for (const char* mod : {"causal", "document", "prefix_lm"}) {
      PagedCase lists = caseOf(mod, pageSize, 200, 4, 2, 64);
      lists.blockMask = true;
      if (test::isCaseDue()) checkPaged(lists, Kernels::Forward);
    }
    PagedCase offsets = caseOf("sliding_window", pageSize, 33, 4, 2, 64);
    offsets.qOffsets = {0, 5, 400, -3, 0, 64, 100, 100, 1000};
    if (test::isCaseDue()) checkPaged(offsets, Kernels::Forward);
    offsets.problem.shape.qLen = 3;
    if (test::isCaseDue()) checkPaged(offsets, Kernels::Decode);
  }
}

GPU_TEST_CASE("random layouts of pages, lengths and heads", "[gpu]") {
  const std::vector<std::string> mods = {"noop", "causal", "alibi", "sliding_window", "softcap"};
  for (uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    const auto draw = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    const int pageSize = kPageSizes[size_t(draw(0, int64_t(kPageSizes.size()) - 1))];
    const int64_t columns = draw(1, 1500 / pageSize + 2), kvHeads = draw(1, 3);
    PagedCase c{mods[size_t(draw(0, 4))],
                {{draw(1, 6), kvHeads * draw(1, 5), kvHeads, draw(1, 150), columns * pageSize}, 64, 64, DType::BF16},
                pageSize,
                {}};
    c.problem.seed = seed;
    c.problem.headsLast = draw(0, 1);
    for (int64_t b = 0; b < c.problem.shape.batch; ++b) c.lengths.push_back(int32_t(draw(0, c.problem.shape.kvLen)));
    if (test::isCaseDue()) checkPaged(c, Kernels::Forward);
    if (test::isCaseDue()) checkPaged(c, Kernels::Decode);
  }
}

GPU_TEST_CASE("new rows are attended to, and written where they belong", "[gpu]") {
  for (const char* mod : {"noop", "causal", "sliding_window"})
    for (int pageSize : {0, 1, 16, 64, 256})
      for (int64_t qLen : {1, 5, 70, 127}) {
        PagedCase c = caseOf(mod, pageSize, qLen, 6, 2, 64);
        c.appends = true;
        if (test::isCaseDue()) checkPaged(c, Kernels::Decode);
        if (qLen > 100 && test::isCaseDue()) checkPaged(c, Kernels::DecodeSm80);
        if (test::isCaseDue()) checkPaged(c, Kernels::Forward);
      }
}

GPU_TEST_CASE("new rows are written although no query may see them, and in any layout", "[gpu]") {
  for (int pageSize : {0, 8, 128})
    for (int64_t padding : {0, 8, 3}) {
      PagedCase c = caseOf("causal", pageSize, 3, 8, 2, 40);
      c.appends = true;
      c.qOffsets.assign(size_t(kSequences), -1000); // before all keys
      c.problem.headDimV = 72;
      c.problem.headsLast = true;
      c.problem.rowPadding = padding;
      for (Kernels kernels : {Kernels::Decode, Kernels::DecodeSm80, Kernels::Forward}) checkPaged(c, kernels);
    }
}

GPU_TEST_CASE("decode kernels of wide heads take pages, and append rows", "[gpu]") {
  for (bool vInK : {true, false})
    for (int pageSize : {0, 8, 16, 32, 64, 256})
      for (const char* mod : {"noop", "causal", "document"})
        for (bool appends : {false, true}) {
          PagedCase c = caseOf(mod, pageSize, appends ? 3 : 1, 32, 1, 576);
          c.problem.headDimV = 512;
          c.problem.vInK = vInK;
          c.appends = appends;
          if (test::isCaseDue()) checkPaged(c, Kernels::Decode);
        }
}

namespace {

/// Queries of sequences of lengthsAround(): none, one, odd ones, around the edges of tiles, more than a tile, and more
/// than the sequence has keys.
const std::vector<int32_t> kQLengths = {5, 0, 300, 1, 64, 7, 127, 129, 65};

PagedCase raggedCase(const std::string& mod, int pageSize, int headDim, bool appends = false, int32_t longest = 300) {
  PagedCase c = caseOf(mod, pageSize, longest, 6, 2, headDim);
  c.qLengths = kQLengths;
  for (int32_t& length : c.qLengths) length = std::min(length, longest);
  c.appends = appends;
  return c;
}

} // namespace

static void checkRaggedPages(bool appends) {
  ATTNC_NEED_GPU();
  for (const char* mod : {"noop", "causal", "alibi", "sliding_window", "document"})
    for (int pageSize : kPageSizes) {
      if (test::isCaseDue()) checkPaged(raggedCase(mod, pageSize, 64, appends), Kernels::Forward);
      if (test::isCaseDue()) checkPaged(raggedCase(mod, pageSize, 128, appends, 100), Kernels::Decode);
      if (test::isCaseDue()) checkPaged(raggedCase(mod, pageSize, 64, appends, 3), Kernels::DecodeSm80);
    }
}
TEST_CASE("every family takes ragged batches in pages of every size", "[gpu][ragged]") { checkRaggedPages(false); }
TEST_CASE("every family appends to ragged batches in pages of every size", "[gpu][ragged]") { checkRaggedPages(true); }

GPU_TEST_CASE("every library mod sees positions of ragged batches in pages", "[gpu][ragged]") {
  for (const std::string& mod : libraryNames()) {
    if (test::isCaseDue()) checkPaged(raggedCase(mod, 16, 128), Kernels::Forward);
    if (test::isCaseDue()) checkPaged(raggedCase(mod, 128, 64, true), Kernels::Forward);
    if (test::isCaseDue()) checkPaged(raggedCase(mod, 16, 128, false, 9), Kernels::Decode);
  }
}

GPU_TEST_CASE("ragged batches in pages take any heads and dtypes and offsets", "[gpu][ragged]") {
  for (int pageSize : {1, 8, 64, 256}) {
    for (auto [qk, v] : {std::pair{40, 72}, {192, 128}, {256, 256}}) {
      PagedCase c = raggedCase("causal", pageSize, qk, true);
      c.problem.headDimV = v;
      c.problem.headsLast = true;
      c.problem.rowPadding = pageSize == 64 ? 3 : 8;
      if (test::isCaseDue()) checkPaged(c, Kernels::Forward);
      c.problem.shape.qHeads = 16, c.problem.shape.kvHeads = 1;
      if (test::isCaseDue()) checkPaged(c, Kernels::Forward);
    }
    PagedCase c = raggedCase("alibi", pageSize, 64, true);
    c.problem.dtype = DType::F32;
    if (test::isCaseDue()) checkPaged(c, Kernels::Forward);
    c.problem.dtype = DType::F16;
    c.tellsLongest = false;
    if (test::isCaseDue()) checkPaged(c, Kernels::Forward);
    c.problem.dtype = DType::BF16;
    c.qOffsets = {0, 5, 400, -3, 0, 64, 100, 100, 1000};
    c.appends = false;
    if (test::isCaseDue()) checkPaged(c, Kernels::Forward);
    c.qLengths = {1, 1, 1, 1, 0, 1, 1, 1, 1};
    c.problem.shape.qLen = 1;
    c.tellsLongest = true;
    if (test::isCaseDue()) checkPaged(c, Kernels::Forward);
    if (test::isCaseDue()) checkPaged(c, Kernels::Decode);
  }
}

GPU_TEST_CASE("decodes and prompts share a launch", "[gpu][ragged]") {
  for (const char* mod : {"causal", "sliding_window", "alibi"})
    for (int pageSize : {16, 64}) {
      PagedCase c{mod, {{8, 8, 2, 700, 3072}, 128, 128, DType::BF16}, pageSize, {3000, 64, 1, 700, 2049, 0, 1500, 300}};
      c.qLengths = {1, 1, 1, 700, 1, 0, 513, 1};
      c.appends = true;
      checkPaged(c, Kernels::Forward);
    }
}

GPU_TEST_CASE("random ragged batches in pages", "[gpu][ragged]") {
  const std::vector<std::string> mods = {"noop", "causal", "alibi", "sliding_window", "softcap"};
  for (uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    const auto draw = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    const int pageSize = kPageSizes[size_t(draw(0, int64_t(kPageSizes.size()) - 1))];
    const int64_t columns = draw(1, 1500 / pageSize + 2), kvHeads = draw(1, 3), most = draw(0, 1) ? 4 : 150;
    PagedCase c{mods[size_t(draw(0, 4))],
                {{draw(1, 20), kvHeads * draw(1, 5), kvHeads, 1, columns * pageSize}, 64, 64, DType::BF16},
                pageSize,
                {}};
    c.problem.seed = seed;
    c.problem.headsLast = draw(0, 1);
    c.tellsLongest = draw(0, 1);
    c.appends = draw(0, 1);
    for (int64_t b = 0; b < c.problem.shape.batch; ++b) {
      c.lengths.push_back(int32_t(draw(0, c.problem.shape.kvLen)));
      c.qLengths.push_back(int32_t(draw(0, 3) ? draw(0, most) : 1));
    }
    c.problem.shape.qLen = std::max(1, *std::max_element(c.qLengths.begin(), c.qLengths.end()));
    if (test::isCaseDue()) checkPaged(c, Kernels::Forward);
    if (c.problem.shape.qLen <= 127 && c.tellsLongest && test::isCaseDue()) checkPaged(c, Kernels::Decode);
  }
}

GPU_TEST_CASE("decode kernels of wide heads take ragged batches in pages", "[gpu][ragged]") {
  for (bool vInK : {true, false})
    for (int pageSize : {16, 64})
      for (bool appends : {false, true}) {
        PagedCase c = raggedCase("causal", pageSize, 576, appends, 4);
        c.problem.shape.qHeads = 32, c.problem.shape.kvHeads = 1;
        c.problem.headDimV = 512;
        c.problem.vInK = vInK;
        checkPaged(c, Kernels::Decode);
      }
}
