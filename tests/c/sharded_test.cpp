// Attention of ranks by a plan of shards, through the C interface.
#include "calls.h"
#include "shard/engine.h"

#include <cmath>
#include <vector>

using namespace ctest;
using attnc::ShardEngine;
using attnc::ShardMessage;

namespace {

constexpr int64_t kLength = 150, kHeads = 2, kColumns = 8, kRow = kHeads * kColumns;
constexpr attnc_problem kProblem = {1, kHeads, kHeads, kLength, kLength};

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

/// Tensors of both passes, of some tokens. k and v are q.
struct Tensors {
  std::vector<float> q, out, dOut, dQ, dK, dV, lse, dSlopes = std::vector<float>(kHeads);
  std::vector<attnc_tensor> views;
  attnc_capture slopes, dCapture;
  attnc_operands operands = sized<attnc_operands>();
  attnc_outputs outputs = sized<attnc_outputs>();
  attnc_backward_operands backward = sized<attnc_backward_operands>();
  attnc_backward_outputs gradients = sized<attnc_backward_outputs>();

  /// Copies the tokens [begin, end) of another one, or draws these.
  Tensors(const attnc_shard_interval* tokens, size_t count, const Tensors* from = nullptr) {
    for (size_t i = 0; i < count; ++i)
      for (int64_t at = tokens[i].begin * kRow; at < tokens[i].end * kRow; ++at) {
        q.push_back(from ? from->q[size_t(at)] : float(at * 7919 % 101) / 50 - 1);
        dOut.push_back(from ? from->dOut[size_t(at)] : float(at * 104729 % 97) / 48 - 1);
      }
    for (std::vector<float>* one : {&out, &dQ, &dK, &dV}) one->resize(q.size());
    const int64_t rows = int64_t(q.size()) / kRow;
    lse.resize(size_t(kHeads * rows));
    static float values[kHeads] = {0.05F, 0.01F};
    for (std::vector<float>* one : {&q, &out, &dOut, &dQ, &dK, &dV}) {
      attnc_tensor view = tensor(ATTNC_DTYPE_F32, {1, kHeads, rows, kColumns}, one->data());
      view.stride[1] = kColumns, view.stride[2] = kRow;
      views.push_back(view);
    }
    views.push_back(tensor(ATTNC_DTYPE_F32, {1, kHeads, rows}, lse.data()));
    views.push_back(tensor(ATTNC_DTYPE_F32, {kHeads}, values));
    views.push_back(tensor(ATTNC_DTYPE_F32, {kHeads}, dSlopes.data()));
    slopes = capture("slopes", &views[7]), dCapture = capture("slopes", &views[8]);
    operands.q = operands.k = operands.v = &views[0];
    operands.captures = &slopes, operands.capture_count = 1;
    outputs.out = &views[1], outputs.lse = &views[6];
    backward.forward = &operands;
    backward.out = outputs.out, backward.lse = outputs.lse, backward.dout = &views[2];
    gradients.dq = &views[3], gradients.dk = &views[4], gradients.dv = &views[5];
    gradients.captures = &dCapture, gradients.capture_count = 1;
  }
  Tensors(const Tensors&) = delete;
};

constexpr attnc_shard_interval kAll = {0, kLength};

/// A problem that one process has computed, and its plan.
struct Problem : Tensors {
  Owned<attnc_mod> mod = parse("slopes: f32[H]\n"
                               "def score_mod(score, b, h, q_idx, kv_idx):\n"
                               "    return score + slopes[h] * (kv_idx - q_idx)\n"
                               "def mask_mod(b, h, q_idx, kv_idx):\n    return q_idx >= kv_idx\n");
  int world;
  Owned<attnc_shard_plan> plan;

  explicit Problem(int world = 2, int groups = 1) : Tensors(&kAll, 1), world(world) {
    TAKE(attnc_compute_on_cpu(mod.get(), &operands, &outputs));
    TAKE(attnc_compute_backward_on_cpu(mod.get(), &backward, &gradients));
    auto mask = sized<attnc_shard_mask>();
    mask.mod = mod.get();
    mask.captures = &slopes, mask.capture_count = 1;
    auto options = sized<attnc_shard_options>();
    options.layout = ATTNC_SHARD_ZIGZAG;
    options.block = 64;
    options.head_groups = groups;
    attnc_shard_plan* made = nullptr;
    TAKE(attnc_shard_plan_create(&mask, 1, &kProblem, world, &options, &made));
    plan.reset(made);
  }

  attnc_shard_tokens tokens(int rank) const {
    auto tokens = told<attnc_shard_tokens>(attnc_shard_plan_get_tokens, plan.get(), size_t(rank));
    return tokens;
  }
};

/// The rows of one rank.
struct Rank : Tensors {
  attnc_shard_tokens tokens;

  Rank(const Problem& problem, int rank, attnc_shard_tokens tokens)
      : Tensors(tokens.rows, tokens.row_count, &problem), tokens(tokens), at(size_t(rank)) {}
  Rank(const Problem& problem, int rank) : Rank(problem, rank, problem.tokens(rank)) {}

  attnc_status prepare(const Problem& problem, size_t rank, attnc_sharded** sharded) const {
    return attnc_sharded_prepare(nullptr, problem.mod.get(), problem.plan.get(), 0, rank, &operands, &outputs, nullptr,
                                 sharded);
  }

