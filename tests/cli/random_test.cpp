// Operands that are drawn: the same for a seed, whoever draws them, and no two tensors alike.
#include "problem/random.h"
#include "tools/device/draw.h"

#include "support/element.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <vector>

using namespace attnc;
using cli::Generator;
using cli::HostTensor;

namespace {

constexpr int64_t kMost = int64_t(1) << 24;
const ProblemShape kProblem{1, 2, 2, 300, 700};

double at(const HostTensor& tensor, int64_t i) {
  return double(readElement(tensor.bytes.data(), tensor.dtype, i).real);
}

} // namespace

TEST_CASE("what is drawn in blocks is normal in each of them, and none is like another") {
  const int64_t part = 30000, parts = 14;
  std::mt19937_64 random(3);
  const auto drawn = [&] {
    std::vector<double> numbers(size_t(part * parts));
    device::drawOnAllCores(
        random, part * parts, std::normal_distribution<double>(), [&](int64_t i, double x) { numbers[size_t(i)] = x; },
        part);
    return numbers;
  };
  const std::vector<double> numbers = drawn(), others = drawn();
  for (int64_t first = 0; first < part * parts; first += part) {
    double sum = 0, squares = 0, withOther = 0;
    for (int64_t i = first; i < first + part; ++i) {
      const double x = numbers[size_t(i)];
      sum += x, squares += x * x;
      withOther += x * others[size_t(i)];
    }
    INFO("from " << first);
    // Six standard deviations of a mean of `part` numbers.
    const double six = 6 / std::sqrt(double(part));
    CHECK(std::fabs(sum / part) < six);
    CHECK(std::fabs(squares / part - 1) < six * std::sqrt(2.));
    CHECK(std::fabs(withOther / part) < six);
  }
}

TEST_CASE("a seed draws the same, of each dtype and of captures too") {
  for (DType dtype : {DType::BF16, DType::F16, DType::F32}) {
    const auto draw = [&](uint64_t seed) { return Generator(seed, kProblem, kMost).normal(dtype, {3, 100003}).bytes; };
    CHECK(draw(7) == draw(7));
    CHECK(draw(7) != draw(8));
    CHECK(draw(7) != draw(7 + (uint64_t(1) << 32)));
  }
  for (DType dtype : {DType::Bool, DType::BF16, DType::I32}) {
    const CaptureInfo capture{.name = "t", .kind = CaptureInfo::Kind::Tensor, .dtype = dtype, .extent = {"200000"}};
    const auto draw = [&](uint64_t seed) {
      HostTensor tensor{dtype, {200000}, {}};
      REQUIRE(Generator(seed, kProblem, kMost).fill(capture, tensor));
      return tensor.bytes;
    };
    CHECK(draw(7) == draw(7));
    CHECK(draw(7) != draw(8));
    if (dtype != DType::Bool) continue;
    std::map<char, int> counts;
    for (char byte : draw(7)) ++counts[byte];
    CHECK(counts.size() == 2);
    CHECK(std::abs(counts[0] - counts[1]) < 3000);
  }
}

TEST_CASE("each element is drawn once, and no block of them as another one") {
  const auto drawn = [](uint64_t seed, int64_t count) {
    std::vector<int64_t> numbers(static_cast<size_t>(count));
    std::vector<int> times(numbers.size());
    std::mt19937_64 random(seed);
    const auto write = [&](int64_t i, int64_t number) {
      numbers[size_t(i)] = number;
      ++times[size_t(i)];
    };
    device::drawOnAllCores(random, count, std::uniform_int_distribution<int64_t>(), write, 1 << 16);
    CHECK(times == std::vector<int>(times.size(), 1));
    return numbers;
  };
  std::vector<int64_t> all;
  for (uint64_t seed : {uint64_t(5), uint64_t(6), 5 + (uint64_t(1) << 32)}) {
    const std::vector<int64_t> many = drawn(seed, 200001), few = drawn(seed, 1000);
    CHECK(many == drawn(seed, int64_t(many.size())));
    CHECK(std::equal(few.begin(), few.end() - 1, drawn(seed, 999).begin()));
    for (const std::vector<int64_t>* numbers : {&many, &few}) all.insert(all.end(), numbers->begin(), numbers->end());
  }
  std::sort(all.begin(), all.end());
  CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
  CHECK(drawn(5, 0).empty());
}

