#include "measure.h"

#include "ir/element.h"
#include "reference/parallel.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <thread>

namespace attnc::bench {
namespace {

int64_t elements(std::initializer_list<int64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t(1), std::multiplies<>());
}

} // namespace

double Bench::medianMs(const std::function<void()>& run) {
  const device::Event begin = take(device::Event::create()), end = take(device::Event::create());
  std::vector<float> times;
  constexpr float kWarmUpMs = 20, kMeasureMs = 60; // of kernel time: clocks rise, and then settle
  for (float spent = 0; times.size() < 5 || (spent < kWarmUpMs + kMeasureMs && times.size() < 500);) {
    take(flush.fillAsync(uint8_t(times.size()), stream.get()));
    take(begin.record(stream.get()));
    run();
    take(end.record(stream.get()));
    take(end.synchronize());
    const float ms = take(end.msSince(begin));
    if (spent >= kWarmUpMs) times.push_back(ms);
    spent += ms;
  }
  std::nth_element(times.begin(), times.begin() + long(times.size() / 2), times.end());
  return times[times.size() / 2];
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

DeviceTensor drawNormal(DType dtype, std::initializer_list<int64_t> shape, uint64_t seed, float std) {
  const int64_t count = elements(shape);
  std::vector<uint16_t> values(static_cast<size_t>(count));
  const int64_t streams = std::max(1u, std::thread::hardware_concurrency());
  reference::parallelFor(streams, [&](int64_t first, int64_t last) {
    for (int64_t s = first; s < last; ++s) {
      std::mt19937_64 bits(seed * 1000 + uint64_t(s));
      std::normal_distribution<float> normal(0, std);
      for (int64_t i = count * s / streams; i < count * (s + 1) / streams; ++i)
        values[size_t(i)] = dtype == DType::F16 ? ir::toF16(normal(bits)) : ir::toBf16(normal(bits));
    }
  });
  return upload(values.data(), dtype, shape);
}

std::vector<uint16_t> download(const DeviceTensor& tensor) {
  std::vector<uint16_t> values(tensor.buffer.bytes() / 2);
  take(tensor.buffer.download(values.data(), tensor.buffer.bytes()));
  return values;
}

Workload::Workload(const Case& c, const std::string& mods) : mod(take(caseMod(c, mods))) {
  const ProblemShape& p = c.problem;
  const auto draw = [&](int64_t heads, int64_t rows, uint64_t seed, float std = 1) {
    if (!c.packed) return drawNormal(c.dtype, {p.batch, heads, rows, c.headDim}, seed, std);
    DeviceTensor tensor = drawNormal(c.dtype, {p.batch, rows, heads, c.headDim}, seed, std);
    std::swap(tensor.view.shape[1], tensor.view.shape[2]);
    std::swap(tensor.view.stride[1], tensor.view.stride[2]);
    return tensor;
  };
  q = draw(p.qHeads, p.qLen, 1, c.qStd);
  k = draw(p.kvHeads, p.kvLen, 2);
  v = draw(p.kvHeads, p.kvLen, 3);
  host = device = mod.scalars;
  const auto capture = [&](const char* name, auto& values, DType dtype) {
    if (values.empty()) return;
    captured.push_back(upload(values.data(), dtype, {int64_t(values.size())}));
    device.set(name, captured.back().view);
    host.set(name, TensorView::contiguous(values.data(), dtype, {int64_t(values.size())}));
  };
  capture("slopes", mod.slopes, DType::F32);
  capture("document_id", mod.documentId, DType::I32);
  operands = {.q = q.view, .k = k.view, .v = v.view, .captures = &device};
  if (!c.packed) return;
  std::vector<int32_t> starts{0};
  for (int64_t length : c.documentLengths) starts.push_back(starts.back() + int32_t(length));
  captured.push_back(upload(starts.data(), DType::I32, {int64_t(starts.size())}));
  const int64_t longest = *std::max_element(c.documentLengths.begin(), c.documentLengths.end());
  operands.ragged =
      RaggedBatch{.cuSeqlensQ = captured.back().view, .cuSeqlensKv = {}, .maxQLen = longest, .maxKvLen = longest};
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
