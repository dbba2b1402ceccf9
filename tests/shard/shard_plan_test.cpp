// Plans of shards: every live pair is computed once, by the owner of its row, to which its key has come; nothing else
// travels.
#include "shard/plans.h"

#include "ir/bind.h"
#include "ir/interpreter.h"

#include <algorithm>
#include <set>

using namespace attnc;
using namespace attnc::test;

namespace {

ShardPlan planOf(const ShardedMod& mod, const ProblemShape& problem, int world, const ShardOptions& options = {}) {
  return take(ShardPlan::make({{&mod.mod, &mod.captures}}, problem, world, options));
}

/// Checks that pieces are whole and in order, and returns the stage of each key at a rank; -1: the key is not there.
std::vector<std::vector<int>> stagesOf(const ShardPlan& plan, const ShardMaskPlan& mask) {
  const int64_t keys = plan.kvStarts.back();
  const std::vector<int> owners = ownersOf(plan, &ShardTokens::keys, keys);
  std::vector<std::vector<int>> stages;
  std::vector<int64_t> sent(size_t(plan.world), 0);
  for (int rank = 0; rank < plan.world; ++rank) {
    const ShardWork& work = mask.ranks[size_t(rank)];
    std::vector<int>& at = stages.emplace_back(size_t(keys), -1);
    int64_t received = 0;
    const ShardPiece* before = nullptr;
    bool isOnce = true, isOwners = true;
    for (const ShardPiece& piece : work.pieces) {
      const bool isInOrder = !before || before->stage < piece.stage ||
                             (before->stage == piece.stage && before->keys.end <= piece.keys.begin);
      if (piece.keys.begin >= piece.keys.end || (piece.stage == 0) != (piece.from == rank) ||
          piece.stage > plan.stages || !isInOrder)
        FAIL("piece " << piece.keys.begin << ":" << piece.keys.end << " of rank " << rank);
      before = &piece;
      bool isInOne = false;
      for (const ShardInterval& own : plan.ranks[size_t(piece.from)].keys)
        isInOne = isInOne || (own.begin <= piece.keys.begin && piece.keys.end <= own.end);
      if (!isInOne) FAIL("no interval of rank " << piece.from << " has " << piece.keys.begin << ":" << piece.keys.end);
      for (int64_t key = piece.keys.begin; key < piece.keys.end; ++key) {
        isOnce = isOnce && at[size_t(key)] == -1;
        isOwners = isOwners && owners[size_t(key)] == piece.from;
        at[size_t(key)] = piece.stage;
      }
      if (piece.stage == 0) continue;
      received += piece.keys.end - piece.keys.begin;
      sent[size_t(piece.from)] += piece.keys.end - piece.keys.begin;
    }
    REQUIRE(isOnce);
    REQUIRE(isOwners);
    REQUIRE(work.keysReceived == received);
  }
  for (int rank = 0; rank < plan.world; ++rank) REQUIRE(mask.ranks[size_t(rank)].keysSent == sent[size_t(rank)]);
  return stages;
}

using LiveBlocks = std::set<std::tuple<int64_t, int64_t, int64_t>>; // sequence, of rows, of keys

/// Checks that the rows of each stage go from the first that sees one of its keys to the last. `stages`: by key.
void checkStageRows(const ShardPlan& plan, const ShardWork& work, const std::vector<ShardInterval>& rows,
                    const LiveBlocks& liveBlocks, const std::vector<int>& stages, int64_t block) {
  std::vector<ShardInterval> wanted(work.stageRows.size());
  for (const auto& [sequence, qBlock, kvBlock] : liveBlocks) {
    const int64_t begin = plan.qStarts[size_t(sequence)] + qBlock * block;
    const int64_t end = std::min(begin + block, plan.qStarts[size_t(sequence) + 1]);
    const int64_t firstKey = plan.kvStarts[size_t(sequence)] + kvBlock * block;
    const int64_t endKey = std::min(firstKey + block, plan.kvStarts[size_t(sequence) + 1]);
    int64_t before = 0; // rows of the rank
    for (const ShardInterval& interval : rows) {
      const int64_t first = std::max(begin, interval.begin), last = std::min(end, interval.end);
      const int64_t place = before + first - interval.begin;
      before += interval.end - interval.begin;
      if (first >= last) continue;
      for (int64_t key = firstKey; key < endKey; ++key) {
        REQUIRE(stages[size_t(key)] < int(wanted.size()));
        if (stages[size_t(key)] < 0) continue;
        ShardInterval& span = wanted[size_t(stages[size_t(key)])];
        const int64_t spanEnd = std::max(span.end, place + last - first);
        span = {span.end ? std::min(span.begin, place) : place, spanEnd};
      }
    }
  }
  CHECK(work.stageRows == wanted);
}

/// Holds a plan against the mask, element by element.
void check(const ShardPlan& plan, const ShardMaskPlan& of, const ShardedMod& mod, const ProblemShape& problem,
           bool isRagged = false, int64_t block = 128) {
  const std::vector<int> rowOwners = ownersOf(plan, &ShardTokens::rows, plan.qStarts.back());
  const std::vector<std::vector<int>> stages = stagesOf(plan, of);
  auto bindings = take(ir::bind(mod.mod.module(), mod.captures, problem));
  const ir::Interpreter interpreter(mod.mod.module(), bindings);
  double live = 0;
  LiveBlocks liveBlocks;
  for (int64_t b = 0; b < problem.batch; ++b) {
    const size_t sequence = isRagged ? size_t(b) : 0;
    const int64_t qStart = plan.qStarts[sequence], kvStart = plan.kvStarts[sequence];
    for (int64_t h = 0; h < problem.qHeads; ++h)
      for (int64_t q = 0; q < problem.qLen; ++q)
        for (int64_t kv = 0; kv < problem.kvLen; ++kv) {
          if (!interpreter.mask(b, h, q, kv)) continue;
          liveBlocks.emplace(int64_t(sequence), q / block, kv / block); // also by scores behind a sequence's lengths
          if (q >= plan.qStarts[sequence + 1] - qStart || kv >= plan.kvStarts[sequence + 1] - kvStart) continue;
          ++live;
          if (stages[size_t(rowOwners[size_t(qStart + q)])][size_t(kvStart + kv)] < 0)
            FAIL("the key " << kv << " is not where row " << q << " is");
        }
  }
  CHECK(of.pairs >= live);
  if (!isRagged) CHECK((live == 0) == (of.pairs == 0));
  // Only live keys travel: each lies in a block that lives for a row of the rank.
  for (int rank = 0; rank < plan.world; ++rank) {
    std::set<std::pair<size_t, int64_t>> wanted; // sequence, block of keys
    for (const ShardInterval& rows : plan.ranks[size_t(rank)].rows)
      for (const auto& [sequence, qBlock, kvBlock] : liveBlocks) {
        const int64_t begin = plan.qStarts[size_t(sequence)] + qBlock * block;
        const int64_t end = std::min(begin + block, plan.qStarts[size_t(sequence) + 1]);
        if (rows.begin < end && begin < rows.end) wanted.emplace(size_t(sequence), kvBlock);
      }
    bool allWanted = true;
    for (size_t sequence = 0; sequence + 1 < plan.kvStarts.size(); ++sequence)
      for (int64_t key = plan.kvStarts[sequence]; key < plan.kvStarts[sequence + 1]; ++key)
        if (stages[size_t(rank)][size_t(key)] >= 0)
          allWanted = allWanted && wanted.contains({sequence, (key - plan.kvStarts[sequence]) / block});
    REQUIRE(allWanted);
    checkStageRows(plan, of.ranks[size_t(rank)], plan.ranks[size_t(rank)].rows, liveBlocks, stages[size_t(rank)],
                   block);
  }
}

/// Checks that ranks have as many rows, up to a few.
void checkRows(const ShardPlan& plan) {
  int64_t least = INT64_MAX, most = 0;
  for (const ShardTokens& tokens : plan.ranks) {
    least = std::min(least, tokens.rowCount());
    most = std::max(most, tokens.rowCount());
  }
  CHECK(most - least <= 32); // chunks differ by at most one row
}

} // namespace

