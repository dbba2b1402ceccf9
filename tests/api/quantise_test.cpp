// Rounding to e4m3 on the CPU.
#include "attnc/operands.h"
#include "attnc/quantise.h"
#include "helpers/take.h"
#include "support/element.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <complex>
#include <optional>
#include <random>
#include <vector>

using namespace attnc;
using Catch::Contains;

namespace {

/// Rows of two batch entries of three heads, which lie as [B, L, H, D], and what they are rounded to.
struct Rounding {
  int64_t rows, columns;
  DType dtype;
  int64_t span; // rows that share a scale; 0: all of a head
  std::vector<double> x;
  std::vector<char> in, out;
  std::vector<float> scales;

  Rounding(int64_t rows, int64_t columns, DType dtype, int64_t span, double size = 1)
      : rows(rows), columns(columns), dtype(dtype), span(span), in(size_t(6 * rows * columns * 4)),
        out(size_t(6 * rows * columns), 0x7f), scales(size_t(6 * blocks()), NAN) {
    std::mt19937_64 random(3);
    std::normal_distribution<double> normal(0, size);
    std::bernoulli_distribution isOutlier(0.01);
    for (int64_t i = 0; i < 6 * rows * columns; ++i) {
      writeElement(in.data(), dtype, i, isOutlier(random) ? 20 * normal(random) : normal(random));
      x.push_back(readElement(in.data(), dtype, i).real);
    }
  }
  int64_t blocks() const { return span ? (rows + span - 1) / span : 1; }
  int64_t place(int64_t head, int64_t row) const { return ((head / 3 * rows + row) * 3 + head % 3) * columns; }
  float scale(int64_t head, int64_t row) const { return scales[size_t(head * blocks() + (span ? row / span : 0))]; }
  TensorView view(void* data, DType of) const {
    TensorView tensor = TensorView::contiguous(data, of, {2, rows, 3, columns});
    std::swap(tensor.shape[1], tensor.shape[2]);
    std::swap(tensor.stride[1], tensor.stride[2]);
    return tensor;
  }
  TensorView scalesView() {
    return span ? TensorView::contiguous(scales.data(), DType::F32, {2, 3, blocks()})
                : TensorView::contiguous(scales.data(), DType::F32, {2, 3});
  }
  Status run(const QuantiseOptions& options) {
    return quantiseOnCpu(view(in.data(), dtype), view(out.data(), DType::E4M3), scalesView(), options);
  }
  double value(int64_t head, int64_t row, int64_t column) const {
    return double(e4m3ToFloat(uint8_t(out[size_t(place(head, row) + column)]))) * double(scale(head, row));
  }
};

/// A table of cosines and sines, in rows that lie apart.
struct Table {
  static constexpr int64_t kPositions = 70;
  int64_t columns;
  DType dtype;
  std::vector<char> bytes;

  Table(int64_t columns, DType dtype) : columns(columns), dtype(dtype), bytes(size_t(kPositions * 2 * columns * 4)) {
    for (int64_t position = 0; position < kPositions; ++position)
      for (int64_t pair = 0; pair < columns / 2; ++pair) {
        const double angle = double(position) * std::pow(100, -2 * double(pair) / double(columns));
        writeElement(bytes.data(), dtype, position * 2 * columns + pair, std::cos(angle));
        writeElement(bytes.data(), dtype, position * 2 * columns + columns / 2 + pair, std::sin(angle));
      }
  }
  TensorView view() {
    TensorView table = TensorView::contiguous(bytes.data(), dtype, {kPositions, columns});
    table.stride[0] = 2 * columns;
    return table;
  }
  std::complex<double> factor(int64_t position, int64_t pair) const {
    const int64_t at = position * 2 * columns + pair;
    return {readElement(bytes.data(), dtype, at).real, readElement(bytes.data(), dtype, at + columns / 2).real};
  }
  /// Returns the rotary embedding of a row in fp64: pairs are complex numbers, and are multiplied by unit ones.
  std::vector<double> embedded(const double* row, int64_t width, int64_t position, bool interleaved) const {
    std::vector<double> y(row, row + width);
    for (int64_t pair = 0; pair < columns / 2; ++pair) {
      const int64_t first = interleaved ? 2 * pair : pair, second = interleaved ? first + 1 : first + columns / 2;
      const std::complex<double> z = std::complex<double>(row[first], row[second]) * factor(position, pair);
      y[size_t(first)] = z.real(), y[size_t(second)] = z.imag();
    }
    return y;
  }
};

} // namespace

