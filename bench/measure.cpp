#include "measure.h"

#include "reference/compare.h"
#include "support/element.h"
#include "support/parallel.h"
#include "tools/device/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <random>
#include <tuple>

namespace attnc::bench {
namespace {

int64_t elements(std::initializer_list<int64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t(1), std::multiplies<>());
}

} // namespace

double Bench::medianMs(const std::function<void()>& run) {
  return take(timer.medianMs(stream, [&] { return run(), Status(); }));
}

double Bench::graphMs(const std::function<void(int)>& run, int launches) {
  return take(timer.graphMs(
      stream, [&](int i) { return run(i), Status(); }, launches));
}

DeviceTensor allocate(DType dtype, std::initializer_list<int64_t> shape) {
  DeviceTensor tensor{take(device::Buffer::allocate(size_t(elements(shape) * dtypeBytes(dtype)))), {}};
  tensor.view = TensorView::contiguous(tensor.buffer.data(), dtype, shape);
  return tensor;
}

DeviceTensor allocateNaN(DType dtype, std::initializer_list<int64_t> shape) {
  DeviceTensor tensor = allocate(dtype, shape);
  take(tensor.buffer.fill(0xff));
  return tensor;
}

DeviceTensor allocateNaNLike(const DeviceTensor& tensor) {
  DeviceTensor like{take(device::Buffer::allocate(tensor.buffer.bytes())), tensor.view};
  like.view.data = like.buffer.data();
  take(like.buffer.fill(0xff));
  return like;
}

DeviceTensor upload(const void* values, DType dtype, std::initializer_list<int64_t> shape) {
  DeviceTensor tensor = allocate(dtype, shape);
  take(tensor.buffer.upload(values, tensor.buffer.bytes()));
  return tensor;
}

DeviceTensor drawNormal(DType dtype, std::initializer_list<int64_t> shape, uint64_t seed, float std,
                        std::optional<DType> roundedTo) {
  const int64_t count = elements(shape);
  const bool isFp8 = roundedTo.value_or(dtype) == DType::E4M3;
  std::vector<char> values(size_t(count * dtypeBytes(dtype)));
  std::mt19937_64 random(seed);
  const auto write = [&](int64_t i, float value) {
    writeElement(values.data(), dtype, i, isFp8 ? e4m3ToFloat(toE4m3(value)) : value);
  };
  device::drawOnAllCores(random, count, std::normal_distribution<float>(0, std), write, /*blockSize=*/1 << 20);
  return upload(values.data(), dtype, shape);
}

std::vector<uint16_t> download(const DeviceTensor& tensor) {
  std::vector<uint16_t> values(tensor.buffer.bytes() / 2);
  take(tensor.buffer.download(values.data(), tensor.buffer.bytes()));
  return values;
}

namespace {

/// The rows of a tensor that are compared, and with what.
struct ComparedRows {
  const char *name, *oracle;
  DType dtype;
  int64_t rows, width;
};

/// `actual` and `expected` return an element of a row, `numberOf` the row's number for messages.
template <class Actual, class Expected, class NumberOf>
double compareEach(const ComparedRows& of, const Actual& actual, const Expected& expected, const NumberOf& numberOf) {
  // An element is a sum of dS k, dS q, P dout or P v over the row or column; k, q, v and dout are independent of one
  // another. dS and P round once each, so the error of an element is at most the unit roundoff u, times a gaussian,
  // times the root mean square of its row. Both kernels round the result. A row below 2^-8 is compared as if it were
  // 2^-8: the f32 rounding error of a sum that cancels is below 1e-5.
  const double u = of.dtype == DType::F16 ? 0x1p-12 : 0x1p-9;
  const reference::Tolerance tolerance{.absolute = 12 * u, .relative = 4 * u};
  std::mutex mutex;
  double largest = 0;
  std::string bad;
  parallelFor(of.rows, [&](int64_t begin, int64_t end) {
    double largestHere = 0;
    std::string badHere;
    for (int64_t row = begin; row < end && badHere.empty(); ++row) {
      double squares = 0;
      for (int64_t i = 0; i < of.width; ++i) squares += expected(row, i) * expected(row, i);
      const double unit = std::max(std::sqrt(squares / double(of.width)), 0x1p-8);
      reference::Comparison comparison(tolerance);
      for (int64_t i = 0; i < of.width; ++i) comparison.add(actual(row, i) / unit, expected(row, i) / unit);
      largestHere = std::max(largestHere, comparison.maxError());
      if (!std::isfinite(squares))
        badHere = fmt::format("row {} of the {}'s {} is not finite", numberOf(row), of.oracle, of.name);
      else if (!comparison.holds())
        badHere = fmt::format("{} differs from the {}'s: row {}, in units of its RMS {:.3g}, {}", of.name, of.oracle,
                              numberOf(row), unit, comparison.firstBadText());
    }
    const std::lock_guard lock(mutex);
    largest = std::max(largest, largestHere);
    if (bad.empty()) bad = badHere;
  });
  if (!bad.empty()) throw std::runtime_error(bad);
  return largest;
}

} // namespace

double compareRows(const char* name, const DeviceTensor& actual, const DeviceTensor& expected) {
  const std::vector<uint16_t> x = download(actual), y = download(expected);
  const DType dtype = actual.view.dtype;
  const int64_t width = actual.view.shape[3];
  const auto of = [&](const std::vector<uint16_t>& values) {
    return [&values, dtype, width](int64_t row, int64_t column) {
      return readElement(values.data(), dtype, row * width + column).real;
    };
  };
  return compareEach({name, "naive kernel", dtype, int64_t(x.size()) / width, width}, of(x), of(y),
                     [](int64_t row) { return row; });
}

