// Decode kernels of wide heads and of e4m3, and the naive kernel, run on the host: their generated text, with the
// parameters that a launch would have, on a stand-in for the GPU (host_gpu.h), against attention in fp64.
#include "api/mod_impl.h"
#include "attnc/attnc.h"
#include "ir/philox.h"
#include "kernels/findings.h"
#include "kernels/host_launch.h"
#include "launch/launch_operands.h"
#include "launch/workspace.h"
#include "support/element.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <limits>
#include <random>

using namespace attnc;

namespace {

struct Case {
  std::string mod = "score";
  ProblemShape shape;
  int headDim = 576, headDimV = 512;
  bool vInK = true;
  DType dtype = DType::BF16;
  std::vector<int32_t> lengths = {};
  int pageSize = 0;
  bool appends = false, workspace = true, rowMax = false;
  std::string tile = {};
  int multiprocessors = 3;
  bool isNaive = false;
  std::vector<int32_t> cuSeqlens = {}; ///< of q and, without pages, of k, v, one behind the other: a ragged batch
  /// Of k and v, which are e4m3 then. In pages, Rows are those of pages.
  enum class Scales { None, Heads, Pages, Rows };
  std::optional<Scales> scales = {};
  bool ofQ = false;    ///< whether q is e4m3 as well, with a scale for each row
  int packedRows = 16; ///< of a tile, for k and v of e4m3
  bool byTma = false;  ///< whether sm90 takes k and v of e4m3, else sm80

  bool isKvPacked() const { return !cuSeqlens.empty() && !pageSize; }
};

struct Tensor {
  std::vector<char> bytes;
  TensorView view;
};

Tensor tensorOf(DType dtype, std::array<int64_t, 4> shape, std::mt19937& random, bool isNan = false) {
  Tensor tensor;
  std::normal_distribution<double> normal;
  const int64_t elements = shape[0] * shape[1] * shape[2] * shape[3];
  tensor.bytes.resize(size_t(std::max<int64_t>(elements, 1) * dtypeBytes(dtype)) + 64);
  char* data = tensor.bytes.data() + (64 - reinterpret_cast<uintptr_t>(tensor.bytes.data()) % 64) % 64;
  for (int64_t i = 0; i < elements; ++i)
    writeElement(data, dtype, i, isNan ? std::numeric_limits<double>::quiet_NaN() : normal(random));
  tensor.view = TensorView::contiguous(data, dtype, {shape[0], shape[1], shape[2], shape[3]});
  return tensor;
}

double at(const TensorView& tensor, int64_t b, int64_t h, int64_t row, int64_t column) {
  const int64_t i = b * tensor.stride[0] + h * tensor.stride[1] + row * tensor.stride[2] + column;
  return readElement(static_cast<const char*>(tensor.data), tensor.dtype, i).real;
}

/// Scales of k or v of e4m3, by position, from 2^-range to 2^range.
class ScalesOnHost {
public:
  ScalesOnHost(const Case& c, int range, std::mt19937& random)
      : c(c), batch(c.isKvPacked() ? 1 : c.shape.batch), kvLen(c.isKvPacked() ? c.cuSeqlens.back() : c.shape.kvLen) {
    std::uniform_real_distribution<double> exponent(-range, range);
    const int64_t span = !c.scales || *c.scales == Case::Scales::Heads ? kvLen
                         : *c.scales == Case::Scales::Pages            ? c.pageSize
                                                                       : 1;
    for (int64_t head = 0; head < batch * c.shape.kvHeads; ++head)
      for (int64_t i = 0; i < kvLen; ++i)
        values.push_back(i % span ? values.back() : float(std::exp2(exponent(random))));
    if (c.scales && *c.scales == Case::Scales::None) std::fill(values.begin(), values.end(), 1.f);
  }
  float of(int64_t b, int64_t h, int64_t i) const { return values[size_t((b * c.shape.kvHeads + h) * kvLen + i)]; }
  void multiply(const TensorView& rows) const {
    for (int64_t i = 0; i < rows.elements(); ++i)
      writeElement(rows.data, rows.dtype, i,
                   readElement(static_cast<const char*>(rows.data), rows.dtype, i).real *
                       values[size_t(i / rows.shape[3])]);
  }
  /// Returns the operand. Scales behind lengths are NaN.
  TensorView given(std::vector<float>& memory, const std::vector<int32_t>& table) const {
    const int64_t heads = c.shape.kvHeads;
    const auto lengthOf = [&](int64_t b) { return c.lengths.empty() ? kvLen : int64_t(c.lengths[size_t(b)]); };
    const bool isOfHeads = *c.scales == Case::Scales::Heads, inPages = c.pageSize && !isOfHeads;
    const int64_t rows = inPages ? *c.scales == Case::Scales::Pages ? 1 : c.pageSize : isOfHeads ? 1 : kvLen;
    const int64_t pages = c.pageSize ? kvLen / c.pageSize : 0, entries = inPages ? batch * pages : batch;
    memory.assign(size_t(entries * heads * rows), NAN);
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < (isOfHeads ? 1 : lengthOf(b)); ++i) {
          const int64_t entry = inPages ? table[size_t(b * pages + i / c.pageSize)] : b;
          const int64_t row = inPages ? i % c.pageSize % rows : i;
          memory[size_t((entry * heads + h) * rows + row)] = of(b, h, i);
        }
    if (isOfHeads) return TensorView::contiguous(memory.data(), DType::F32, {batch, heads});
    if (c.ofQ) return TensorView::contiguous(memory.data(), DType::F32, {entries, heads, rows, 1});
    return TensorView::contiguous(memory.data(), DType::F32, {entries, heads, rows});
  }

private:
  const Case& c;
  int64_t batch, kvLen;      // of the tensors
  std::vector<float> values; // [batch, HKV, kvLen]
};

