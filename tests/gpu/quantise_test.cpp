// Rounding to e4m3 against the same on the CPU, and what it costs attention over outliers.
#include "gpu.h"

#include "helpers/turns.h"

#include "attnc/quantise.h"
#include "support/element.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

using namespace attnc;
using namespace attnc::gputest;

namespace {

bool convertsFp8() {
  const std::string& arch = gpu()->context.info().arch;
  if (arch != "sm_80" && arch != "sm_86" && arch != "sm_87") return true;
  WARN("SKIPPED: " << arch << " converts no fp8");
  return false;
}

/// Draws N(0, 1) with a thousandth of outliers, N(0, 100), as FlashAttention-3 does (arXiv:2407.08608, section 4.3).
cli::HostTensor drawOutliers(DType dtype, std::vector<int64_t> shape, uint64_t seed) {
  cli::HostTensor tensor = cli::HostTensor::make(dtype, std::move(shape));
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::bernoulli_distribution isOutlier(0.001);
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    double value = normal(random);
    if (isOutlier(random)) value += 10 * normal(random);
    writeElement(tensor.bytes.data(), dtype, i, value);
  }
  return tensor;
}

struct Quantised {
  cli::HostTensor values, scales;
};

enum class ScalesOf { Heads, Blocks, Rows };

/// `given`: scales that are read.
Quantised quantise(const cli::HostTensor& x, ScalesOf of, const QuantiseOptions& options,
                   const cli::HostTensor* given = nullptr) {
  const auto upload = [](const cli::HostTensor& tensor) {
    device::Buffer buffer = take(device::Buffer::allocate(tensor.bytes.size()));
    take(buffer.upload(tensor.bytes.data(), tensor.bytes.size()));
    return buffer;
  };
  std::vector<int64_t> shape = {x.shape[0], x.shape[1]};
  if (of == ScalesOf::Blocks) shape.push_back((x.shape[2] + kRowsOfScale - 1) / kRowsOfScale);
  if (of == ScalesOf::Rows) shape.push_back(x.shape[2]);
  Quantised result{cli::HostTensor::make(DType::E4M3, x.shape), cli::HostTensor::make(DType::F32, shape)};
  if (given) result.scales = *given;
  const device::Buffer in = upload(x), out = upload(result.values), scales = upload(result.scales);
  TensorView views[] = {x.view(), result.values.view(), result.scales.view()};
  views[0].data = in.data(), views[1].data = out.data(), views[2].data = scales.data();
  QuantiseOptions onGpu = options;
  std::vector<device::Buffer> buffers;
  for (std::optional<TensorView>* tensor : {&onGpu.cosSin, &onGpu.positions})
    if (*tensor) {
      TensorView& view = **tensor; // dense
      const size_t bytes = size_t(view.elements() * dtypeBytes(view.dtype));
      buffers.push_back(take(device::Buffer::allocate(bytes)));
      take(buffers.back().upload(view.data, bytes));
      view.data = buffers.back().data();
    }
  const Quantiser quantiser = take(Quantiser::load(gpu()->compiler, x.dtype, int(x.shape[3])));
  for (int launch = 0; launch < 2; ++launch) // the second finds the first one's scales
    take(quantiser.launch(views[0], views[1], views[2], onGpu, gpu()->stream.get()));
  take(gpu()->stream.synchronize());
  take(out.download(result.values.bytes.data(), result.values.bytes.size()));
  take(scales.download(result.scales.bytes.data(), result.scales.bytes.size()));
  return result;
}

double at(const cli::HostTensor& tensor, int64_t i) {
  return double(readElement(tensor.bytes.data(), tensor.dtype, i).real);
}

/// Checks values by those of the CPU. A rotated value that lies between two steps may go to either.
void checkValues(const cli::HostTensor& found, const cli::HostTensor& values, const QuantiseOptions& options) {
  int64_t differ = 0;
  for (int64_t i = 0; i < values.elements(); ++i) {
    differ += at(found, i) != at(values, i);
    REQUIRE(std::fabs(at(found, i) - at(values, i)) <= std::max(std::fabs(at(values, i)) / 8, 0x1p-9));
  }
  REQUIRE(differ <= (options.rotates || options.cosSin ? values.elements() / 1000 + 1 : 0));
}

/// Checks a result by the same on the CPU.
void checkByCpu(const cli::HostTensor& x, const Quantised& found, const QuantiseOptions& options) {
  const cli::HostTensor values = cli::HostTensor::make(DType::E4M3, x.shape),
                        scales = cli::HostTensor::make(DType::F32, found.scales.shape);
  take(quantiseOnCpu(x.view(), values.view(), scales.view(), options));
  for (int64_t i = 0; i < scales.elements(); ++i) REQUIRE(std::fabs(at(found.scales, i) / at(scales, i) - 1) < 1e-6);
  checkValues(found.values, values, options);
}