TEST_CASE("large scores are drawn by pattern along the axes that a tensor has", "[random]") {
  using cli::LargeScores;
  using Pattern = LargeScores::Pattern;
  const auto isLarge = [](Pattern pattern, int64_t q, int64_t kv, int64_t keys) {
    switch (pattern) {
    case Pattern::Half: return kv >= keys / 2;
    case Pattern::FirstHalf: return kv < keys / 2;
    case Pattern::Rows: return q % 3 == 1;
    case Pattern::Tiles: return kv / 64 % 2 == 1;
    case Pattern::All: return true;
    case Pattern::Scattered:
    case Pattern::Mixed: break;
    }
    return false;
  };
  const int64_t q = kProblem.qLen, kv = kProblem.kvLen;
  const std::vector<std::pair<std::vector<std::string>, std::vector<int64_t>>> tensors = {
      {{"Q_LEN", "KV_LEN"}, {q, kv}},
      {{"KV_LEN", "H", "Q_LEN"}, {kv, 2, q}},
      {{"H", "Q_LEN", "3"}, {2, q, 3}},
      {{"KV_LEN"}, {kv}}};
  for (Pattern pattern : {Pattern::Half, Pattern::FirstHalf, Pattern::Rows, Pattern::Tiles, Pattern::All})
    for (const auto& [extent, shape] : tensors)
      for (auto [dtype, size] : {std::pair(DType::F32, -1e9), {DType::BF16, 0x1p100}, {DType::F16, -0x1p15}}) {
        const CaptureInfo capture{.name = "t", .kind = CaptureInfo::Kind::Tensor, .dtype = dtype, .extent = extent};
        REQUIRE(Generator::isLarge(capture));
        HostTensor tensor{dtype, shape, {}};
        REQUIRE(Generator(7, kProblem, kMost, LargeScores{size, pattern}).fill(capture, tensor));
        int wrong = 0;
        for (int64_t i = 0; i < tensor.elements(); ++i) {
          std::map<std::string, int64_t> index;
          for (int64_t axis = int64_t(shape.size()) - 1, rest = i; axis >= 0; rest /= shape[size_t(axis--)])
            index[extent[size_t(axis)]] = rest % shape[size_t(axis)];
          const bool hasQ = index.count("Q_LEN"), hasKv = index.count("KV_LEN");
          const int64_t query = index[hasQ ? "Q_LEN" : "KV_LEN"], key = index[hasKv ? "KV_LEN" : "Q_LEN"];
          wrong += at(tensor, i) != (isLarge(pattern, query, key, hasKv ? kv : q) ? size : 0);
        }
        INFO(LargeScores::kNames[int(pattern)] << ", " << shape.size() << " axes, " << dtypeName(dtype));
        CHECK(wrong == 0);
      }
}

TEST_CASE("scattered and mixed large scores are of both kinds, finite in any dtype, and of the seed", "[random]") {
  using cli::LargeScores;
  const double most = std::numeric_limits<float>::max();
  for (DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    const CaptureInfo capture{
        .name = "t", .kind = CaptureInfo::Kind::Tensor, .dtype = dtype, .extent = {"KV_LEN", "100"}};
    const auto draw = [&](uint64_t seed, std::optional<LargeScores::Pattern> pattern) {
      HostTensor tensor{dtype, {700, 100}, {}};
      REQUIRE(Generator(seed, kProblem, kMost, LargeScores{most, pattern}).fill(capture, tensor));
      std::vector<double> values;
      for (int64_t i = 0; i < tensor.elements(); ++i) values.push_back(at(tensor, i));
      return values;
    };
    const auto count = [](const std::vector<double>& values, auto is) {
      return std::count_if(values.begin(), values.end(), is);
    };
    const std::vector<double> scattered = draw(3, LargeScores::Pattern::Scattered),
                              mixed = draw(3, LargeScores::Pattern::Mixed);
    for (const auto* values : {&scattered, &mixed})
      CHECK(count(*values, [](double x) { return std::isfinite(x); }) == 70000);
    CHECK(std::abs(count(scattered, [](double x) { return x > 6e4; }) - 7000) < 600);
    CHECK(std::abs(count(mixed, [](double x) { return x < 0; }) - 35000) < 1000);
    CHECK(count(mixed, [](double x) { return std::fabs(x) < 100; }) > 1000);
    if (dtype == DType::F32) CHECK(std::abs(count(mixed, [](double x) { return std::fabs(x) > 1e19; }) - 35000) < 1500);
    CHECK(mixed == draw(3, LargeScores::Pattern::Mixed));
    CHECK(mixed != draw(4, LargeScores::Pattern::Mixed));
    CHECK(draw(0, {}) == draw(0, LargeScores::Pattern::Half));
    CHECK(draw(8, {}) == draw(0, LargeScores::Pattern::FirstHalf));
  }
}

TEST_CASE("rows of k are long where no capture could make scores large", "[random]") {
  using cli::LargeScores;
  for (auto [dtype, size, length] :
       {std::tuple(DType::BF16, -1e9, -0x1p33), {DType::F16, 1e9, 0x1p15}, {DType::F32, 1e4, 0x1p16}}) {
    Generator generator(3, kProblem, kMost, LargeScores{size, LargeScores::Pattern::Tiles});
    HostTensor q = generator.signs(dtype, {1, 2, 300, 64}), k = generator.signs(dtype, {1, 2, 700, 64});
    std::map<double, int64_t> counts;
    for (int64_t i = 0; i < q.elements(); ++i) ++counts[at(q, i)];
    REQUIRE(counts.size() == 3);
    for (auto [value, count] : counts) CHECK(std::abs(count - q.elements() / 3) < 600);
    generator.lengthenKeys(q, k, 0.125);
    int wrong = 0;
    for (int64_t row = 0; row < 1400; ++row)
      for (int64_t i = 0; i < 64; ++i) {
        const double value = at(k, row * 64 + i);
        wrong += row % 700 / 64 % 2 ? value != (i ? 0 : length) : std::fabs(value) > 1;
      }
    CHECK(wrong == 0);
    for (int64_t row = 0; row < 600; ++row) wrong += at(q, row * 64) != 1;
    CHECK(wrong == 0);
  }
}