  /// Runs the forward pass, or both.
  attnc_status run(const Problem& problem, const attnc_shard_engine& engine, bool trains) {
    attnc_sharded* sharded = nullptr;
    size_t bytes = 0, keptBytes = 0;
    attnc_status status = trains ? attnc_sharded_prepare_training(nullptr, problem.mod.get(), problem.plan.get(), 0, at,
                                                                  &backward, &outputs, &gradients, nullptr, &sharded)
                                 : prepare(problem, at, &sharded);
    if (!status) status = attnc_sharded_workspace_bytes(sharded, &bytes);
    if (!status) status = attnc_sharded_kept_bytes(sharded, &keptBytes);
    std::vector<char> memory(bytes + 256), keptMemory(keptBytes + 256);
    const auto aligned = [](std::vector<char>& one) -> void* {
      return one.data() + 256 - reinterpret_cast<uintptr_t>(one.data()) % 256;
    };
    void *workspace = aligned(memory), *kept = aligned(keptMemory);
    if (!status) status = attnc_sharded_initialise(sharded, &operands, workspace, nullptr);
    if (!status && !trains)
      status = attnc_sharded_launch(sharded, &operands, &outputs, &engine, workspace, nullptr, nullptr);
    if (!status && trains)
      status = attnc_sharded_launch_training(sharded, &operands, &outputs, &engine, workspace, nullptr, nullptr, kept);
    if (!status && trains)
      status =
          attnc_sharded_launch_backward(sharded, &backward, &gradients, &engine, workspace, nullptr, nullptr, kept);
    attnc_sharded_destroy(sharded);
    return status;
  }

  void compare(const std::vector<float>& found, const std::vector<float>& whole) const {
    size_t i = 0;
    for (size_t j = 0; j < tokens.row_count; ++j)
      for (int64_t from = tokens.rows[j].begin * kRow; from < tokens.rows[j].end * kRow; ++from, ++i)
        if (!(std::abs(found[i] - whole[size_t(from)]) < 1e-5)) FAIL("element " << i << " of rank " << at);
  }

private:
  size_t at;
};

} // namespace

TEST_CASE("ranks compute what one process does, by an engine in C", "[c]") {
  for (const auto& [world, groups] : {std::pair(2, 1), {2, 2}, {4, 2}})
    for (const bool trains : {false, true}) {
      CAPTURE(world, groups, trains);
      const Problem problem(world, groups);
      std::vector<std::unique_ptr<Rank>> ranks;
      for (int rank = 0; rank < world; ++rank) ranks.push_back(std::make_unique<Rank>(problem, rank));
      attnc::test::Post post;
      const attnc::Status done = attnc::test::onRanks(world, [&](int at) -> attnc::Status {
        ShardEngine carrier = post.engineOf(at);
        const attnc_status status = ranks[size_t(at)]->run(problem, engineOf(carrier), trains);
        return status ? attnc::Status(attnc::Error::environment(attnc_last_error())) : attnc::Status();
      });
      if (!done) FAIL(done.error().message);
      std::vector<float> dSlopes(kHeads);
      for (const auto& rank : ranks) {
        rank->compare(rank->out, problem.out);
        for (int64_t i = 0; i < kHeads; ++i) dSlopes[size_t(i)] += rank->dSlopes[size_t(i)];
        if (!trains) continue;
        rank->compare(rank->dQ, problem.dQ);
        rank->compare(rank->dK, problem.dK);
        rank->compare(rank->dV, problem.dV);
      }
      if (!trains) continue;
      for (size_t i = 0; i < dSlopes.size(); ++i)
        CHECK(std::abs(dSlopes[i] - problem.dSlopes[i]) < 1e-4 * std::max(1.F, std::abs(problem.dSlopes[i])));
    }
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
  REFUSED(ATTNC_ERROR_ARGUMENT, "bytes is NULL", attnc_sharded_kept_bytes(sharded.get(), nullptr));
  TAKE(attnc_sharded_kept_bytes(sharded.get(), &bytes));
  CHECK(bytes == 0);
  engine = sized<attnc_shard_engine>();
  engine.exchange = exchange;
  const auto backward = [&](const attnc_backward_operands* operands, const attnc_backward_outputs* gradients) {
    return attnc_sharded_launch_backward(sharded.get(), operands, gradients, &engine, workspace, nullptr, nullptr,
                                         nullptr);
  };
  REFUSED(ATTNC_ERROR_ARGUMENT, "operands is NULL", backward(nullptr, &rank.gradients));
  REFUSED(ATTNC_ERROR_ARGUMENT, "outputs is NULL", backward(&rank.backward, nullptr));
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "only the forward pass is prepared", backward(&rank.backward, &rank.gradients));
  made = nullptr;
  const auto train = [&](const attnc_backward_operands* operands, const attnc_backward_outputs* gradients) {
    return attnc_sharded_prepare_training(nullptr, problem.mod.get(), problem.plan.get(), 0, 0, operands, &rank.outputs,
                                          gradients, nullptr, &made);
  };
  REFUSED(ATTNC_ERROR_ARGUMENT, "operands is NULL", train(nullptr, &rank.gradients));
  REFUSED(ATTNC_ERROR_ARGUMENT, "outputs is NULL", train(&rank.backward, nullptr));
  CHECK(made == nullptr);
}