TensorView columnsOf(TensorView of, int64_t columns) {
  of.shape[3] = columns;
  return of;
}

void check(const Case& c, unsigned seed = 1) {
  if (!test::isCaseDue()) return;
  INFO(c.mod << fmt::format(", B {} H {} HKV {} q {} kv {}, d {}/{} v in k {}, pages {}, appends {}, seed {}",
                            c.shape.batch, c.shape.qHeads, c.shape.kvHeads, c.shape.qLen, c.shape.kvLen, c.headDim,
                            c.headDimV, c.vInK, c.pageSize, c.appends, seed));
  std::mt19937 random(seed);
  const ProblemShape& s = c.shape;
  KernelOptions options{.kind = c.isNaive ? KernelKind::Forward : KernelKind::Decode,
                        .family = c.isNaive              ? Family::Naive
                                  : c.scales && !c.byTma ? Family::Sm80
                                                         : Family::Sm90,
                        .arch = "sm_90a",
                        .dtype = c.dtype,
                        .headDim = c.headDim,
                        .headDimV = c.headDimV,
                        .packedRows = c.scales ? c.packedRows : 64,
                        .pageSize = c.pageSize,
                        .tile = c.tile};
  options.features.set(Feature::VInK, c.vInK);
  options.features.set(Feature::Fp8Kv, c.scales.has_value());
  options.features.set(Feature::Fp8Q, c.ofQ);
  options.features.set(Feature::RowScales, c.ofQ);
  options.features.set(Feature::Lengths, !c.lengths.empty());
  options.features.set(Feature::Appends, c.appends);
  options.features.set(Feature::RowMax, c.rowMax);
  options.features.set(Feature::Ragged, !c.cuSeqlens.empty());
  if (!c.lengths.empty()) options.offsets = QueryOffsets::FromLengths;

  // Operands. Rows that no sequence has are NaN.
  const bool isRagged = !c.cuSeqlens.empty(), isKvPacked = c.isKvPacked();
  const int64_t rows = isRagged ? c.cuSeqlens[size_t(s.batch)] : s.qLen,
                kvRows = isKvPacked ? c.cuSeqlens.back() : s.kvLen, batch = isRagged ? 1 : s.batch,
                kvBatch = isKvPacked ? 1 : s.batch;
  const auto qStartOf = [&](int64_t b) { return isRagged ? int64_t(c.cuSeqlens[size_t(b)]) : 0; };
  const auto qLengthOf = [&](int64_t b) { return isRagged ? qStartOf(b + 1) - qStartOf(b) : s.qLen; };
  Tensor q = tensorOf(c.ofQ ? DType::E4M3 : c.dtype, {batch, s.qHeads, rows, c.headDim}, random);
  std::vector<float> qScales(size_t(batch * s.qHeads * rows));
  for (float& scale : qScales) scale = std::exp2(std::uniform_real_distribution<float>(-2, 1)(random));
  const DType kvDType = c.scales ? DType::E4M3 : c.dtype, wantDType = c.scales ? DType::F32 : c.dtype;
  Tensor k = tensorOf(kvDType, {kvBatch, s.kvHeads, kvRows, c.headDim}, random);
  Tensor ownV = tensorOf(kvDType, {kvBatch, s.kvHeads, kvRows, c.headDimV}, random);
  const TensorView v = c.vInK ? columnsOf(k.view, c.headDimV) : ownV.view;
  const auto lengthOf = [&](int64_t b) { return c.lengths.empty() ? s.kvLen : int64_t(c.lengths[size_t(b)]); };
  Tensor out = tensorOf(c.dtype, {batch, s.qHeads, rows, c.headDimV}, random, true);
  std::vector<float> lse(size_t(batch * s.qHeads * rows), NAN), rowMax = lse;
  const DType newDType = c.ofQ ? DType::E4M3 : c.dtype; // rows that are stored as they are, or rounded
  const bool rounds = c.scales && !c.ofQ;
  Tensor newK = tensorOf(newDType, {batch, s.kvHeads, rows, c.headDim}, random, true);
  Tensor newV = tensorOf(newDType, {batch, s.kvHeads, rows, c.headDimV}, random, true);
  const auto copyRow = [](const TensorView& from, std::array<int64_t, 3> i, const TensorView& to,
                          std::array<int64_t, 3> j, float by = 1) {
    for (int64_t d = 0; d < to.shape[3]; ++d)
      writeElement(static_cast<char*>(to.data), to.dtype,
                   j[0] * to.stride[0] + j[1] * to.stride[1] + j[2] * to.stride[2] + d,
                   by * at(from, i[0], i[1], i[2], d));
  };
  Tensor wantK = tensorOf(wantDType, {kvBatch, s.kvHeads, kvRows, c.headDim}, random);
  Tensor wantV = tensorOf(wantDType, {kvBatch, s.kvHeads, kvRows, c.headDimV}, random);
  for (int64_t b = 0; b < kvBatch; ++b)
    for (int64_t h = 0; h < s.kvHeads; ++h)
      for (int64_t i = 0; i < kvRows; ++i)
        copyRow(k.view, {b, h, i}, wantK.view, {b, h, i}), copyRow(v, {b, h, i}, wantV.view, {b, h, i});
  const ScalesOnHost kScales(c, c.ofQ ? 1 : 2, random), vScales(c, 20, random);
  if (c.scales) kScales.multiply(wantK.view), vScales.multiply(wantV.view);
  Tensor nan = tensorOf(kvDType, {1, 1, 1, std::max(c.headDim, c.headDimV)}, random, true);
  for (int64_t b = 0; b < kvBatch && !isKvPacked; ++b)
    for (int64_t h = 0; h < s.kvHeads; ++h)
      for (int64_t i = 0; i < kvRows; ++i) {
        const int64_t token = i - (lengthOf(b) - qLengthOf(b));
        const bool isNew = c.appends && token >= 0 && token < qLengthOf(b);
        const std::array<int64_t, 3> to{isRagged ? 0 : b, h, qStartOf(b) + token};
        if (isNew)
          copyRow(k.view, {b, h, i}, newK.view, to, rounds ? kScales.of(b, h, i) : 1.f),
              copyRow(v, {b, h, i}, newV.view, to, rounds ? vScales.of(b, h, i) : 1.f);
        if (isNew || i >= lengthOf(b))
          copyRow(nan.view, {0, 0, 0}, k.view, {b, h, i}),
              copyRow(nan.view, {0, 0, 0}, columnsOf(v, c.headDimV), {b, h, i});
      }
  // Pages in any order; entries behind a length are no pages.
  Tensor poolK, poolV;
  std::vector<int32_t> table;
  Operands operands{.q = q.view, .k = k.view, .v = v};
  if (c.pageSize) {
    const int64_t pages = s.kvLen / c.pageSize, all = s.batch * pages;
    for (int64_t i = 0; i < all; ++i) table.push_back(int32_t(i));
    std::shuffle(table.begin(), table.end(), random);
    poolK = tensorOf(kvDType, {all, s.kvHeads, c.pageSize, c.headDim}, random, true);
    poolV = tensorOf(kvDType, {all, s.kvHeads, c.pageSize, c.headDimV}, random, true);
    for (int64_t b = 0; b < s.batch; ++b)
      for (int64_t i = 0; i < s.kvLen; ++i)
        for (int64_t h = 0; h < s.kvHeads; ++h) {
          const int64_t page = table[size_t(b * pages + i / c.pageSize)];
          copyRow(k.view, {b, h, i}, poolK.view, {page, h, i % c.pageSize});
          copyRow(v, {b, h, i}, poolV.view, {page, h, i % c.pageSize});
        }
    for (int64_t b = 0; b < s.batch; ++b)
      for (int64_t i = 0; i < pages; ++i)
        if (i * c.pageSize >= lengthOf(b)) table[size_t(b * pages + i)] = i % 2 ? -1 : 1 << 30;
    operands.k = poolK.view;
    operands.v = c.vInK ? columnsOf(poolK.view, c.headDimV) : poolV.view;
    operands.pageTable = TensorView::contiguous(table.data(), DType::I32, {s.batch, pages});
  }
  std::vector<int32_t> lengths = c.lengths, cuQ, cuKv;
  if (!lengths.empty()) operands.kvLengths = TensorView::contiguous(lengths.data(), DType::I32, {s.batch});
  std::vector<float> kScalesGiven, vScalesGiven;
  if (c.scales && *c.scales != Case::Scales::None)
    operands.kScales = kScales.given(kScalesGiven, table), operands.vScales = vScales.given(vScalesGiven, table);
  if (c.ofQ) operands.qScales = TensorView::contiguous(qScales.data(), DType::F32, {batch, s.qHeads, rows, 1});
  if (c.appends) operands.newK = newK.view, operands.newV = c.vInK ? columnsOf(newK.view, c.headDimV) : newV.view;
  if (isRagged) {
    cuQ.assign(c.cuSeqlens.begin(), c.cuSeqlens.begin() + s.batch + 1);
    cuKv.assign(c.cuSeqlens.begin() + s.batch + 1, c.cuSeqlens.end());
    operands.cuSeqlensQ = TensorView::contiguous(cuQ.data(), DType::I32, {s.batch + 1});
    if (isKvPacked) operands.cuSeqlensKv = TensorView::contiguous(cuKv.data(), DType::I32, {s.batch + 1});
    operands.maxQLen = s.qLen, operands.maxKvLen = s.kvLen;
  }
  Outputs outputs{.out = out.view, .lse = TensorView::contiguous(lse.data(), DType::F32, {batch, s.qHeads, rows})};
  if (c.rowMax) outputs.rowMax = TensorView::contiguous(rowMax.data(), DType::F32, {batch, s.qHeads, rows});

  auto mod = take(Mod::parse(c.mod));
  const test::HostLaunch how{.seed = seed, .multiprocessors = c.multiprocessors, .hasWorkspace = c.workspace};
  test::launchOnHost(mod, options, operands, outputs, how, [&](const plan::Stage& stage) {
    return stage.templateName == "decode_lists.cu"       ? "DecodeListsParams"
           : stage.templateName == "append.cu"           ? "Cached<ForwardParams>"
           : stage.templateName == "decode_wide_sm90.cu" ? "decode::Params"
           : c.isNaive                                   ? "naive::Params"
           : c.byTma                                     ? "decode::CopiesOfEngine::Params"
           : c.scales                                    ? "decode::CopiesOfThreads::Params"
                                                         : "DecodeParams";
  });

  // Attention in fp64.
  const bool isCausal = c.mod.find("q_idx >= kv_idx") != std::string::npos,
             isOdd = c.mod.find("% 3") != std::string::npos, isDropped = c.mod.find("random") != std::string::npos,
             isRoot = c.mod.find("sqrt") != std::string::npos;
  const double tolerance = c.dtype == DType::BF16 ? 0x1p-7 : 0x1p-9;
  int wrong = 0;
  for (int64_t b = 0; b < s.batch; ++b) {
    const int64_t qStart = qStartOf(b), kvStart = isKvPacked ? cuKv[size_t(b)] : 0, of = isRagged ? 0 : b,
                  ofKv = isKvPacked ? 0 : b;
    const int64_t qLen = qLengthOf(b), kvLen = isKvPacked ? cuKv[size_t(b) + 1] - kvStart : lengthOf(b);
    for (int64_t h = 0; h < s.qHeads; ++h)
      for (int64_t i = 0; i < qLen; ++i) {
        const int64_t kvHead = h / (s.qHeads / s.kvHeads), position = (c.lengths.empty() ? 0 : kvLen - qLen) + i;
        std::vector<double> sum(size_t(c.headDimV), 0), mass = sum, scores;
        double top = -INFINITY, total = 0;
        for (int64_t j = 0; j < kvLen; ++j) {
          double dot = 0;
          for (int64_t d = 0; d < c.headDim; ++d)
            dot += at(q.view, of, h, qStart + i, d) * at(wantK.view, ofKv, kvHead, kvStart + j, d);
          dot /= std::sqrt(double(c.headDim));
          if (c.ofQ) dot *= double(qScales[size_t((of * s.qHeads + h) * rows + qStart + i)]);
          if ((isCausal && position < j) || (isOdd && (position + j) % 3 == 0)) dot = -INFINITY;
          scores.push_back(dot);
          top = std::max(top, dot);
        }
        for (double score : scores) total += score == -INFINITY ? 0 : std::exp(score - top);
        for (int64_t j = 0; j < kvLen; ++j) {
          double weight = scores[size_t(j)] == -INFINITY ? 0 : std::exp(scores[size_t(j)] - top);
          if (isRoot && weight > 0) weight = std::sqrt(weight * total);
          if (isDropped)
            weight *= ir::randomAt(7, uint32_t(b), uint32_t(h), uint32_t(position), uint32_t(j)) < 0.25f ? 0 : 2;
          for (int64_t d = 0; weight && d < c.headDimV; ++d) {
            const double value = at(wantV.view, ofKv, kvHead, kvStart + j, d);
            sum[size_t(d)] += weight * value, mass[size_t(d)] += weight * std::fabs(value);
          }
        }
        const size_t row = size_t((of * s.qHeads + h) * rows + qStart + i);
        const double wantLse = total ? top + std::log(total) : -INFINITY;
        if (!(lse[row] == wantLse || std::fabs(lse[row] - wantLse) < 1e-3)) ++wrong;
        if (c.rowMax && !(rowMax[row] == top || std::fabs(rowMax[row] - top) < 1e-3)) ++wrong;
        for (int64_t d = 0; d < c.headDimV; ++d) {
          const double want = total ? sum[size_t(d)] / total : 0, is = at(out.view, of, h, qStart + i, d);
          const double size = c.scales && total ? mass[size_t(d)] / total : 1 + std::fabs(want);
          if (!(std::fabs(is - want) <= tolerance * size) && ++wrong < 5)
            WARN(fmt::format("b {} h {} row {} column {}: {} instead of {}", b, h, i, d, is, want));
        }
      }
  }
  CHECK(wrong == 0);
  if (!c.appends) return;
  for (int64_t b = 0; b < s.batch; ++b) // the new rows are in the cache
    for (int64_t i = std::max<int64_t>(lengthOf(b) - qLengthOf(b), 0); i < lengthOf(b); ++i) {
      const int64_t pages = c.pageSize ? s.kvLen / c.pageSize : 0;
      const int64_t page = c.pageSize ? table[size_t(b * pages + i / c.pageSize)] : b,
                    row = c.pageSize ? i % c.pageSize : i;
      for (int64_t d = 0; d < c.headDim; ++d)
        if (float((c.scales ? kScales.of(b, 0, i) : 1.f) * at(operands.k, page, 0, row, d)) !=
            float(at(wantK.view, b, 0, i, d)))
          ++wrong;
    }
  CHECK(wrong == 0);
}

