// Problems for plans of shards, and how often each pair is computed.
#pragma once

#include "attnc/captures.h"
#include "attnc/mod.h"
#include "attnc/shard.h"
#include "helpers/take.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace attnc::test {

/// Masks as texts. They capture `doc: i32[KV_LEN]`, or nothing.
inline const std::vector<std::string>& shardedMasks() {
  static const std::vector<std::string> all = {
      "q_idx >= kv_idx",
      "(q_idx >= kv_idx) & (q_idx - kv_idx <= 70)",
      "(kv_idx < 50) | (q_idx >= kv_idx)",
      "q_idx + kv_idx >= 0",
      "q_idx < kv_idx - 100000",                         // nothing lives
      "(q_idx > 200) & (q_idx < 230) & (kv_idx >= 190)", // few rows live
      "((q_idx * 7919 + kv_idx * 104729) % 3001) < 2",   // scattered pairs
      "(q_idx >= kv_idx) | (h == 1)",
      "(q_idx >= kv_idx) & ((b == 0) | (kv_idx > 150))",
      "doc: i32[KV_LEN]\ndef mask_mod(b, h, q_idx, kv_idx):\n"
      "    return (doc[q_idx] == doc[kv_idx]) & (q_idx >= kv_idx)\n",
  };
  return all;
}

/// A mod with its captures.
struct ShardedMod {
  Mod mod = Mod::identity();
  std::vector<int32_t> documents;
  Captures captures;

  ShardedMod(const std::string& text, int64_t kvLen, uint64_t seed) : documents(size_t(kvLen)) {
    auto parsed = take(Mod::parse(text));
    mod = parsed;
    std::mt19937_64 random(seed);
    for (size_t i = 1; i < documents.size(); ++i) documents[i] = documents[i - 1] + (random() % 60 == 0);
    if (!mod.captures().empty()) captures.set("doc", TensorView::contiguous(documents.data(), DType::I32, {kvLen}));
  }
  ShardedMod(const ShardedMod&) = delete;
};

/// Returns the rank of each token, and checks that it has one.
inline std::vector<int> ownersOf(const ShardPlan& plan, std::vector<ShardInterval> ShardTokens::*of, int64_t tokens) {
  std::vector<int> owners(size_t(tokens), -1);
  bool areSingle = true;
  for (size_t rank = 0; rank < plan.ranks.size(); ++rank)
    for (const ShardInterval& interval : plan.ranks[rank].*of) {
      REQUIRE((0 <= interval.begin && interval.begin < interval.end && interval.end <= tokens));
      for (int64_t at = interval.begin; at < interval.end; ++at) {
        areSingle = areSingle && owners[size_t(at)] == -1;
        owners[size_t(at)] = int(rank);
      }
    }
  REQUIRE(areSingle);
  REQUIRE(std::find(owners.begin(), owners.end(), -1) == owners.end());
  return owners;
}

} // namespace attnc::test