/// Returns the values times their scales.
std::vector<double> dequantised(const Quantised& q) {
  const auto& shape = q.values.shape;
  const int64_t blocks = q.scales.shape.size() == 3 ? q.scales.shape[2] : 1;
  std::vector<double> values = toDoubles(q.values);
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t row = int64_t(i) / shape[3] % shape[2], head = int64_t(i) / shape[3] / shape[2];
    values[i] *=
        readElement(q.scales.bytes.data(), DType::F32, head * blocks + (blocks > 1 ? row / kRowsOfScale : 0)).real;
  }
  return values;
}

double rms(const std::vector<double>& values) {
  double squares = 0;
  for (double value : values) squares += value * value;
  return std::sqrt(squares / double(values.size()));
}

double rmse(std::vector<double> a, const std::vector<double>& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return rms(a);
}

} // namespace

GPU_TEST_CASE("rows are rounded to e4m3 by the largest of their head or block, or each by its own", "[gpu]") {
  if (!convertsFp8()) return;
  for (DType dtype : {DType::BF16, DType::F16, DType::F32})
    for (int64_t width : {8, 64, 80, 128, 256})
      for (int64_t rows : {1, 127, 300}) {
        INFO(dtypeName(dtype) << ", " << rows << " x " << width);
        const cli::HostTensor x = drawOutliers(dtype, {2, 3, rows, width}, 7);
        const std::vector<double> values = toDoubles(x);
        for (ScalesOf of : {ScalesOf::Heads, ScalesOf::Blocks, ScalesOf::Rows}) {
          const Quantised q = quantise(x, of, {});
          checkByCpu(x, q, {});
          checkByCpu(x, quantise(x, of, {true, 9}), {true, 9});
          checkByCpu(x, quantise(x, of, {.scaleBits = 4}), {.scaleBits = 4});
          const int64_t span = of == ScalesOf::Heads ? rows : of == ScalesOf::Blocks ? kRowsOfScale : 1;
          const int64_t blocks = (rows + span - 1) / span;
          for (int64_t head = 0; head < 6; ++head)
            for (int64_t block = 0; block < blocks; ++block) {
              const int64_t first = (head * rows + block * span) * width,
                            end = (head * rows + std::min(rows, (block + 1) * span)) * width;
              double largest = 0;
              for (int64_t i = first; i < end; ++i) largest = std::max(largest, std::fabs(values[size_t(i)]));
              const float scale = float(largest) / 448.f;
              REQUIRE(readElement(q.scales.bytes.data(), DType::F32, head * blocks + block).real == scale);
              for (int64_t i = first; i < end; ++i) {
                const double got = readElement(q.values.bytes.data(), DType::E4M3, i).real,
                             x = values[size_t(i)] / scale;
                REQUIRE(std::fabs(got - x) <= std::max(std::fabs(x) * 0x1.001p-4, 0x1.001p-10));
              }
            }
        }
      }
}

GPU_TEST_CASE("rows are rounded to e4m3 by scales that are given", "[gpu]") {
  if (!convertsFp8()) return;
  for (DType dtype : {DType::BF16, DType::F16, DType::F32})
    for (int64_t width : {16, 128, 256})
      for (int64_t rows : {1, 300}) {
        INFO(dtypeName(dtype) << ", " << rows << " x " << width);
        cli::HostTensor x = drawOutliers(dtype, {2, 3, rows, width}, 7);
        writeElement(x.bytes.data(), dtype, 5, -6e4); // saturates
        cli::HostTensor scales = cli::HostTensor::make(DType::F32, {2, 3});
        for (int64_t i = 0; i < 6; ++i)
          writeElement(scales.bytes.data(), DType::F32, i, i == 3 ? 1 : 0.1 * double(i + 1));
        for (const QuantiseOptions& options :
             {QuantiseOptions{.readsScales = true}, {.rotates = true, .seed = 9, .readsScales = true}}) {
          const Quantised found = quantise(x, ScalesOf::Heads, options, &scales);
          REQUIRE((found.scales.bytes == scales.bytes));
          cli::HostTensor values = cli::HostTensor::make(DType::E4M3, x.shape);
          take(quantiseOnCpu(x.view(), values.view(), scales.view(), options));
          checkValues(found.values, values, options);
        }
      }
}