const std::string kCausal = "q_idx >= kv_idx", kThirds = "(q_idx + kv_idx) % 3 != 0",
                  kDropout = "def prob_mod(prob, b, h, q_idx, kv_idx):\n"
                             "  return where(random(7, b, h, q_idx, kv_idx) < 0.25, 0.0, prob * 2)\n",
                  kRoot = "def prob_mod(prob, b, h, q_idx, kv_idx):\n  return torch.sqrt(prob)\n",
                  kCausalMask = "def mask_mod(b, h, q_idx, kv_idx):\n  return q_idx >= kv_idx\n";

} // namespace

TEST_CASE("wide decode kernels compute attention, whatever the order of threads, copies and products", "[on-host]") {
  for (unsigned seed : {1, 2, 3}) check({.shape = {1, 64, 1, 1, 200}}, seed);
  check({.shape = {1, 5, 1, 1, 31}});
  check({.mod = kCausal, .shape = {2, 128, 1, 1, 300}, .lengths = {300, 33}, .rowMax = true});
  check(
      {.mod = kCausal, .shape = {3, 8, 2, 3, 100}, .dtype = DType::F16, .lengths = {0, 100, 1}, .multiprocessors = 7});
  check({.mod = kThirds, .shape = {2, 6, 1, 2, 130}, .workspace = true});
  check({.shape = {2, 16, 1, 1, 150}, .workspace = false});
}

