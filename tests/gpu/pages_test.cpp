// K and V in pages, and rows appended to them: every family and the decode kernels against the fp64 reference, which
// gets the same rows one behind the other. Pages lie in any order; prefixes are shared; rows and pages that no sequence
// has hold NaN, and entries of the table behind a sequence's length are no pages at all.
#include "gpu.h"

#include "tools/attnc/pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

using namespace attnc;
using namespace attnc::gputest;

namespace {

/// What a library mod's own arithmetic may add to the error of a score: as tests/gpu/forward_test.cpp has it.
double scoreErrorOf(const std::string& name, int64_t kvLen) {
  if (name == "softcap_approx") return 1.5 * 0x1p-10;
  if (name == "alibi") return 2.5 * 2 * double(kvLen) * 0x1p-23;
  return 0;
}

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
};

cli::HostTensor numbers(const std::vector<int32_t>& values) {
  cli::HostTensor tensor = cli::HostTensor::make(DType::I32, {int64_t(values.size())});
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

/// Rows one behind the other; the first `shared` of all sequences are those of the first one.
HostOperands contiguous(const Mod& mod, const PagedCase& c) {
  HostOperands operands = draw(mod, c.problem);
  operands.kvLengths = c.lengths;
  operands.qOffsets = c.qOffsets;
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

/// NaN in the rows [begin(b), end(b)) of each sequence.
template <class Begin, class End> void erase(cli::HostTensor& tensor, Begin begin, End end) {
  const int64_t row = tensor.shape[3] * dtypeBytes(tensor.dtype), heads = tensor.shape[1], length = tensor.shape[2];
  for (int64_t b = 0; b < tensor.shape[0]; ++b)
    for (int64_t h = 0; h < heads; ++h)
      std::fill(tensor.bytes.begin() + ((b * heads + h) * length + begin(b)) * row,
                tensor.bytes.begin() + ((b * heads + h) * length + end(b)) * row, char(0xff));
}

/// The last Q_LEN rows of each sequence; NaN where it has fewer.
cli::HostTensor lastRows(const cli::HostTensor& tensor, const PagedCase& c) {
  const int64_t row = tensor.shape[3] * dtypeBytes(tensor.dtype), heads = tensor.shape[1], qLen = c.problem.shape.qLen;
  cli::HostTensor last = cli::HostTensor::make(tensor.dtype, {tensor.shape[0], heads, qLen, tensor.shape[3]});
  std::fill(last.bytes.begin(), last.bytes.end(), char(0xff));
  for (int64_t b = 0; b < tensor.shape[0]; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < qLen; ++i)
        if (const int64_t from = c.lengths[size_t(b)] - qLen + i; from >= 0)
          std::copy_n(tensor.bytes.begin() + ((b * heads + h) * tensor.shape[2] + from) * row, row,
                      last.bytes.begin() + ((b * heads + h) * qLen + i) * row);
  return last;
}

/// Takes the rows away that the launch appends.
void takeNewRows(HostOperands& operands, const PagedCase& c) {
  operands.newK = lastRows(operands.k, c);
  operands.newV = lastRows(operands.v, c);
  for (cli::HostTensor* tensor : {&operands.k, &operands.v})
    erase(
        *tensor, [&](int64_t b) { return std::max<int64_t>(c.lengths[size_t(b)] - c.problem.shape.qLen, 0); },
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
  const Outcome expected = runReference(mod, c.problem, rows, {}, offsets);
  const auto check = [&](RunOptions options) {
    INFO(fmt::format("{}, {}, pages of {}, family {}, decode {}, lists {}", c.mod, c.problem.text(), c.pageSize,
                     int(options.family), options.decode.value_or(false), c.blockMask));
    options.blockMask = c.blockMask;
    options.offsets = offsets;
    const Outcome outcome = runKernel(mod, c.problem, pages, options);
    checkClose(outcome, expected, c.problem, false, scoreErrorOf(c.mod, c.problem.shape.kvLen));
    if (!c.appends) return;
    CHECK(isSame(outcome.k, toDoubles(after.k)));
    if (!c.problem.vInK) CHECK(isSame(outcome.v, toDoubles(after.v)));
  };
  if (kernels != Kernels::Forward)
    return check({.family = kernels == Kernels::Decode ? Family::Auto : Family::Sm80, .decode = true});
  for (Family family : familiesFor(mod, c.problem, {.blockMask = c.blockMask}))
    if (family != Family::Sm90 || c.pageSize != 1) check({.family = family, .decode = false});
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

TEST_CASE("forward kernels of every family take pages of every size", "[gpu]") {
  ATTNC_NEED_GPU();
  for (const char* mod : {"noop", "causal", "alibi", "sliding_window", "document"})
    for (int pageSize : kPageSizes)
      for (int64_t qLen : {1, 7, 127, 300}) checkPaged(caseOf(mod, pageSize, qLen, 6, 2, 64), Kernels::Forward);
}

static void checkEveryPageSize(Kernels kernels) {
  for (int pageSize : kPageSizes) {
    for (const char* mod : {"noop", "sliding_window"}) checkPaged(caseOf(mod, pageSize, 2, 6, 2, 128), kernels);
    for (int64_t qLen : {1, 7, 64}) checkPaged(caseOf("causal", pageSize, qLen, 6, 2, 128), kernels);
    for (int64_t qLen : {1, 127}) checkPaged(caseOf("document", pageSize, qLen, 16, 2, 64), kernels);
  }
}

TEST_CASE("decode kernels take pages of every size, and any number of queries and heads", "[gpu]") {
  ATTNC_NEED_GPU();
  checkEveryPageSize(Kernels::Decode);
}

TEST_CASE("sm80's decode kernels take pages of every size, and any number of queries and heads", "[gpu]") {
  ATTNC_NEED_GPU();
  checkEveryPageSize(Kernels::DecodeSm80);
}

TEST_CASE("every library mod reads positions, whatever pages they lie in", "[gpu]") {
  ATTNC_NEED_GPU();
  for (const std::string& mod : libraryNames())
    for (int pageSize : {1, 16, 128}) {
      checkPaged(caseOf(mod, pageSize, 130, 4, 2, 128), Kernels::Forward);
      checkPaged(caseOf(mod, pageSize, 3, 4, 2, 128), Kernels::Decode);
    }
}

TEST_CASE("decode kernels and forward kernels agree on long sequences in pages", "[gpu]") {
  ATTNC_NEED_GPU();
  for (int pageSize : {1, 16, 64, 256}) {
    PagedCase c{"causal", {{4, 8, 1, 4, 5120}, 128, 128, DType::F16}, pageSize, {5000, 4097, 0, 513}};
    checkPaged(c, Kernels::Decode);
    checkPaged(c, Kernels::DecodeSm80);
    checkPaged(c, Kernels::Forward);
  }
}

TEST_CASE("sequences share the pages of a prefix", "[gpu]") {
  ATTNC_NEED_GPU();
  for (int pageSize : {1, 16, 64}) {
    PagedCase c{"alibi", {{5, 8, 2, 5, 640}, 64, 64, DType::BF16}, pageSize, {600, 257, 256, 640, 300}, 256};
    checkPaged(c, Kernels::Decode);
    checkPaged(c, Kernels::Forward);
  }
}

TEST_CASE("a pool lies heads last, unaligned, and with any head dims", "[gpu]") {
  ATTNC_NEED_GPU();
  for (auto [qk, v] : {std::pair{64, 64}, {40, 72}, {8, 256}, {192, 128}, {256, 256}})
    for (int pageSize : {1, 8, 32, 256})
      for (int64_t padding : {0, 8, 3}) {
        PagedCase c = caseOf("causal", pageSize, 5, 4, 2, qk);
        c.problem.headDimV = v;
        c.problem.headsLast = true;
        c.problem.rowPadding = padding;
        checkPaged(c, Kernels::Decode);
        checkPaged(c, Kernels::Forward);
      }
}

TEST_CASE("pages hold for fp32, for wide heads, with lists and with offsets", "[gpu]") {
  ATTNC_NEED_GPU();
  for (int pageSize : {1, 8, 64, 256}) {
    PagedCase c = caseOf("causal", pageSize, 70, 4, 2, 64);
    c.problem.dtype = DType::F32;
    checkPaged(c, Kernels::Forward);
    checkPaged(caseOf("alibi", pageSize, 140, 4, 2, 256), Kernels::Forward);
    checkPaged(caseOf("softcap", pageSize, 140, 4, 2, 192), Kernels::Forward);
    for (const char* mod : {"causal", "document", "prefix_lm"}) {
      PagedCase lists = caseOf(mod, pageSize, 200, 4, 2, 64);
      lists.blockMask = true;
      checkPaged(lists, Kernels::Forward);
    }
    PagedCase offsets = caseOf("sliding_window", pageSize, 33, 4, 2, 64);
    offsets.qOffsets = {0, 5, 400, -3, 0, 64, 100, 100, 1000};
    checkPaged(offsets, Kernels::Forward);
    offsets.problem.shape.qLen = 3;
    checkPaged(offsets, Kernels::Decode);
  }
}

TEST_CASE("random layouts of pages, lengths and heads", "[gpu]") {
  ATTNC_NEED_GPU();
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
    checkPaged(c, Kernels::Forward);
    checkPaged(c, Kernels::Decode);
  }
}

TEST_CASE("new rows are attended to, and written where they belong", "[gpu]") {
  ATTNC_NEED_GPU();
  for (const char* mod : {"noop", "causal", "sliding_window"})
    for (int pageSize : {0, 1, 16, 64, 256})
      for (int64_t qLen : {1, 5, 70, 127}) {
        PagedCase c = caseOf(mod, pageSize, qLen, 6, 2, 64);
        c.appends = true;
        checkPaged(c, Kernels::Decode);
        if (qLen > 100) checkPaged(c, Kernels::DecodeSm80);
        checkPaged(c, Kernels::Forward);
      }
}

TEST_CASE("new rows are written although no query may see them, and in any layout", "[gpu]") {
  ATTNC_NEED_GPU();
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

TEST_CASE("decode kernels of wide heads take pages, and append rows", "[gpu]") {
  ATTNC_NEED_GPU();
  for (bool vInK : {true, false})
    for (int pageSize : {0, 8, 16, 32, 64, 256})
      for (const char* mod : {"noop", "causal", "document"})
        for (bool appends : {false, true}) {
          PagedCase c = caseOf(mod, pageSize, appends ? 3 : 1, 32, 1, 576);
          c.problem.headDimV = 512;
          c.problem.vInK = vInK;
          c.appends = appends;
          checkPaged(c, Kernels::Decode);
        }
}
