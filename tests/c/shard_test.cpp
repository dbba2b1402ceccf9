// Plans of shards through the C interface.
#include "calls.h"

#include <vector>

using namespace ctest;

namespace {

constexpr attnc_problem kProblem = {1, 2, 1, 1024, 1024};

attnc_shard_mask maskOf(const attnc_mod* mod, double layers = 0) {
  auto mask = sized<attnc_shard_mask>();
  mask.mod = mod;
  mask.layers = layers;
  return mask;
}

attnc_status make(const std::vector<attnc_shard_mask>& masks, int32_t world, const attnc_shard_options* options,
                  Owned<attnc_shard_plan>& plan) {
  attnc_shard_plan* made = nullptr;
  const attnc_status status = attnc_shard_plan_create(masks.data(), masks.size(), &kProblem, world, options, &made);
  plan.reset(made);
  return status;
}

attnc_shard_tokens tokensOf(const Owned<attnc_shard_plan>& plan, size_t rank) {
  auto tokens = told<attnc_shard_tokens>(attnc_shard_plan_get_tokens, plan.get(), rank);
  return tokens;
}

attnc_shard_work workOf(const Owned<attnc_shard_plan>& plan, size_t mask, size_t rank) {
  auto work = told<attnc_shard_work>(attnc_shard_plan_get_work, plan.get(), mask, rank);
  return work;
}

} // namespace

TEST_CASE("a plan of shards gives its intervals and pieces", "[c]") {
  const Owned<attnc_mod> causal = parse("q_idx >= kv_idx"), window = parse("abs(q_idx - kv_idx) <= 60");
  auto options = sized<attnc_shard_options>();
  options.layout = ATTNC_SHARD_CONTIGUOUS;
  options.stages = 1;
  options.block = 64;
  Owned<attnc_shard_plan> plan;
  TAKE(make({maskOf(causal.get(), 3), maskOf(window.get())}, 4, &options, plan));
  auto info = told<attnc_shard_plan_info>(attnc_shard_plan_get_info, plan.get());
  CHECK(info.world == 4);
  CHECK(info.stages == 1);
  CHECK(info.layout == ATTNC_SHARD_CONTIGUOUS);
  CHECK(info.mask_count == 2);
  CHECK(info.bytes_received > 0);
  CHECK((0 < info.efficiency && info.efficiency <= 1));
  int64_t rows = 0;
  for (size_t rank = 0; rank < 4; ++rank) {
    const attnc_shard_tokens tokens = tokensOf(plan, rank);
    REQUIRE(tokens.row_count == 1);
    REQUIRE(tokens.key_count == 1);
    CHECK(tokens.rows[0].begin == rows);
    CHECK(tokens.keys[0].begin == rows);
    rows = tokens.rows[0].end;
  }
  CHECK(rows == 1024);
  // The last rank sees all keys by the first mask, and those of its neighbour's end by the second.
  int64_t keys = 0;
  const attnc_shard_work all = workOf(plan, 0, 3), near = workOf(plan, 1, 3);
  for (size_t i = 0; i < all.piece_count; ++i) keys += all.pieces[i].end - all.pieces[i].begin;
  CHECK(keys == 1024);
  CHECK(all.pieces[0].stage == 0);
  CHECK(all.pieces[0].from == 3);
  CHECK(all.keys_received == tokensOf(plan, 3).rows[0].begin);
  CHECK(all.keys_sent == 0);
  REQUIRE(near.piece_count == 2);
  REQUIRE(near.stage_count == 2);
  CHECK(near.pieces[1].from == 2);
  CHECK(near.pieces[1].end == tokensOf(plan, 2).keys[0].end);
  CHECK(near.keys_received == near.pieces[1].end - near.pieces[1].begin);
  CHECK(near.pairs < all.pairs);
  CHECK(near.seconds < all.seconds);
}

