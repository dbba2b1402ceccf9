// Attention of ranks by a plan of shards, and its gradients: ranks are threads that share one GPU, against the
// reference.
#include "gpu.h"

#include "api/drawn_captures.h"
#include "jit/measure.h"
#include "jit/stream_order.h"
#include "shard/world.h"

#include <list>

using namespace attnc;
using namespace attnc::gputest;
using test::Difference;
using test::RankTensors;

namespace {

/// Copies of host memory on the GPU.
class OnGpu {
public:
  /// Returns the view of a copy. `bytes`: of the memory that the view covers.
  Expected<TensorView> copy(const TensorView& view, size_t bytes) {
    auto buffer = device::Buffer::allocate(bytes);
    if (!buffer) return buffer.error();
    if (Status done = buffer->upload(view.data, bytes); !done) return done.error();
    TensorView other = view;
    other.data = buffer->data();
    copies.push_back({*std::move(buffer), view.data});
    return other;
  }
  /// Brings all copies back.
  Status download() const {
    for (const Copy& copy : copies)
      if (Status done = copy.buffer.download(copy.host, copy.buffer.bytes()); !done) return done;
    return {};
  }

private:
  struct Copy {
    device::Buffer buffer;
    void* host;
  };
  std::list<Copy> copies;
};

test::MessageMemory deviceMemory() {
  return {.read = jit::bringBack, .write = [](void* data, const void* host, size_t bytes, Stream stream) {
            return jit::upload(data, host, bytes, stream);
          }};
}

/// What a rank's launches read and write.
struct Tensors {
  BackwardOperands operands;
  Outputs outputs;
  BackwardOutputs gradients;
  Captures captures, dCaptures;

  Status upload(RankTensors& mine, const Captures& given, OnGpu& gpu) {
    const auto copy = [&](TensorView& to, const TensorView& from, size_t bytes) -> Status {
      auto made = gpu.copy(from, bytes);
      if (!made) return made.error();
      to = *made;
      return {};
    };
    operands = mine.operands(given), outputs = mine.outputs(), gradients = mine.gradients();
    for (const auto& [to, rows] : {std::pair(&operands.q, &mine.q),
                                   {&operands.k, &mine.k},
                                   {&operands.v, &mine.v},
                                   {&operands.out, &mine.out},
                                   {&operands.dOut, &mine.dOut},
                                   {&*gradients.dQ, &mine.dQ},
                                   {&*gradients.dK, &mine.dK},
                                   {&*gradients.dV, &mine.dV}})
      if (Status done = copy(*to, rows->view, rows->memory.size()); !done) return done;
    for (const auto& [to, numbers] : {std::pair(&operands.lse, &mine.lse), {&*operands.dLse, &mine.dLse}})
      if (Status done = copy(*to, numbers->view, numbers->values.size() * 4); !done) return done;
    outputs.out = operands.out, outputs.lse = operands.lse;
    const auto copyAll = [&](const Captures& from, Captures& to) -> Status {
      to = from;
      for (const auto& [name, item] : from.all())
        if (const auto* tensor = std::get_if<TensorView>(&item)) {
          TensorView view;
          const int64_t bytes = tensor->elements() * dtypeBytes(tensor->dtype); // they are contiguous
          if (Status done = copy(view, *tensor, size_t(bytes)); !done) return done;
          to.set(name, view);
        }
      return {};
    };
    if (Status done = copyAll(given, captures); !done) return done;
    if (Status done = copyAll(mine.dCaptures.captures, dCaptures); !done) return done;
    operands.captures = &captures, gradients.captures = &dCaptures;
    return {};
  }
};

/// Runs both passes of a rank, or an inference. The workspace is full of NaN.
Status runRank(const test::Whole& whole, const ShardPlan& plan, int rank, RankTensors& mine, const ShardEngine& engine,
               bool trains, const PrepareOptions& options) {
  if (Status current = gpu()->context.makeCurrent(); !current) return current;
  const auto stream = device::Stream::create(), transfers = device::Stream::create();
  if (!stream || !transfers) return Error::environment("no stream");
  OnGpu memory;
  Tensors all;
  if (Status done = all.upload(mine, whole.captures, memory); !done) return done;
  const Compiler* const compiler = &gpu()->compiler;
  auto sharded =
      trains ? ShardedAttention::prepareTraining(compiler, whole.mod, plan, 0, rank, all.operands, all.outputs,
                                                 all.gradients, options)
             : ShardedAttention::prepare(compiler, whole.mod, plan, 0, rank, all.operands, all.outputs, options);
  if (!sharded) return sharded.error();
  auto workspace = device::Buffer::allocate(sharded->workspaceBytes());
  auto kept = device::Buffer::allocate(sharded->keptBytes());
  if (!workspace || !kept) return Error::environment("no memory");
  for (device::Buffer* buffer : {&*workspace, &*kept})
    if (Status done = buffer->fill(0xff); !done) return done;
  Status done = sharded->initialise(all.operands, workspace->data(), stream->get());
  if (done)
    done = sharded->launch(all.operands, all.outputs, engine, workspace->data(), stream->get(), transfers->get(),
                           kept->data());
  if (done && trains)
    done = sharded->launchBackward(all.operands, all.gradients, engine, workspace->data(), stream->get(),
                                   transfers->get(), kept->data());
  if (done) done = stream->synchronize();
  return done ? memory.download() : std::move(done);
}

void check(const std::string& text, const ProblemShape& shape, int world, ShardLayout layout, int groups = 1,
           DType dtype = DType::BF16) {
  CAPTURE(text, shape.qLen, world, shardLayoutName(layout), groups, dtypeName(dtype));
  const Mod mod = take(Mod::parse(text));
  const test::DrawnCaptures drawn(mod, shape, 9, 1);
  test::Whole whole(shape, mod, drawn.captures, dtype, {64, 64});
  take(whole.compute());
  ShardOptions options{.layout = layout, .stages = 3, .headGroups = groups};
  const ShardPlan plan = take(ShardPlan::make({{&mod, &drawn.captures}}, shape, world, options));
  for (const bool trains : {false, true}) {
    CAPTURE(trains);
    test::Post post(deviceMemory());
    std::list<RankTensors> ranks;
    std::vector<RankTensors*> at;
    for (const ShardTokens& own : plan.ranks) at.push_back(&ranks.emplace_back(whole, own));
    take(test::onRanks(world, [&](int rank) -> Status {
      return runRank(whole, plan, rank, *at[size_t(rank)], post.engineOf(rank), trains, {.deterministic = groups > 1});
    }));
    CHECK(post.isEmpty());
    Difference largest;
    std::map<std::string, std::vector<double>> sums;
    for (size_t rank = 0; rank < at.size(); ++rank) {
      largest.join(at[rank]->results(whole, plan.ranks[rank]));
      if (!trains) continue;
      largest.join(at[rank]->gradients(whole, plan.ranks[rank]));
      for (const auto& [name, values] : at[rank]->dCaptures.values) {
        sums[name].resize(values.size());
        for (size_t i = 0; i < values.size(); ++i) sums[name][i] += values[i];
      }
    }
    for (const auto& [name, values] : sums) {
      const std::vector<float>& wanted = whole.tensors.dCaptures.values.at(name);
      double size = 0;
      for (const float value : wanted) size = std::max(size, std::abs(double(value)));
      for (size_t i = 0; i < values.size(); ++i) Difference::see(largest.gradients, values[i], wanted[i], size);
    }
    CHECK(largest.results < 0.03); // inputs are up to 2, and parts are rounded
    CHECK(largest.gradients < 0.03);
  }
}

} // namespace