TEST_CASE("rows are rounded by the largest of their head or block, or each by its own", "[api]") {
  for (DType dtype : {DType::F32, DType::F16, DType::BF16})
    for (int64_t columns : {8, 72, 128})
      for (int64_t rows : {1, 128, 300})
        for (int64_t span : {0, kRowsOfScale, 1}) {
          INFO(dtypeName(dtype) << " " << rows << " x " << columns << " by " << span);
          Rounding r(rows, columns, dtype, span);
          REQUIRE(r.run({}));
          for (int64_t head = 0; head < 6; ++head)
            for (int64_t row = 0; row < rows; ++row) {
              const int64_t first = span ? row / span * span : 0, end = span ? std::min(first + span, rows) : rows;
              double largest = 0;
              if (row == first)
                for (int64_t i = first; i < end; ++i)
                  for (int64_t column = 0; column < columns; ++column)
                    largest = std::max(largest, std::fabs(r.x[size_t(r.place(head, i) + column)]));
              if (row == first) REQUIRE(r.scale(head, row) == float(largest) / 448.f);
              for (int64_t column = 0; column < columns; ++column) {
                const double want = r.x[size_t(r.place(head, row) + column)], unit = double(r.scale(head, row));
                REQUIRE(std::fabs(r.value(head, row, column) - want) <=
                        std::max(std::fabs(want) * 0x1.001p-4, unit * 0x1.001p-10));
              }
            }
        }
}

TEST_CASE("scales of few bits leave products exact in bf16", "[api]") {
  for (int bits : {1, 2, 4, 24})
    for (double size : {1e-30, 1.0, 3e5}) {
      Rounding all(300, 72, DType::F32, kRowsOfScale, size), r = all;
      REQUIRE(all.run({.seed = 1}));
      REQUIRE(r.run({.scaleBits = bits}));
      for (int64_t head = 0; head < 6; ++head)
        for (int64_t row = 0; row < 300; ++row) {
          const double scale = double(r.scale(head, row)), least = double(all.scale(head, row));
          int exponent;
          const double digits = std::ldexp(std::frexp(scale, &exponent), bits);
          REQUIRE(digits == std::floor(digits));
          REQUIRE(scale >= least);
          REQUIRE(scale < least * (1 + std::ldexp(1, 1 - bits)) * (1 + 0x1p-23));
          for (int64_t column = 0; column < 72; ++column) {
            const double want = r.x[size_t(r.place(head, row) + column)], is = r.value(head, row, column);
            REQUIRE(std::fabs(is - want) <= std::max(std::fabs(want) * 0x1.001p-4, scale * 0x1.001p-10));
            char half[2];
            writeElement(half, DType::BF16, 0, is);
            if (bits <= 4) REQUIRE(readElement(half, DType::BF16, 0).real == is);
          }
        }
    }
  Rounding r(3, 8, DType::F32, 0);
  for (int bits : {-1, 25}) CHECK_FALSE(r.run({.scaleBits = bits}));
}

TEST_CASE("a rotation keeps lengths and products, and spreads outliers", "[api]") {
  for (int64_t columns : {64, 96, 128}) {
    INFO(columns);
    Rounding a(40, columns, DType::F32, 0), b(40, columns, DType::F32, 0, 3), other(40, columns, DType::F32, 0, 3);
    REQUIRE(a.run({true, 7}));
    REQUIRE(b.run({true, 7}));
    REQUIRE(other.run({true, 8}));
    double squares = 0, error = 0, errorOfOther = 0;
    for (int64_t head = 0; head < 6; ++head)
      for (int64_t row = 0; row < 40; ++row) {
        double want = 0, found = 0, foundOfOther = 0;
        for (int64_t column = 0; column < columns; ++column) {
          want += a.x[size_t(a.place(head, row) + column)] * b.x[size_t(b.place(head, 39 - row) + column)];
          found += a.value(head, row, column) * b.value(head, 39 - row, column);
          foundOfOther += a.value(head, row, column) * other.value(head, 39 - row, column);
        }
        squares += want * want;
        error += (found - want) * (found - want);
        errorOfOther += (foundOfOther - want) * (foundOfOther - want);
      }
    CHECK(std::sqrt(error / squares) < 0.1);
    CHECK(std::sqrt(errorOfOther / squares) > 0.5);
    Rounding plain(40, columns, DType::F32, 0);
    REQUIRE(plain.run({}));
    CHECK(a.scale(0, 0) < plain.scale(0, 0)); // the largest element is smaller
  }
}