TEST_CASE("wide decode kernels deal the tiles of a head to teams of CTAs", "[on-host]") {
  check({.shape = {1, 128, 1, 1, 600}, .multiprocessors = 8}); // pieces
  check({.shape = {3, 128, 1, 1, 300}, .multiprocessors = 8}); // shares
  check({.shape = {2, 192, 1, 1, 200}, .multiprocessors = 6});
  // One CTA is left over.
  check({.shape = {2, 128, 1, 1, 600}, .multiprocessors = 17});
  check({.mod = kCausal, .shape = {3, 128, 1, 1, 300}, .lengths = {300, 33, 0}, .multiprocessors = 17});
  check({.mod = kCausal, .shape = {1, 128, 1, 1, 600}, .lengths = {577}, .multiprocessors = 17});
  check({.mod = kThirds, .shape = {2, 64, 1, 2, 130}, .multiprocessors = 17});
}

TEST_CASE("decode kernels multiply weights by the factors of prob_mod", "[on-host]") {
  check({.mod = kDropout, .shape = {1, 64, 1, 1, 200}});
  check({.mod = kDropout + kCausalMask, .shape = {2, 8, 1, 2, 300}, .lengths = {300, 33}, .multiprocessors = 7});
  for (bool byTma : {false, true})
    check({.mod = kDropout,
           .shape = {2, 6, 2, 2, 150},
           .headDim = 64,
           .headDimV = 64,
           .vInK = false,
           .lengths = {150, 33},
           .scales = Case::Scales::None,
           .byTma = byTma});
}

