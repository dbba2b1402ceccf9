// Operands that are drawn: the same for a seed, whoever draws them, and no two tensors alike.
#include "random.h"
#include "tools/device/draw.h"

#include "ir/element.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
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
  return double(ir::readElement(tensor.bytes.data(), tensor.dtype, i).real);
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
    // Six standard deviations of a mean of so many.
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