TEST_CASE("every live pair is computed once, where its row is and its key comes") {
  const std::pair<int64_t, int64_t> lengths[] = {{1, 1}, {3, 7}, {257, 257}, {400, 400}, {130, 300}, {0, 40}, {40, 0}};
  uint64_t seed = 1;
  for (const std::string& text : shardedMasks())
    for (const auto& [qLen, kvLen] : lengths) {
      const ProblemShape problem{2, 2, 1, qLen, kvLen};
      const ShardedMod mod(text, kvLen, ++seed);
      if (!mod.captures.all().empty() && qLen != kvLen) continue;
      for (const int world : {1, 2, 3, 8, 29})
        for (const ShardLayout layout :
             {ShardLayout::Auto, ShardLayout::Contiguous, ShardLayout::ZigZag, ShardLayout::Greedy}) {
          ShardOptions options{.layout = layout};
          options.stages = int(seed % 5);
          CAPTURE(text, qLen, kvLen, world, shardLayoutName(layout), options.stages);
          const ShardPlan plan = planOf(mod, problem, world, options);
          CHECK((layout == ShardLayout::Auto ? plan.layout != layout : plan.layout == layout));
          CHECK((plan.efficiency > 0 && plan.efficiency <= 1 + 1e-12));
          checkRows(plan);
          if (layout == ShardLayout::Auto || world == 3) check(plan, plan.masks[0], mod, problem);
        }
    }
}