TEST_CASE("decode kernels walk twice, over pages, ragged batches, appended rows and e4m3", "[on-host]") {
  check({.mod = kRoot, .shape = {1, 64, 1, 1, 200}});
  check({.mod = kRoot + kCausalMask, .shape = {2, 8, 1, 2, 300}, .lengths = {300, 33}, .multiprocessors = 7});
  check({.mod = kRoot + "def mask_mod(b, h, q_idx, kv_idx):\n  return (q_idx + kv_idx) % 3 != 0\n",
         .shape = {2, 6, 1, 2, 130},
         .multiprocessors = 7});
  for (bool appends : {false, true}) {
    check({.mod = kRoot + kCausalMask,
           .shape = {3, 16, 1, 3, 96},
           .lengths = {96, 65, 2},
           .pageSize = appends ? 16 : 0,
           .appends = appends});
    check({.mod = kRoot + kCausalMask,
           .shape = {4, 16, 1, 40, 128},
           .lengths = {128, 65, 2, 70},
           .pageSize = 8,
           .appends = appends,
           .cuSeqlens = {0, 1, 1, 4, 44}});
  }
  for (bool byTma : {false, true})
    for (Case::Scales scales : {Case::Scales::Heads, Case::Scales::Rows})
      check({.mod = kRoot,
             .shape = {2, 6, 2, 2, 150},
             .headDim = 64,
             .headDimV = 64,
             .vInK = false,
             .lengths = {150, 33},
             .scales = scales,
             .byTma = byTma});
}

