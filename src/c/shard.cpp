#include "attnc/c/shard.h"

#include "attnc/shard.h"
#include "c/enumerators.h"
#include "c/handles.h"
#include "c/operands.h"
#include "c/tell.h"

#include <fmt/format.h>

#include <deque>

namespace attnc::c {
namespace {

static_assert(int(ShardLayout::Auto) == ATTNC_SHARD_AUTO && int(ShardLayout::Contiguous) == ATTNC_SHARD_CONTIGUOUS &&
                  int(ShardLayout::ZigZag) == ATTNC_SHARD_ZIGZAG && int(ShardLayout::Greedy) == ATTNC_SHARD_GREEDY,
              "C numbers layouts as C++ does");

std::vector<attnc_shard_interval> toC(const std::vector<ShardInterval>& intervals) {
  std::vector<attnc_shard_interval> all;
  for (const ShardInterval& interval : intervals) all.push_back({interval.begin, interval.end});
  return all;
}

/// Writes a number that the caller gave; 0 keeps the default.
template <class T, class Given> void take(T& to, Given given) {
  if (given != 0) to = given;
}

ShardOptions readOptions(const attnc_shard_options* given) {
  const attnc_shard_options all = readStruct(given, "options");
  ShardOptions options;
  if (all.layout < ATTNC_SHARD_AUTO || all.layout > ATTNC_SHARD_GREEDY)
    refuse({"options", "layout"}, fmt::format("is {}, which is no layout of shards", all.layout));
  options.layout = ShardLayout(all.layout);
  if (all.length_count) need(all.lengths, {"options", "lengths"});
  for (size_t i = 0; i < all.length_count; ++i) options.lengths.push_back({all.lengths[i].q, all.lengths[i].kv});
  options.stages = all.stages;
  options.backward = readFlag(all.backward, {"options", "backward"});
  readReserved(all.reserved, {"options", "reserved"});
  readReserved(all.reserved2, {"options", "reserved2"});
  take(options.headGroups, all.head_groups);
  take(options.block, all.block);
  take(options.headDim, all.head_dim);
  take(options.headDimV, all.head_dim_v ? all.head_dim_v : all.head_dim);
  take(options.elementBytes, all.element_bytes);
  take(options.flops, all.flops);
  take(options.bandwidth, all.bandwidth);
  take(options.memory, all.memory);
  take(options.latency, all.latency);
  return options;
}

} // namespace
} // namespace attnc::c

using namespace attnc;
using namespace attnc::c;

attnc_shard_plan::attnc_shard_plan(ShardPlan made) : plan(std::move(made)) {
  for (const ShardTokens& ofRank : plan.ranks) tokens.push_back({toC(ofRank.rows), toC(ofRank.keys)});
  for (const ShardMaskPlan& mask : plan.masks)
    for (auto& ofMask = works.emplace_back(); const ShardWork& work : mask.ranks) {
      Work& ofRank = ofMask.emplace_back(Work{{}, toC(work.stageRows)});
      for (const ShardPiece& piece : work.pieces)
        ofRank.pieces.push_back({piece.stage, piece.from, piece.keys.begin, piece.keys.end});
    }
}

attnc_status attnc_shard_plan_create(const attnc_shard_mask* masks, size_t mask_count, const attnc_problem* problem,
                                     int32_t world, const attnc_shard_options* options, attnc_shard_plan** plan) {
  return call({{problem, "problem"}, {plan, "plan"}}, [&] {
    std::deque<Captures> captures; // masks point into it
    std::vector<ShardMask> all;
    const Place place = "masks";
    if (mask_count) need(masks, place);
    for (size_t i = 0; i < mask_count; ++i) {
      const attnc_shard_mask one = readStruct(element(masks, i), place.at(i));
      need(one.mod, place.at(i, "mod"));
      readCaptures(one.captures, one.capture_count, place.at(i, "captures"), captures.emplace_back());
      all.push_back({&one.mod->mod, &captures.back(), one.layers != 0 ? one.layers : 1});
    }
    const ShardOptions how = readOptions(options);
    return give(ShardPlan::make(all, readProblem(*problem), world, how), plan);
  });
}

void attnc_shard_plan_destroy(attnc_shard_plan* plan) { delete plan; }

attnc_status attnc_shard_plan_get_info(const attnc_shard_plan* plan, attnc_shard_plan_info* info) {
  return tell({{plan, "plan"}}, info, "info", [&](attnc_shard_plan_info& all) {
    all.bytes_received = plan->plan.bytesReceived;
    all.efficiency = plan->plan.efficiency;
    all.world = plan->plan.world;
    all.stages = plan->plan.stages;
    all.layout = int32_t(plan->plan.layout);
    all.mask_count = int32_t(plan->plan.masks.size());
    all.head_groups = plan->plan.headGroups;
  });
}

attnc_status attnc_shard_plan_get_tokens(const attnc_shard_plan* plan, size_t rank, attnc_shard_tokens* tokens) {
  return tell({{plan, "plan"}}, tokens, "tokens", [&](attnc_shard_tokens& all) {
    checkIndex(rank, plan->tokens.size());
    const attnc_shard_plan::Tokens& from = plan->tokens[rank];
    all.rows = from.rows.data();
    all.row_count = from.rows.size();
    all.keys = from.keys.data();
    all.key_count = from.keys.size();
  });
}

attnc_status attnc_shard_plan_get_work(const attnc_shard_plan* plan, size_t mask, size_t rank, attnc_shard_work* work) {
  return tell({{plan, "plan"}}, work, "work", [&](attnc_shard_work& all) {
    checkIndex(mask, plan->works.size());
    checkIndex(rank, plan->works[mask].size());
    const ShardWork& from = plan->plan.masks[mask].ranks[rank];
    const attnc_shard_plan::Work& arrays = plan->works[mask][rank];
    all.pieces = arrays.pieces.data();
    all.piece_count = arrays.pieces.size();
    all.stage_rows = arrays.stageRows.data();
    all.stage_count = arrays.stageRows.size();
    all.pairs = from.pairs;
    all.seconds = from.seconds;
    all.keys_received = from.keysReceived;
    all.keys_sent = from.keysSent;
  });
}