TEST_CASE("a ragged batch is sharded by its own lengths") {
  for (const std::string& text : shardedMasks()) {
    const ProblemShape problem{3, 2, 2, 300, 300};
    const ShardedMod mod(text, 300, 5);
    ShardOptions options;
    options.lengths = {{300, 300}, {0, 0}, {131, 131}};
    for (const int world : {1, 4, 7}) {
      CAPTURE(text, world);
      const ShardPlan plan = planOf(mod, problem, world, options);
      CHECK(plan.qStarts == std::vector<int64_t>{0, 300, 300, 431});
      check(plan, plan.masks[0], mod, problem, /*isRagged=*/true);
    }
  }
}

TEST_CASE("several masks share one layout") {
  const ProblemShape problem{1, 2, 1, 500, 500};
  const ShardedMod causal(shardedMasks()[0], 500, 1), window(shardedMasks()[1], 500, 1);
  auto plan = take(ShardPlan::make({{&causal.mod, nullptr, 2}, {&window.mod, nullptr, 30}}, problem, 4));
  REQUIRE(plan.masks.size() == 2);
  check(plan, plan.masks[0], causal, problem);
  check(plan, plan.masks[1], window, problem);
  CHECK(plan.masks[1].layers == 30);
  CHECK(plan.masks[1].ranks[3].keysReceived < plan.masks[0].ranks[3].keysReceived);
}

TEST_CASE("ranks have whole slices of a grid, and receive whole ones") {
  const auto planOfVideo = [](int64_t slices, int world, const ShardOptions& options) {
    const ShardedMod mod("(abs(q_idx // 96 - kv_idx // 96) <= 1) & (abs(q_idx % 96 - kv_idx % 96) <= 8)", 96 * slices,
                         1);
    return planOf(mod, {1, 2, 1, 96 * slices, 96 * slices}, world, options);
  };
  for (const auto& [slices, world] : {std::pair<int64_t, int>{12, 4}, {30, 4}, {7, 3}, {12, 5}}) {
    CAPTURE(slices, world);
    const ShardPlan plan = planOfVideo(slices, world, {});
    CHECK(plan.layout == ShardLayout::Contiguous);
    for (int rank = 0; rank < world; ++rank) {
      const ShardInterval rows = plan.ranks[size_t(rank)].rows.front();
      CHECK((plan.ranks[size_t(rank)].rows.size() == 1 && rows.begin % 96 == 0 && rows.end % 96 == 0));
      ShardInterval keys = rows; // with those that come
      for (const ShardPiece& piece : plan.masks[0].ranks[size_t(rank)].pieces)
        keys = {std::min(keys.begin, piece.keys.begin), std::max(keys.end, piece.keys.end)};
      CHECK((keys.begin % 96 == 0 && keys.begin <= std::max<int64_t>(rows.begin - 96, 0)));
      CHECK((keys.end % 96 == 0 && keys.end >= std::min<int64_t>(rows.end + 96, 96 * slices)));
    }
    checkRows(planOfVideo(slices, world, {.layout = ShardLayout::ZigZag}));
  }
}