TEST_CASE("wide decode kernels take any head dims, and v of its own", "[on-host]") {
  check({.shape = {1, 16, 1, 2, 100}, .vInK = false});
  check({.shape = {1, 16, 1, 2, 100}, .vInK = false, .tile = "64x32x8"});
  check({.shape = {1, 16, 1, 2, 100}, .tile = "64x16x8"});
  check({.shape = {1, 16, 1, 1, 70}, .headDim = 512, .headDimV = 512});
  check({.shape = {1, 16, 1, 1, 70}, .headDim = 328, .headDimV = 264});
  check({.shape = {1, 16, 1, 1, 70}, .headDim = 264, .headDimV = 8, .vInK = false});
  check({.shape = {1, 16, 1, 1, 70}, .headDim = 40, .headDimV = 392, .vInK = false});
}

TEST_CASE("wide decode kernels take pages, ragged batches, and append rows", "[on-host]") {
  check({.mod = kCausal, .shape = {3, 16, 1, 1, 128}, .lengths = {128, 65, 1}, .pageSize = 64});
  check({.mod = kCausal, .shape = {3, 16, 1, 2, 128}, .lengths = {120, 65, 1}, .pageSize = 8});
  for (bool vInK : {true, false}) {
    check({.mod = kCausal, .shape = {3, 16, 1, 3, 96}, .vInK = vInK, .lengths = {96, 65, 2}, .appends = true});
    check({.mod = kCausal,
           .shape = {2, 16, 1, 3, 96},
           .vInK = vInK,
           .lengths = {96, 34},
           .pageSize = 16,
           .appends = true});
  }
  check({.shape = {3, 16, 1, 4, 100}, .cuSeqlens = {0, 4, 4, 5, 0, 100, 130, 133}});
  for (bool appends : {false, true})
    for (int pageSize : {8, 64})
      check({.mod = kCausal,
             .shape = {4, 16, 1, 40, 128},
             .lengths = {128, 65, 2, 70},
             .pageSize = pageSize,
             .appends = appends,
             .cuSeqlens = {0, 1, 1, 4, 44}}); // the third sequence has more queries than keys
}

