#include "attnc/block_runs.h"
#include "helpers/take.h"

#include <catch2/catch.hpp>

using namespace attnc;

namespace {

constexpr int64_t kLength = 1 << 20, kBlocks = kLength / 128;

BlockRuns runsOf(const char* mask, ProblemShape problem, BlockMaskShape shape) {
  auto mod = take(Mod::parse(mask));
  return take(BlockRuns::build(mod, {}, problem, shape));
}

} // namespace

TEST_CASE("a causal mask of a million tokens has two runs a row, and only its diagonal is evaluated") {
  const BlockRuns runs = runsOf("q_idx >= kv_idx", {1, 1, 1, kLength, kLength}, {1, 1, kLength, kLength, 128, 128});
  CHECK(runs.liveBlocks() == kBlocks * (kBlocks + 1) / 2);
  CHECK(runs.fullBlocks() == kBlocks * (kBlocks - 1) / 2);
  CHECK(runs.evaluatedBlocks() <= kBlocks);
  int64_t wrong = 0;
  for (int32_t block = 1; block < kBlocks; ++block) {
    const BlockRuns::Row row = runs.row(0, 0, block);
    wrong += !(row.end() - row.begin() == 2 && row.first[0] == BlockRun{0, block, true} &&
               row.first[1] == BlockRun{block, block + 1, false});
  }
  CHECK(wrong == 0);
}

TEST_CASE("rows without live keys have no runs, and a mask without a condition has one") {
  const ProblemShape problem{1, 1, 1, 300, 300};
  const BlockMaskShape shape{1, 1, 300, 300, 128, 128};
  const BlockRuns none = runsOf("q_idx < 0", problem, shape);
  CHECK(none.liveBlocks() == 0);
  CHECK(none.row(0, 0, 2).begin() == none.row(0, 0, 2).end());
  const BlockRuns odd = runsOf("(q_idx + kv_idx) % 2 == 0", problem, shape); // partial everywhere, by evaluation
  CHECK(odd.fullBlocks() == 0);
  CHECK(odd.liveBlocks() == 9);
  CHECK(*odd.row(0, 0, 0).begin() == BlockRun{0, 3, false});
}