TEST_CASE("a rotary embedding is that of fp64", "[api]") {
  struct Shape {
    int64_t width, columns;
  };
  for (DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (DType ofTable : {DType::F32, dtype})
      for (const Shape shape : {Shape{8, 8}, {72, 40}, {128, 128}, {256, 64}})
        for (bool interleaved : {false, true})
          for (DType ofPositions : {DType::Bool, DType::I32, DType::I64}) { // Bool: none
            INFO(dtypeName(dtype) << " " << shape.columns << " of " << shape.width << ", table " << dtypeName(ofTable)
                                  << ", positions " << dtypeName(ofPositions) << (interleaved ? ", interleaved" : ""));
            constexpr int64_t kRows = 50;
            Rounding r(kRows, shape.width, dtype, 1);
            Table table(shape.columns, ofTable);
            QuantiseOptions options{.cosSin = table.view(), .interleaved = interleaved};
            std::vector<int64_t> positions(2 * kRows);
            std::vector<char> given(size_t(2 * 2 * kRows) * 8);
            const bool isShared = ofPositions == DType::I64; // by both batch entries
            for (int64_t i = 0; i < 2 * kRows; ++i) {
              const int64_t of = isShared ? i % kRows : i, position = of == 3 ? -7 : of == 4 ? 1 << 30 : of * 37 % 70;
              positions[size_t(i)] =
                  ofPositions == DType::Bool ? i % kRows : std::clamp<int64_t>(position, 0, Table::kPositions - 1);
              if (ofPositions == DType::I32) writeElement(given.data(), DType::I32, 2 * i, double(position));
              if (isShared) reinterpret_cast<int64_t*>(given.data())[2 * i] = position;
            }
            if (ofPositions != DType::Bool) {
              options.positions = TensorView::contiguous(given.data(), ofPositions, {2, kRows});
              options.positions->stride = {isShared ? 0 : 2 * kRows, 2};
            }
            REQUIRE(r.run(options));
            for (int64_t head = 0; head < 6; ++head)
              for (int64_t row = 0; row < kRows; ++row) {
                const std::vector<double> want = table.embedded(&r.x[size_t(r.place(head, row))], shape.width,
                                                                positions[size_t(head / 3 * kRows + row)], interleaved);
                double largest = 0;
                for (double y : want) largest = std::max(largest, std::fabs(y));
                const double unit = double(r.scale(head, row));
                REQUIRE(std::fabs(unit * 448 / largest - 1) < 1e-6);
                for (int64_t column = 0; column < shape.width; ++column)
                  REQUIRE(std::fabs(r.value(head, row, column) - want[size_t(column)]) <=
                          std::max(std::fabs(want[size_t(column)]) * 0x1.001p-4, unit * 0x1.01p-10));
              }
          }
}

TEST_CASE("signs and a Hadamard matrix keep products of embedded rows", "[api]") {
  for (bool interleaved : {false, true}) {
    Rounding q(40, 96, DType::F32, 1), k(40, 96, DType::F32, 1, 3);
    Table table(48, DType::F32);
    const QuantiseOptions options{.rotates = true, .seed = 5, .cosSin = table.view(), .interleaved = interleaved};
    REQUIRE(q.run(options));
    REQUIRE(k.run(options));
    double squares = 0, error = 0, errorOfPlain = 0;
    for (int64_t head = 0; head < 6; ++head)
      for (int64_t row = 0; row < 40; ++row) {
        const int64_t other = 39 - row;
        const double *const ofQ = &q.x[size_t(q.place(head, row))], *const ofK = &k.x[size_t(k.place(head, other))];
        const std::vector<double> a = table.embedded(ofQ, 96, row, interleaved),
                                  b = table.embedded(ofK, 96, other, interleaved);
        double want = 0, plain = 0, found = 0;
        for (int64_t column = 0; column < 96; ++column) {
          want += a[size_t(column)] * b[size_t(column)];
          plain += ofQ[column] * ofK[column];
          found += q.value(head, row, column) * k.value(head, other, column);
        }
        squares += want * want, error += (found - want) * (found - want);
        errorOfPlain += (found - plain) * (found - plain);
      }
    CHECK(std::sqrt(error / squares) < 0.1);
    CHECK(std::sqrt(errorOfPlain / squares) > 0.3); // the embedding changes products
  }
}

TEST_CASE("rows are rounded by scales that are given", "[api]") {
  for (DType dtype : {DType::F32, DType::BF16})
    for (float unit : {1.f, 0.25f, 0.3f})
      for (bool isOne : {true, false}) {
        INFO(dtypeName(dtype) << " by " << unit << (isOne ? ", one" : ", of heads"));
        Rounding r(130, 24, dtype, 0);
        const bool isExact = unit != 0.3f;
        std::vector<float> given = {unit, NAN, 2 * unit, NAN, 4 * unit, NAN};
        TensorView scales = TensorView::contiguous(given.data(), DType::F32, {2, 3});
        scales.stride[0] = 0, scales.stride[1] = isOne ? 0 : 2;
        const auto view = [&](std::vector<char>& bytes, DType of) { return r.view(bytes.data(), of); };
        const QuantiseOptions options{.readsScales = true};
        const TensorView x = view(r.in, dtype), out = view(r.out, DType::E4M3);
        writeElement(r.in.data(), dtype, 0, r.x[0] = 1e6);
        REQUIRE(quantiseOnCpu(x, out, scales, options));
        CHECK((given[0] == unit && given[2] == 2 * unit && given[4] == 4 * unit));
        for (int64_t head = 0; head < 6; ++head) {
          const float scale = isOne ? unit : given[size_t(head % 3 * 2)];
          for (int64_t row = 0; row < 130; ++row)
            for (int64_t column = 0; column < 24; ++column) {
              const int64_t place = r.place(head, row) + column;
              const float quotient = std::clamp(float(r.x[size_t(place)]) / scale, -448.f, 448.f);
              const double found = double(e4m3ToFloat(uint8_t(r.out[size_t(place)])));
              char nearest;
              writeElement(&nearest, DType::E4M3, 0, double(quotient));
              if (isExact) REQUIRE(nearest == r.out[size_t(place)]);
              REQUIRE(std::fabs(found - double(quotient)) <=
                      std::max(std::fabs(double(quotient)) * 0x1.001p-4, 0x1.001p-10));
            }
        }
        Rounding rotated(130, 24, dtype, 0);
        REQUIRE(rotated.run({.rotates = true, .seed = 1}));
        const std::vector<char> wanted = rotated.out;
        const QuantiseOptions again{.rotates = true, .seed = 1, .readsScales = true};
        REQUIRE(rotated.run(again));
        REQUIRE((rotated.out == wanted));
      }
  Rounding none(0, 8, DType::F32, 0);
  none.scales[0] = 7;
  REQUIRE(none.run({.readsScales = true}));
  CHECK(none.scales[0] == 7);
}

TEST_CASE("zeros, tiny and no rows are rounded", "[api]") {
  Rounding zeros(5, 8, DType::F32, kRowsOfScale, 0);
  REQUIRE(zeros.run({true, 1}));
  CHECK(zeros.scale(0, 0) == 0x1p-64f);
  CHECK(zeros.value(5, 4, 7) == 0);
  Rounding tiny(5, 8, DType::F32, 0, 1e-38);
  REQUIRE(tiny.run({}));
  CHECK(tiny.scale(0, 0) == 0x1p-64f);
  Rounding none(0, 8, DType::F32, kRowsOfScale);
  CHECK(none.run({}));
}

TEST_CASE("tensors that do not fit each other are not rounded", "[api]") {
  Rounding r(10, 16, DType::F32, 0);
  const auto message = [](const Status& status) {
    REQUIRE_FALSE(status);
    return status.error().message;
  };
  const TensorView x = r.view(r.in.data(), DType::F32), out = r.view(r.out.data(), DType::E4M3);
  TensorView wrong = r.scalesView();
  wrong.shape[1] = 4;
  CHECK_THAT(message(quantiseOnCpu(x, out, wrong, {})), Contains("scales are not f32 [2, 3], [2, 3, 1] or [2, 3, 10]"));
  CHECK_THAT(message(quantiseOnCpu(x, out, wrong, {.readsScales = true})),
             Contains("scales are given, and not f32 [2, 3]"));
  CHECK_THAT(message(quantiseOnCpu(x, out, r.scalesView(), {.scaleBits = 4, .readsScales = true})),
             Contains("scale_bits is 4, and scales are given"));
  Rounding rows(10, 16, DType::F32, 1);
  CHECK_FALSE(rows.run({.readsScales = true}));
  wrong = r.scalesView();
  wrong.data = nullptr;
  CHECK_THAT(message(quantiseOnCpu(x, out, wrong, {.readsScales = true})), Contains("scales are null"));
  CHECK_THAT(message(quantiseOnCpu(x, x, r.scalesView(), {})), Contains("out is f32"));
  CHECK_THAT(message(quantiseOnCpu(out, out, r.scalesView(), {})), Contains("tensors of e4m3 are not rounded"));
  wrong = x;
  wrong.rank = 3;
  CHECK_THAT(message(quantiseOnCpu(wrong, out, r.scalesView(), {})), Contains("x has rank 3"));
  wrong = out;
  wrong.stride[3] = 2;
  CHECK_THAT(message(quantiseOnCpu(x, wrong, r.scalesView(), {})), Contains("out has a last stride that is not 1"));
  wrong = x;
  wrong.data = nullptr;
  CHECK_THAT(message(quantiseOnCpu(wrong, out, r.scalesView(), {})), Contains("x is null"));
}

TEST_CASE("rotary embeddings that do not fit are refused", "[api]") {
  Rounding r(10, 16, DType::F16, 0);
  std::vector<float> memory(10 * 16);
  std::vector<int32_t> numbers(20);
  const TensorView table = TensorView::contiguous(memory.data(), DType::F32, {10, 16}),
                   positions = TensorView::contiguous(numbers.data(), DType::I32, {2, 10});
  const auto refused = [&](std::optional<TensorView> cosSin, std::optional<TensorView> of, const char* text) {
    CHECK_THAT(refusalOf(r.run({.cosSin = cosSin, .positions = of})).message, Contains(text));
  };
  REQUIRE(r.run({.cosSin = table, .positions = positions}));
  refused({}, positions, "without cos_sin");
  CHECK_FALSE(r.run({.interleaved = true}));
  const auto changed = [](TensorView tensor, const auto& change) {
    change(tensor);
    return tensor;
  };
  refused(changed(table, [](auto& t) { t.dtype = DType::BF16; }), {}, "cos_sin is bf16, and neither f32 nor f16");
  refused(changed(table, [](auto& t) { t.rank = 1; }), {}, "cos_sin has rank 1");
  for (int64_t columns : {-8, 0, 4, 24})
    refused(changed(table, [=](auto& t) { t.shape[1] = columns; }), {}, "not a multiple of 8 up to 16");
  refused(changed(table, [](auto& t) { t.shape[0] = 0; }), {}, "cos_sin has 0 positions");
  refused(changed(table, [](auto& t) { t.stride[1] = 2; }), {}, "last stride");
  refused(changed(table, [](auto& t) { t.data = nullptr; }), {}, "cos_sin is null");
  refused(table, changed(positions, [](auto& t) { t.dtype = DType::F32; }), "positions are not i32 or i64 [2, 10]");
  refused(table, changed(positions, [](auto& t) { t.shape[1] = 9; }), "positions are not i32 or i64 [2, 10]");
  refused(table, changed(positions, [](auto& t) { t.data = nullptr; }), "positions are null");
  Rounding wide(10, 136, DType::F16, 0);
  CHECK_FALSE(wide.run({.cosSin = changed(table, [](auto& t) { t.shape[1] = 8; })}));
}