TEST_CASE("a plan of shards reads captures, and lengths of a ragged batch", "[c]") {
  const Owned<attnc_mod> document = parse("ids: i32[KV_LEN]\ndef mask_mod(b, h, q_idx, kv_idx):\n"
                                          "    return ids[q_idx] == ids[kv_idx]\n");
  std::vector<int32_t> ids(1024);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = int32_t(i / 512);
  const attnc_tensor values = tensor(ATTNC_DTYPE_I32, {1024}, ids.data());
  const attnc_capture captured = capture("ids", &values);
  attnc_shard_mask mask = maskOf(document.get());
  Owned<attnc_shard_plan> plan;
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "ids", make({mask}, 2, nullptr, plan));
  mask.captures = &captured;
  mask.capture_count = 1;
  auto options = sized<attnc_shard_options>();
  options.layout = ATTNC_SHARD_CONTIGUOUS;
  TAKE(make({mask}, 2, &options, plan));
  CHECK(workOf(plan, 0, 0).keys_received == 0);

  const Owned<attnc_mod> causal = parse("q_idx >= kv_idx");
  const attnc_shard_lengths lengths[] = {{300, 300}};
  options.lengths = lengths;
  options.length_count = 1;
  TAKE(make({maskOf(causal.get())}, 1, &options, plan));
  CHECK(tokensOf(plan, 0).rows[0].end == 300);
}

TEST_CASE("a plan of shards has groups of heads", "[c]") {
  const Owned<attnc_mod> causal = parse("q_idx >= kv_idx");
  constexpr attnc_problem kHeads = {1, 4, 2, 1024, 1024};
  auto options = sized<attnc_shard_options>();
  options.head_groups = 2;
  const attnc_shard_mask mask = maskOf(causal.get());
  attnc_shard_plan* made = nullptr;
  TAKE(attnc_shard_plan_create(&mask, 1, &kHeads, 4, &options, &made));
  const Owned<attnc_shard_plan> plan(made);
  auto info = told<attnc_shard_plan_info>(attnc_shard_plan_get_info, plan.get());
  CHECK(info.head_groups == 2);
  for (size_t rank = 0; rank < 4; ++rank) {
    const attnc_shard_work work = workOf(plan, 0, rank);
    for (size_t i = 0; i < work.piece_count; ++i) CHECK(size_t(work.pieces[i].from) % 2 == rank % 2);
  }
  options.head_groups = 4;
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "4 groups of heads", attnc_shard_plan_create(&mask, 1, &kHeads, 4, &options, &made));
  options.head_groups = 2;
  options.reserved2 = 1;
  REFUSED(ATTNC_ERROR_ARGUMENT, "reserved2", attnc_shard_plan_create(&mask, 1, &kHeads, 4, &options, &made));
}

TEST_CASE("a plan of shards refuses what it cannot plan", "[c]") {
  const Owned<attnc_mod> causal = parse("q_idx >= kv_idx");
  auto options = sized<attnc_shard_options>();
  Owned<attnc_shard_plan> plan;
  const auto with = [&](int32_t world) { return make({maskOf(causal.get())}, world, &options, plan); };
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "a world of 0", with(0));
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "there is no mask", make({}, 2, &options, plan));
  REFUSED(ATTNC_ERROR_ARGUMENT, "masks[0].mod is NULL", make({maskOf(nullptr)}, 2, &options, plan));
  options.layout = 4;
  REFUSED(ATTNC_ERROR_ARGUMENT, "options.layout is 4", with(2));
  options.layout = ATTNC_SHARD_AUTO;
  options.length_count = 1;
  REFUSED(ATTNC_ERROR_ARGUMENT, "options.lengths is NULL", with(2));
  options.length_count = 0;
  TAKE(with(2));
  auto tokens = sized<attnc_shard_tokens>();
  auto work = sized<attnc_shard_work>();
  REFUSED(ATTNC_ERROR_ARGUMENT, "2", attnc_shard_plan_get_tokens(plan.get(), 2, &tokens));
  REFUSED(ATTNC_ERROR_ARGUMENT, "1", attnc_shard_plan_get_work(plan.get(), 1, 0, &work));
  REFUSED(ATTNC_ERROR_ARGUMENT, "plan is NULL", attnc_shard_plan_get_info(nullptr, nullptr));
}