TEST_CASE("worlds of up to 1024 ranks, most of them without rows") {
  for (const int64_t length : {0, 1, 100, 1000, 1100}) {
    const ProblemShape problem{1, 1, 1, length, length};
    for (const char* text : {"q_idx >= kv_idx", "q_idx < kv_idx - 100000", "(q_idx > 200) & (kv_idx < 20)"}) {
      CAPTURE(length, text);
      const ShardedMod mod(text, length, 1);
      const ShardPlan plan = planOf(mod, problem, 1024);
      CHECK(plan.ranks.size() == 1024);
      check(plan, plan.masks[0], mod, problem);
    }
  }
}

TEST_CASE("plans of long problems are balanced, and predicted as efficient") {
  const auto efficiency = [](const char* text, int64_t perRank, int world = 8) {
    const ProblemShape problem{1, 64, 8, perRank * world, perRank * world};
    const ShardedMod mod(text, problem.kvLen, 1);
    const ShardPlan plan = planOf(mod, problem, world);
    CHECK(plan.masks[0].imbalance < 1.05);
    checkRows(plan);
    return plan.efficiency;
  };
  for (const int64_t perRank : {8192, 8191, 131072}) {
    CAPTURE(perRank);
    CHECK(efficiency("q_idx >= kv_idx", perRank) >= 0.93);
    CHECK(efficiency("(q_idx >= kv_idx) & (q_idx - kv_idx <= 1023)", perRank) >= 0.90);
  }
  CHECK(efficiency("q_idx >= kv_idx", 1024, 128) > 0.5);
  CHECK(efficiency("(q_idx >= kv_idx) & (q_idx - kv_idx <= 1023)", 1024, 1024) > 0.7);
}

TEST_CASE("documents are balanced, and predicted as efficient") {
  for (const int64_t perRank : {8192, 32768, 131072})
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      const int64_t tokens = 8 * perRank;
      const ProblemShape problem{1, 64, 8, tokens, tokens};
      ShardedMod mod(shardedMasks().back(), tokens, seed);
      std::mt19937_64 random(seed);
      int32_t document = 0;
      for (int64_t at = 0; at < tokens; ++document)
        for (int64_t end = std::min<int64_t>(tokens, at + 100 + int64_t(random() % 16000)); at < end; ++at)
          mod.documents[size_t(at)] = document;
      const ShardPlan plan = planOf(mod, problem, 8);
      CAPTURE(perRank, seed, shardLayoutName(plan.layout), plan.masks[0].imbalance);
      CHECK(plan.efficiency >= 0.90);
    }
}

TEST_CASE("teams compute what ranks do without groups of heads, and divide the rows") {
  const int64_t qLen = 1003, kvLen = 907;
  const ShardedMod mod("(q_idx >= kv_idx) | (h == 1)", 0, 1);
  for (const int64_t keys : {qLen, kvLen})
    for (const int groups : {2, 4}) {
      const ProblemShape problem{2, 8, 4, qLen, keys};
      ShardOptions options;
      options.block = 64;
      options.layout = ShardLayout::ZigZag; // predictions, and so choices, differ
      options.stages = 2;
      const ShardPlan ranks = planOf(mod, problem, 3, options);
      options.headGroups = groups;
      const ShardPlan teams = planOf(mod, problem, 3 * groups, options);
      REQUIRE(teams.headGroups == groups);
      REQUIRE(teams.ranks.size() == size_t(3 * groups));
      ownersOf(teams, &ShardTokens::rows, qLen);
      ownersOf(teams, &ShardTokens::keys, keys);
      CHECK(teams.masks[0].pairs == ranks.masks[0].pairs);
      double pairs = 0;
      for (int rank = 0; rank < 3 * groups; ++rank) {
        const ShardTokens team = teams.teamOf(rank), &one = ranks.ranks[size_t(rank / groups)];
        CHECK(team.rows == one.rows);
        CHECK(team.keys == one.keys);
        const int64_t own = teams.ranks[size_t(rank)].rowCount() * groups;
        CHECK(std::abs(own - one.rowCount()) < groups);
        const ShardWork &work = teams.masks[0].ranks[size_t(rank)], &same = ranks.masks[0].ranks[size_t(rank / groups)];
        pairs += work.pairs;
        CHECK(work.keysReceived == same.keysReceived);
        REQUIRE(work.pieces.size() == same.pieces.size());
        for (size_t i = 0; i < work.pieces.size(); ++i) {
          CHECK(work.pieces[i].keys == same.pieces[i].keys);
          CHECK(work.pieces[i].from == same.pieces[i].from * groups + rank % groups);
        }
      }
      CHECK(pairs == Approx(teams.masks[0].pairs));
      // Keys travel as without groups. Each rank gives away all heads of q, out, k and v but those of one group.
      const double heads = 2.0 * (double(qLen) * 8 + double(keys) * 4) * (128 + 128) * 2;
      CHECK(teams.bytesReceived == Approx(ranks.bytesReceived + heads * (groups - 1) / groups));
      CHECK((0 < teams.efficiency && teams.efficiency < ranks.efficiency));
    }
}