GPU_TEST_CASE("rows get a rotary embedding before they are rounded", "[gpu]") {
  if (!convertsFp8()) return;
  for (DType dtype : {DType::BF16, DType::F16, DType::F32})
    for (DType ofTable : {DType::F32, dtype})
      for (const auto& [width, columns] : {std::pair{8, 8}, {64, 64}, {80, 32}, {128, 128}, {192, 64}, {256, 256}})
        for (bool interleaved : {false, true})
          for (DType ofPositions : {DType::Bool, DType::I32, DType::I64}) { // Bool: none
            if (!test::isCaseDue()) continue;
            INFO(dtypeName(dtype) << ", " << columns << " of " << width << " columns, table " << dtypeName(ofTable)
                                  << ", positions " << dtypeName(ofPositions) << (interleaved ? ", interleaved" : ""));
            const cli::HostTensor x = drawOutliers(dtype, {2, 3, 300, width}, 7);
            cli::HostTensor table = cli::HostTensor::make(ofTable, {1000, columns});
            for (int64_t i = 0; i < table.elements(); ++i) {
              const int64_t pair = i % columns % (columns / 2);
              const double angle = double(i / columns) * std::pow(10000, -2 * double(pair) / columns);
              writeElement(table.bytes.data(), ofTable, i, pair == i % columns ? std::cos(angle) : std::sin(angle));
            }
            QuantiseOptions options{.seed = 9, .cosSin = table.view(), .interleaved = interleaved};
            cli::HostTensor positions = cli::HostTensor::make(DType::I64, {2, 300});
            for (int64_t i = 0; i < 600; ++i) {
              const int64_t position = i * 37 % 1100 - 20; // some outside the table
              if (ofPositions == DType::I64)
                reinterpret_cast<int64_t*>(positions.bytes.data())[i] = position;
              else
                reinterpret_cast<int32_t*>(positions.bytes.data())[i] = int32_t(position);
            }
            if (ofPositions != DType::Bool)
              options.positions = TensorView::contiguous(positions.bytes.data(), ofPositions, {2, 300});
            for (ScalesOf of : {ScalesOf::Heads, ScalesOf::Blocks, ScalesOf::Rows})
              for (bool rotates : {false, true}) {
                options.rotates = rotates;
                checkByCpu(x, quantise(x, of, options), options);
              }
          }
}

GPU_TEST_CASE("a rotation keeps products, and spreads outliers", "[gpu]") {
  if (!convertsFp8()) return;
  for (int64_t width : {64, 96, 128, 256}) {
    INFO(width);
    const cli::HostTensor q = drawOutliers(DType::F32, {1, 1, 256, width}, 1),
                          k = drawOutliers(DType::F32, {1, 1, 256, width}, 2);
    const auto products = [&](const std::vector<double>& a, const std::vector<double>& b) {
      std::vector<double> all;
      for (int64_t i = 0; i < 256; ++i) {
        double sum = 0;
        for (int64_t d = 0; d < width; ++d) sum += a[size_t(i * width + d)] * b[size_t(i * width + d)];
        all.push_back(sum);
      }
      return all;
    };
    const std::vector<double> exact = products(toDoubles(q), toDoubles(k));
    const auto error = [&](const QuantiseOptions& ofQ, const QuantiseOptions& ofK) {
      return rmse(products(dequantised(quantise(q, ScalesOf::Heads, ofQ)),
                           dequantised(quantise(k, ScalesOf::Heads, ofK))),
                  exact) /
             rms(exact);
    };
    const double plain = error({}, {}), rotated = error({true, 3}, {true, 3});
    INFO("plain " << plain << ", rotated " << rotated);
    CHECK(rotated < 0.1);
    CHECK(rotated < 1.2 * plain);
    CHECK(error({true, 3}, {true, 4}) > 0.5); // other signs
  }
}

GPU_TEST_CASE("rotations lessen the error of attention over outliers", "[gpu]") {
  if (gpu()->context.info().arch != "sm_90a") return;
  const Problem problem{{1, 8, 8, 1024, 1024}, 128, 128, DType::BF16};
  HostOperands operands;
  operands.q = drawOutliers(DType::F32, {1, 8, 1024, 128}, 1);
  operands.k = drawOutliers(DType::F32, {1, 8, 1024, 128}, 2);
  operands.v = drawOutliers(DType::F32, {1, 8, 1024, 128}, 3);
  const Outcome exact = runReference(Mod::identity(), problem, operands);
  const auto error = [&](ScalesOf of, bool rotates) {
    HostOperands rounded;
    for (auto [x, values, scales] : {std::tuple(&operands.q, &rounded.q, &rounded.qScales),
                                     {&operands.k, &rounded.k, &rounded.kScales},
                                     {&operands.v, &rounded.v, &rounded.vScales}}) {
      Quantised q = quantise(*x, of, {rotates && x != &operands.v, 1});
      *values = std::move(q.values);
      *scales = std::move(q.scales);
    }
    return rmse(runKernel(Mod::identity(), problem, rounded, {.family = Family::Sm90, .decode = false}).out, exact.out);
  };
  const double heads = error(ScalesOf::Heads, false), headsRotated = error(ScalesOf::Heads, true),
               blocks = error(ScalesOf::Blocks, false), blocksRotated = error(ScalesOf::Blocks, true),
               rows = error(ScalesOf::Rows, false);
  WARN("RMSE, scales of heads " << heads << ", rotated " << headsRotated << "; of blocks " << blocks << ", rotated "
                                << blocksRotated << "; of rows " << rows << "; size of out " << rms(exact.out));
  CHECK(headsRotated < heads);
  CHECK(blocksRotated < blocks);
  CHECK(rows < blocks);
}
