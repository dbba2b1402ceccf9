// The walk of kernels (templates/algo/step_walk.cuh), run on the host against the sets of positions that it must visit.
#include <algorithm>

namespace attnc {
using std::max;
using std::min;
inline int __clz(int x) { return __builtin_clz(unsigned(x)); }
} // namespace attnc

#include "algo/step_walk.cuh"

#include <catch2/catch.hpp>

#include <random>
#include <set>
#include <vector>

using namespace attnc;

namespace {

constexpr int kSize = 16;

/// The steps of a walk in their order, flags checked against their places.
template <class Walk> std::vector<Step> stepsOf(const Walk& walk) {
  std::vector<Step> steps;
  for (int i = 0; i < walk.count; ++i) {
    steps.push_back(walk.at(i));
    const Step& step = steps.back();
    CHECK(step.start % kSize == 0);
    CHECK(bool(step.flags & kStepFirst) == (i == 0));
    CHECK(bool(step.flags & kStepLast) == (i + 1 == walk.count));
    CHECK(bool(step.flags & kStepTail) == (step.start + kSize > walk.length));
    CHECK(step.start == walk.start_of(i));
  }
  return steps;
}

std::vector<int> startsOf(const std::vector<Step>& steps) {
  std::vector<int> starts;
  for (const Step& step : steps) starts.push_back(step.start);
  return starts;
}

/// The parts of a walk, one after another, are the walk.
template <class Walk> void checkParts(const Walk& walk) {
  const std::vector<int> whole = startsOf(stepsOf(walk));
  for (int parts : {1, 2, 3, 7, 40}) {
    std::vector<int> joined;
    for (int part = 0; part < parts; ++part) {
      Walk some = walk;
      some.keep_part(part, parts);
      CHECK(some.count <= walk.count / parts + 1);
      for (int start : startsOf(stepsOf(some))) joined.push_back(start);
    }
    CHECK(joined == whole);
  }
}

} // namespace

TEST_CASE("a walk of all positions visits each step once, from the last to the first", "[walk]") {
  for (int length : {1, 15, 16, 17, 160, 1000}) {
    INFO(length);
    const StepWalk<kSize, StepSource::All, true> walk(length);
    const std::vector<Step> steps = stepsOf(walk);
    REQUIRE(int(steps.size()) == (length + kSize - 1) / kSize);
    for (size_t i = 0; i < steps.size(); ++i) {
      CHECK(steps[i].start == int(steps.size() - 1 - i) * kSize);
      CHECK(bool(steps[i].flags & kStepMasked));
      CHECK(bool(steps[i].flags & kStepFew) == (int(steps.size()) * kSize <= kFewColumns));
    }
    checkParts(walk);
  }
  CHECK_FALSE(StepWalk<kSize, StepSource::All, false>(100).at(0).flags & kStepMasked);
}

TEST_CASE("a tile without steps has one past the end", "[walk]") {
  for (int length : {0, 1, 16, 100}) {
    StepWalk<kSize, StepSource::Bounds, true> walk(length, TileBounds{5, 5, 5, 5 - kSize});
    CHECK(walk.count == 0);
    CHECK(walk.at(0).start >= std::max(length, 1));
    CHECK(walk.at(0).flags == (kStepTail | kStepFirst | kStepLast));
  }
}

TEST_CASE("a walk between bounds visits what may live, and masks what may not", "[walk]") {
  std::mt19937 random(1);
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  for (int trial = 0; trial < 2000; ++trial) {
    const int length = draw(0, 400);
    TileBounds bounds;
    bounds.begin = draw(-50, 450), bounds.end = draw(-50, 450);
    bounds.full_begin = std::max(bounds.begin, draw(-50, 450)), bounds.full_end = std::min(bounds.end, draw(-50, 450));
    INFO(length << ": " << bounds.begin << " " << bounds.full_begin << " " << bounds.full_end << " " << bounds.end);
    const StepWalk<kSize, StepSource::Bounds, true> walk(length, bounds);
    std::set<int> visited;
    for (const Step& step : stepsOf(walk)) {
      CHECK(visited.insert(step.start).second);
      const int end = std::min(step.start + kSize, length);
      CHECK(step.start < length);
      for (int at = step.start; at < end; ++at)
        if (!(step.flags & kStepMasked)) CHECK((at >= bounds.full_begin && at < bounds.full_end));
    }
    for (int at = std::max(bounds.begin, 0); at < std::min(bounds.end, length); ++at)
      CHECK(visited.count(at / kSize * kSize) == 1);
    checkParts(walk);
  }
}

TEST_CASE("a walk of lists visits the steps of each block once, partial blocks first", "[walk]") {
  const int partial[] = {0, 3, 7}, full[] = {1, 5}, partialCount[] = {0, 3}, fullCount[] = {2, 2};
  std::vector<int> partialIndex(2 * 8), fullIndex(2 * 8);
  std::copy(std::begin(partial), std::end(partial), partialIndex.begin() + 8);
  for (int row : {0, 1}) std::copy(std::begin(full), std::end(full), fullIndex.begin() + 8 * row);
  BlockLists lists{};
  lists.partial_count = partialCount, lists.full_count = fullCount;
  lists.partial_index = partialIndex.data(), lists.full_index = fullIndex.data();
  lists.index_stride = 8;
  for (int row : {0, 1})
    for (int block : {16, 32, 64}) {
      INFO(row << " " << block);
      const StepWalk<kSize, StepSource::Lists, true> walk(8 * block - 5, BlockRow(lists, 0, 0, row, block));
      std::set<int> visited;
      bool seenFull = false;
      for (const Step& step : stepsOf(walk)) {
        CHECK(visited.insert(step.start).second);
        const bool masked = step.flags & kStepMasked;
        seenFull |= !masked;
        CHECK_FALSE((masked && seenFull));
        const int index = step.start / block;
        const bool listed = masked ? row == 1 && std::count(std::begin(partial), std::end(partial), index)
                                   : std::count(std::begin(full), std::end(full), index);
        CHECK(listed);
      }
      CHECK(int(visited.size()) == (partialCount[row] + 2) * block / kSize);
      checkParts(walk);
    }
  lists.full_count = nullptr;
  CHECK(StepWalk<kSize, StepSource::Lists, true>(100, BlockRow(lists, 0, 0, 1, 16)).count == 3);
}