double compareSomeRows(const char* name, const TensorView& actual, const std::vector<int64_t>& rows,
                       const std::vector<double>& expected) {
  const auto& [shape, stride] = std::tie(actual.shape, actual.stride);
  const auto at = [&](int64_t i, int64_t column) {
    const int64_t row = rows[size_t(i)], head = row / shape[2];
    const int64_t offset = head / shape[1] * stride[0] + head % shape[1] * stride[1] + row % shape[2] * stride[2];
    return readElement(actual.data, actual.dtype, offset + column * stride[3]).real;
  };
  return compareEach(
      {name, "reference", actual.dtype, int64_t(rows.size()), shape[3]}, at,
      [&](int64_t i, int64_t column) { return expected[size_t(i * shape[3] + column)]; },
      [&](int64_t i) { return rows[size_t(i)]; });
}

namespace {

/// Draws [batch, heads, rows, head_dim]. For packed documents the memory layout is [rows, heads, head_dim].
DeviceTensor draw(const Case& c, DType dtype, std::array<int64_t, 3> shape, uint64_t seed, float std = 1) {
  const auto [batch, heads, rows] = shape;
  if (!c.packed) return drawNormal(dtype, {batch, heads, rows, c.headDim}, seed, std);
  DeviceTensor tensor = drawNormal(dtype, {batch, rows, heads, c.headDim}, seed, std);
  std::swap(tensor.view.shape[1], tensor.view.shape[2]);
  std::swap(tensor.view.stride[1], tensor.view.stride[2]);
  return tensor;
}

} // namespace

Workload::Workload(const Case& c, const std::string& mods) : mod(take(caseMod(c, mods))) {
  const ProblemShape& p = c.problem;
  host = device = mod.scalars;
  const auto capture = [&](const char* name, auto& values, DType dtype) {
    if (values.empty()) return;
    captured.push_back(upload(values.data(), dtype, {int64_t(values.size())}));
    device.set(name, captured.back().view);
    host.set(name, TensorView::contiguous(values.data(), dtype, {int64_t(values.size())}));
  };
  capture("slopes", mod.slopes, DType::F32);
  capture("document_id", mod.documentId, DType::I32);
  q = draw(c, c.dtype, {p.batch, p.qHeads, p.qLen}, 1, c.qStd);
  operands = {.q = q.view, .captures = &device};
  drawCache(c);
}

void Workload::drawCache(const Case& c) {
  const ProblemShape& p = c.problem;
  const DType dtype = c.fp8Kv ? DType::E4M3 : c.dtype;
  std::vector<int32_t> lengths = c.kvLengths;
  if (c.kind == "decode" || c.kind == "paged")
    liveBytes = liveColumns(mod, host, c) * p.kvHeads * 2 * c.headDim * dtypeBytes(dtype);
  if (c.kind == "decode") copies = std::clamp<int64_t>((int64_t(256) << 20) / std::max<int64_t>(liveBytes, 1), 1, 128);
  if (c.kind == "paged") {
    const int64_t ofSequence = (p.kvLen + c.pageSize - 1) / c.pageSize, pages = p.batch * ofSequence;
    std::vector<int32_t> table(static_cast<size_t>(pages));
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), std::mt19937_64(4));
    pageTable = upload(table.data(), DType::I32, {p.batch, ofSequence});
    operands.pageTable = pageTable.view;
    lengths.resize(size_t(p.batch), int32_t(p.kvLen));
    for (auto [tensor, view, seed] : {std::tuple(&k, &operands.k, 2), {&v, &operands.v, 3}}) {
      *tensor = drawNormal(dtype, {pages, c.pageSize, p.kvHeads, c.headDim}, uint64_t(seed));
      *view = tensor->view;
      std::swap(view->shape[1], view->shape[2]);
      std::swap(view->stride[1], view->stride[2]);
    }
  } else {
    k = draw(c, dtype, {copies * p.batch, p.kvHeads, p.kvLen}, 2);
    v = draw(c, dtype, {copies * p.batch, p.kvHeads, p.kvLen}, 3);
    operands.k = k.view, operands.v = v.view;
    operands.k.shape[0] = operands.v.shape[0] = p.batch;
  }
  if (c.packed) packDocuments(c);
  if (lengths.empty()) return;
  kvLengths = upload(lengths.data(), DType::I32, {int64_t(lengths.size())});
  operands.kvLengths = kvLengths.view;
}

void Workload::packDocuments(const Case& c) {
  std::vector<int32_t> starts{0};
  for (int64_t length : c.documentLengths) starts.push_back(starts.back() + int32_t(length));
  captured.push_back(upload(starts.data(), DType::I32, {int64_t(starts.size())}));
  const int64_t longest = *std::max_element(c.documentLengths.begin(), c.documentLengths.end());
  operands.cuSeqlensQ = captured.back().view;
  operands.maxQLen = operands.maxKvLen = longest;
}

Operands Workload::copy(int64_t i) const {
  Operands moved = operands;
  for (TensorView* tensor : {&moved.k, &moved.v})
    tensor->data =
        static_cast<char*>(tensor->data) + i * tensor->shape[0] * tensor->stride[0] * dtypeBytes(tensor->dtype);
  return moved;
}

double Workload::pairs(const Case& c) const {
  double packed = 0;
  for (int64_t length : c.documentLengths) {
    if (!c.packed) break;
    ProblemShape document = c.problem;
    document.qLen = document.kvLen = length;
    packed += double(unmaskedPairs(mod, host, document)) * double(document.qHeads);
  }
  if (c.packed) return packed;
  return double(unmaskedPairs(mod, host, c.problem)) * double(c.problem.batch * c.problem.qHeads);
}

} // namespace attnc::bench