TEST_CASE("decode kernels multiply k and v of e4m3 by scales of heads, pages or rows", "[on-host]") {
  using Scales = Case::Scales;
  for (Scales scales : {Scales::None, Scales::Heads, Scales::Rows})
    for (auto [qk, v] : {std::pair{64, 64}, {128, 48}}) {
      const Case c{.mod = kCausal,
                   .shape = {2, 6, 2, 3, 150},
                   .headDim = qk,
                   .headDimV = v,
                   .vInK = false,
                   .lengths = {150, 33},
                   .scales = scales};
      check(c);
    }
  for (Scales scales : {Scales::Heads, Scales::Pages, Scales::Rows})
    for (int pageSize : {2, 16, 64})
      check({.mod = kCausal,
             .shape = {3, 4, 2, 1, 192},
             .headDim = 64,
             .headDimV = 80,
             .vInK = false,
             .lengths = {192, 65, 1},
             .pageSize = pageSize,
             .scales = scales});
  check({.mod = kThirds,
         .shape = {1, 4, 1, 2, 300},
         .headDim = 64,
         .headDimV = 64,
         .vInK = false,
         .dtype = DType::F16,
         .scales = Scales::Rows});
}

TEST_CASE("decode kernels load k and v of e4m3 by the copy engine", "[on-host]") {
  using Scales = Case::Scales;
  for (auto [rows, qk, v] : {std::tuple(16, 64, 128), {32, 128, 48}, {64, 256, 160}, {16, 144, 16}})
    check({.shape = {2, 6, 2, 5, 150},
           .headDim = qk,
           .headDimV = v,
           .vInK = false,
           .lengths = {150, 33},
           .scales = Scales::Heads,
           .packedRows = rows,
           .byTma = true});
  for (auto [pageSize, qk, v] : {std::tuple(8, 256, 144), {16, 128, 64}, {128, 128, 64}})
    for (bool appends : {false, true})
      check({.mod = kCausal,
             .shape = {3, 4, 2, 3, 384},
             .headDim = qk,
             .headDimV = v,
             .vInK = false,
             .lengths = {384, 65, 2},
             .pageSize = pageSize,
             .appends = appends,
             .scales = appends ? Scales::Heads : Scales::Pages,
             .byTma = true});
  check({.mod = kThirds,
         .shape = {1, 4, 1, 2, 300},
         .headDim = 64,
         .headDimV = 64,
         .vInK = false,
         .dtype = DType::F16,
         .scales = Scales::Rows,
         .byTma = true});
}