TEST_CASE("a plan is the same each time") {
  const ProblemShape problem{1, 2, 1, 3000, 3000};
  const ShardedMod mod(shardedMasks().back(), 3000, 9);
  const ShardPlan one = planOf(mod, problem, 16), other = planOf(mod, problem, 16);
  for (size_t rank = 0; rank < 16; ++rank) {
    CHECK(one.ranks[rank].rows == other.ranks[rank].rows);
    const auto &pieces = one.masks[0].ranks[rank].pieces, &same = other.masks[0].ranks[rank].pieces;
    REQUIRE(pieces.size() == same.size());
    for (size_t i = 0; i < pieces.size(); ++i)
      CHECK((pieces[i].stage == same[i].stage && pieces[i].from == same[i].from && pieces[i].keys == same[i].keys));
  }
}

TEST_CASE("local rows have tokens") {
  const ShardedMod mod(shardedMasks()[0], 0, 1);
  const ShardPlan plan = planOf(mod, {1, 1, 1, 100, 100}, 4, {.layout = ShardLayout::ZigZag});
  CHECK(plan.ranks[1].rows == std::vector<ShardInterval>{{12, 25}, {75, 87}});
  CHECK(plan.ranks[1].rowCount() == 25);
  CHECK(plan.ranks[1].tokenOfRow(0) == 12);
  CHECK(plan.ranks[1].tokenOfRow(13) == 75);
  CHECK(plan.ranks[1].tokenOfRow(24) == 86);
}

TEST_CASE("what is no plan is refused") {
  const ShardedMod mod(shardedMasks()[0], 0, 1);
  const ProblemShape problem{2, 2, 1, 100, 100};
  const auto refused = [&](std::vector<ShardMask> masks, int world, const ShardOptions& options) {
    const auto plan = ShardPlan::make(masks, problem, world, options);
    REQUIRE(!plan);
    CHECK(plan.error().blame == Blame::Environment);
    return plan.error().message;
  };
  CHECK(refused({}, 2, {}) == "shards: there is no mask");
  CHECK(refused({{&mod.mod}}, 0, {}) == "shards: a world of 0 is outside 1 .. 65536");
  CHECK(refused({{&mod.mod}}, 2, {.stages = 33}) == "shards: 33 stages are outside 0 .. 32");
  CHECK(refused({{&mod.mod}}, 2, {.lengths = {{100, 100}}}) ==
        "shards: there are lengths of 1 sequences, the problem has 2");
  CHECK(refused({{&mod.mod}}, 2, {.lengths = {{100, 100}, {101, 100}}}) ==
        "shards: a sequence has 101 rows of q and 100 of k, the problem at most 100 and 100");
  CHECK_FALSE(ShardPlan::make({{&mod.mod}}, problem, 2, {.block = 100}));
  for (const int groups : {0, 2, 3})
    CHECK(refused({{&mod.mod}}, 2, {.headGroups = groups}) ==
          "shards: " + std::to_string(groups) + " groups of heads do not divide a world of 2, H = 2 and HKV = 1");
}
