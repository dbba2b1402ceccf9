// Attention of ranks by a plan of shards, through the C interface.
#include "calls.h"
#include "shard/engine.h"

#include <cmath>
#include <vector>

using namespace ctest;
using attnc::ShardEngine;
using attnc::ShardMessage;

namespace {

constexpr int64_t kLength = 150, kColumns = 8;
constexpr attnc_problem kProblem = {1, 1, 1, kLength, kLength};

std::vector<ShardMessage> toCpp(const attnc_shard_message* messages, size_t count) {
  std::vector<ShardMessage> all;
  for (size_t i = 0; i < count; ++i) all.push_back({messages[i].peer, messages[i].data, messages[i].bytes});
  return all;
}

int32_t exchange(void* user, const attnc_shard_message* sends, size_t sendCount, const attnc_shard_message* receives,
                 size_t receiveCount, attnc_stream) {
  return static_cast<ShardEngine*>(user)->exchange(toCpp(sends, sendCount), toCpp(receives, receiveCount), nullptr) ? 0
                                                                                                                    : 1;
}

int32_t wait(void* user) { return static_cast<ShardEngine*>(user)->wait() ? 0 : 2; }

attnc_shard_engine engineOf(ShardEngine& engine) {
  auto all = sized<attnc_shard_engine>();
  all.exchange = exchange, all.wait = wait, all.user = &engine;
  return all;
}

struct Problem {
  std::vector<float> q, out;
  Owned<attnc_mod> mod = parse("q_idx >= kv_idx");
  Owned<attnc_shard_plan> plan;

  Problem() : q(size_t(kLength * kColumns)), out(q.size()) {
    for (size_t i = 0; i < q.size(); ++i) q[i] = float(i * 7919 % 101) / 50 - 1;
    attnc_tensor view = tensor(ATTNC_DTYPE_F32, {1, 1, kLength, kColumns}, q.data()), to = view;
    to.data = out.data();
    auto operands = sized<attnc_operands>();
    operands.q = operands.k = operands.v = &view;
    auto outputs = sized<attnc_outputs>();
    outputs.out = &to;
    TAKE(attnc_compute_on_cpu(mod.get(), &operands, &outputs));
    auto mask = sized<attnc_shard_mask>();
    mask.mod = mod.get();
    auto options = sized<attnc_shard_options>();
    options.layout = ATTNC_SHARD_ZIGZAG;
    options.block = 64;
    attnc_shard_plan* made = nullptr;
    TAKE(attnc_shard_plan_create(&mask, 1, &kProblem, 2, &options, &made));
    plan.reset(made);
  }
};

/// The rows of one rank.
struct Rank {
  attnc_shard_tokens tokens = sized<attnc_shard_tokens>();
  std::vector<float> q, wanted, out;
  attnc_tensor view = {}, to = {};
  attnc_operands operands = sized<attnc_operands>();
  attnc_outputs outputs = sized<attnc_outputs>();

  Rank(const Problem& problem, size_t rank) {
    TAKE(attnc_shard_plan_get_tokens(problem.plan.get(), rank, &tokens));
    for (size_t i = 0; i < tokens.row_count; ++i)
      for (int64_t at = tokens.rows[i].begin * kColumns; at < tokens.rows[i].end * kColumns; ++at) {
        q.push_back(problem.q[size_t(at)]);
        wanted.push_back(problem.out[size_t(at)]);
      }
    out.resize(q.size());
    view = tensor(ATTNC_DTYPE_F32, {1, 1, int64_t(q.size()) / kColumns, kColumns}, q.data());
    to = view;
    to.data = out.data();
    operands.q = operands.k = operands.v = &view;
    outputs.out = &to;
  }
  Rank(const Rank&) = delete;

  attnc_status prepare(const Problem& problem, size_t rank, attnc_sharded** sharded) const {
    return attnc_sharded_prepare(nullptr, problem.mod.get(), problem.plan.get(), 0, rank, &operands, &outputs, nullptr,
                                 sharded);
  }
};

} // namespace

TEST_CASE("ranks compute what one process does, by an engine in C", "[c]") {
  const Problem problem;
  Rank ranks[] = {{problem, 0}, {problem, 1}};
  attnc::test::Post post;
  const attnc::Status done = attnc::test::onRanks(2, [&](int at) -> attnc::Status {
    Rank& rank = ranks[at];
    ShardEngine carrier = post.engineOf(at);
    const attnc_shard_engine engine = engineOf(carrier);
    attnc_sharded* sharded = nullptr;
    size_t bytes = 0;
    attnc_status status = rank.prepare(problem, size_t(at), &sharded);
    if (!status) status = attnc_sharded_workspace_bytes(sharded, &bytes);
    std::vector<char> memory(bytes + 256);
    void* workspace = memory.data() + 256 - reinterpret_cast<uintptr_t>(memory.data()) % 256;
    if (!status) status = attnc_sharded_initialise(sharded, &rank.operands, workspace, nullptr);
    if (!status)
      status = attnc_sharded_launch(sharded, &rank.operands, &rank.outputs, &engine, workspace, nullptr, nullptr);
    attnc_sharded_destroy(sharded);
    return status ? attnc::Status(attnc::Error::environment(attnc_last_error())) : attnc::Status();
  });
  if (!done) FAIL(done.error().message);
  for (const Rank& rank : ranks)
    for (size_t i = 0; i < rank.out.size(); ++i)
      if (std::abs(rank.out[i] - rank.wanted[i]) > 1e-5) FAIL("element " << i);
}

TEST_CASE("a rank's launch tells what its engine returned, and what is missing", "[c]") {
  const Problem problem;
  const Rank rank(problem, 0);
  attnc_sharded* made = nullptr;
  REFUSED(ATTNC_ERROR_ARGUMENT, "2", rank.prepare(problem, 2, &made));
  REFUSED(
      ATTNC_ERROR_ARGUMENT, "plan is NULL",
      attnc_sharded_prepare(nullptr, problem.mod.get(), nullptr, 0, 0, &rank.operands, &rank.outputs, nullptr, &made));
  TAKE(rank.prepare(problem, 0, &made));
  const Owned<attnc_sharded> sharded(made);
  size_t bytes = 0;
  TAKE(attnc_sharded_workspace_bytes(sharded.get(), &bytes));
  std::vector<char> memory(bytes + 256);
  void* workspace = memory.data() + 256 - reinterpret_cast<uintptr_t>(memory.data()) % 256;
  TAKE(attnc_sharded_initialise(sharded.get(), &rank.operands, workspace, nullptr));
  const auto launch = [&](const attnc_shard_engine* engine) {
    return attnc_sharded_launch(sharded.get(), &rank.operands, &rank.outputs, engine, workspace, nullptr, nullptr);
  };
  attnc_shard_engine engine = sized<attnc_shard_engine>();
  REFUSED(ATTNC_ERROR_ARGUMENT, "engine is NULL", launch(nullptr));
  REFUSED(ATTNC_ERROR_ARGUMENT, "engine.exchange is NULL", launch(&engine));
  engine.exchange = [](void*, const attnc_shard_message*, size_t, const attnc_shard_message*, size_t, attnc_stream) {
    return int32_t(17);
  };
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "the engine's exchange returned 17", launch(&engine));
  engine.struct_size = 24;
  REFUSED(ATTNC_ERROR_ARGUMENT, "engine has struct_size 24, expected 32", launch(&engine));
  REFUSED(ATTNC_ERROR_ARGUMENT, "sharded is NULL", attnc_sharded_workspace_bytes(nullptr, &bytes));
}