TEST_CASE("rows that are appended to k and v of e4m3 are divided by scales of heads and rounded", "[on-host]") {
  using Scales = Case::Scales;
  for (Scales scales : {Scales::None, Scales::Heads})
    for (int pageSize : {0, 4, 64})
      for (auto [qk, v] : {std::pair{64, 64}, {48, 80}})
        check({.mod = kCausal,
               .shape = {3, 4, 2, 3, 192},
               .headDim = qk,
               .headDimV = v,
               .vInK = false,
               .lengths = {192, 65, 2},
               .pageSize = pageSize,
               .appends = true,
               .scales = scales});
}

TEST_CASE("decode kernels take ragged batches of e4m3, in pages or one behind the other", "[on-host]") {
  using Scales = Case::Scales;
  for (bool byTma : {false, true})
    for (Scales scales : {Scales::None, Scales::Heads, Scales::Rows})
      check({.mod = kThirds, // rows see scales of many sizes: a key's weight may be lost next to a far larger one's
             .shape = {4, 4, 2, 5, 192},
             .headDim = 64,
             .headDimV = 80,
             .vInK = false,
             .cuSeqlens = {0, 5, 5, 6, 9, 0, 192, 200, 201, 270},
             .scales = scales,
             .byTma = byTma});
  for (int pageSize : {1, 16, 64})
    for (Scales scales : {Scales::Heads, Scales::Pages, Scales::Rows})
      for (bool appends : {false, true})
        if (!appends || scales == Scales::Heads)
          check({.mod = kCausal,
                 .shape = {4, 4, 2, 9, 192},
                 .headDim = 128,
                 .headDimV = 48,
                 .vInK = false,
                 .lengths = {192, 65, 2, 70},
                 .pageSize = pageSize,
                 .appends = appends,
                 .rowMax = true,
                 .cuSeqlens = {0, 1, 1, 4, 13}, // the third sequence has more queries than keys
                 .scales = scales,
                 .byTma = pageSize >= 8});
}

TEST_CASE("the naive kernel takes q, k and v of e4m3 with scales of rows", "[on-host]") {
  using Scales = Case::Scales;
  for (auto [scales, appends] : {std::pair(Scales::Heads, false), {Scales::Rows, false}, {Scales::Rows, true}})
    check({.mod = kCausal,
           .shape = {2, 6, 2, 9, 150},
           .headDim = 64,
           .headDimV = 48,
           .vInK = false,
           .lengths = {150, 33},
           .appends = appends,
           .rowMax = true,
           .isNaive = true,
           .scales = scales,
           .ofQ = true});
  for (Scales scales : {Scales::Heads, Scales::Pages, Scales::Rows})
    for (auto [isRagged, appends] : {std::pair(false, false), {true, false}, {true, true}})
      check({.mod = kCausal,
             .shape = {3, 4, 2, 10, 192},
             .headDim = 32,
             .headDimV = 80,
             .vInK = false,
             .lengths = {192, 65, 1},
             .pageSize = 16,
             .appends = appends,
             .isNaive = true,
             .cuSeqlens = isRagged ? std::vector<int32_t>{0, 10, 11, 12} : std::vector<int32_t>{},
             .scales = scales,
             .ofQ = true});
}

TEST_CASE("the naive kernel takes ragged batches in pages, and rows are appended to them", "[on-host]") {
  for (bool appends : {false, true})
    for (int pageSize : {1, 4, 64})
      check({.mod = kCausal,
             .shape = {5, 4, 2, 40, 128},
             .headDim = 40,
             .headDimV = 24,
             .vInK = false,
             .lengths = {128, 65, 2, 0, 70},
             .pageSize = pageSize,
             .appends = appends,
             .rowMax = true,
             .isNaive = true,
             .cuSeqlens = {0, 1, 1, 4, 5, 45}});
}