GPU_TEST_CASE("ranks on a GPU compute what one process does", "[gpu]") {
  const std::string kAlibi = "bias: f32[H, KV_LEN]\ndef score_mod(score, b, h, q_idx, kv_idx):\n"
                             "    return score + (kv_idx - q_idx) / 64 + bias[h, kv_idx]\n"
                             "def mask_mod(b, h, q_idx, kv_idx):\n    return ";
  const std::string kPadded = "def score_mod(score, b, h, q_idx, kv_idx):\n"
                              "    return where((kv_idx < 500) & (q_idx >= kv_idx), score, -1e9)\n";
  for (const int groups : {1, 2}) {
    check(kAlibi + "q_idx >= kv_idx\n", {2, 4, 2, 701, 701}, 4, ShardLayout::ZigZag, groups);
    check(kAlibi + "(q_idx + kv_idx) % 300 < 100\n", {1, 4, 4, 640, 640}, 2, ShardLayout::Contiguous, groups);
    check(kPadded, {1, 4, 2, 701, 701}, 4, ShardLayout::ZigZag, groups);
  }
  check(kAlibi + "q_idx >= kv_idx\n", {1, 2, 2, 700, 700}, 3, ShardLayout::Greedy, 1, DType::F16);
  check(kAlibi + "(q_idx >= kv_idx) & (q_idx - kv_idx < 150)\n", {1, 4, 1, 1500, 1500}, 4, ShardLayout::Contiguous);
  check(kAlibi + "kv_idx > q_idx + 300\n", {1, 2, 1, 640, 640}, 4, ShardLayout::Contiguous);
  check(kAlibi + "q_idx < kv_idx - 5000\n", {1, 2, 1, 200, 200}, 2, ShardLayout::Contiguous);
  check(kAlibi + "q_idx >= kv_idx\n", {1, 2, 1, 3, 3}, 5, ShardLayout::Contiguous);
  check(kAlibi + "q_idx >= kv_idx\n", {1, 2, 2, 200, 200}, 2, ShardLayout::ZigZag, 1, DType::F32);
}
