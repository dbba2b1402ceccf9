// Attention of ranks by a plan of shards: several ranks on one GPU, one after another, against the reference.
#include "gpu.h"

#include "attnc/reference.h"
#include "jit/measure.h"
#include "jit/stream_order.h"
#include "support/element.h"

#include <cmath>
#include <limits>
#include <random>

using namespace attnc;
using namespace attnc::gputest;

namespace {

constexpr int64_t kHeadDim = 64;

/// bf16 rows of memory [B, rows, heads, kHeadDim], on the host and on the GPU.
struct Rows {
  std::vector<uint16_t> host;
  device::Buffer device;
  TensorView hostView, view;

  Rows(int64_t batch, int64_t heads, int64_t rows)
      : host(size_t(batch * heads * rows * kHeadDim), 0xffff),
        device(gputest::take(device::Buffer::allocate(host.size() * 2))) {
    hostView = TensorView::contiguous(host.data(), DType::BF16, {batch, heads, rows, kHeadDim});
    hostView.stride = {rows * heads * kHeadDim, kHeadDim, heads * kHeadDim, 1};
    view = hostView;
    view.data = device.data();
  }
  void upload() { gputest::take(device.upload(host.data(), host.size() * 2)); }
  void copy(const Rows& from, const std::vector<ShardInterval>& tokens) {
    const int64_t row = view.shape[1] * kHeadDim;
    for (int64_t b = 0, to = 0; b < view.shape[0]; ++b)
      for (const ShardInterval& interval : tokens)
        for (int64_t token = interval.begin; token < interval.end; ++token, ++to)
          std::copy_n(from.host.data() + (b * from.view.shape[2] + token) * row, row, host.data() + to * row);
    upload();
  }
};

void draw(Rows& rows, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t i = 0; i < rows.host.size(); ++i)
    writeElement(rows.host.data(), DType::BF16, int64_t(i), double(int64_t(random() % 2001) - 1000) / 500);
}

/// What each rank sends to each other, in order. Ranks send what they were given only, so that a first round collects
/// all messages, and a second one delivers them.
using Letters = std::map<std::pair<int, int>, std::vector<std::vector<char>>>;

ShardEngine collector(Letters& letters, int rank) {
  return {.exchange = [&letters, rank](const std::vector<ShardMessage>& sends, const std::vector<ShardMessage>&,
                                       Stream stream) -> Status {
    for (const ShardMessage& message : sends) {
      std::vector<char>& letter = letters[{rank, message.peer}].emplace_back(message.bytes);
      if (Status copied = jit::bringBack(letter.data(), message.data, message.bytes, stream); !copied) return copied;
    }
    return {};
  }};
}

ShardEngine deliverer(Letters& letters, int rank) {
  return {.exchange = [&letters, rank](const std::vector<ShardMessage>&, const std::vector<ShardMessage>& receives,
                                       Stream stream) -> Status {
    for (const ShardMessage& message : receives) {
      std::vector<std::vector<char>>& box = letters[{message.peer, rank}];
      if (box.empty() || box[0].size() != message.bytes) return Error::environment("a message is missing");
      if (Status copied = jit::upload(message.data, box[0].data(), message.bytes, stream); !copied) return copied;
      box.erase(box.begin());
    }
    return {};
  }};
}

void check(const std::string& text, const ProblemShape& shape, int world, ShardLayout layout) {
  CAPTURE(text, shape.qLen, world, shardLayoutName(layout));
  const Mod mod = take(Mod::parse(text));
  Rows q(shape.batch, shape.qHeads, shape.qLen), k(shape.batch, shape.kvHeads, shape.kvLen),
      v(shape.batch, shape.kvHeads, shape.kvLen), out(shape.batch, shape.qHeads, shape.qLen);
  draw(q, 1), draw(k, 2), draw(v, 3);
  std::vector<float> lse(size_t(shape.batch * shape.qHeads * shape.qLen));
  take(computeOnCpu(mod, {.q = q.hostView, .k = k.hostView, .v = v.hostView},
                    {.out = out.hostView,
                     .lse = TensorView::contiguous(lse.data(), DType::F32, {shape.batch, shape.qHeads, shape.qLen})}));
  ShardOptions options{.layout = layout, .stages = 3};
  const ShardPlan plan = take(ShardPlan::make({{&mod}}, shape, world, options));
  const device::Stream stream = take(device::Stream::create()), transfers = take(device::Stream::create());
  Letters letters;
  for (const bool delivers : {false, true})
    for (int rank = 0; rank < world; ++rank) {
      const ShardTokens& own = plan.ranks[size_t(rank)];
      const int64_t keys = own.keyCount();
      Rows mine(shape.batch, shape.qHeads, own.rowCount()), ownK(shape.batch, shape.kvHeads, keys),
          ownV(shape.batch, shape.kvHeads, keys), to(shape.batch, shape.qHeads, own.rowCount()),
          wanted(shape.batch, shape.qHeads, own.rowCount());
      mine.copy(q, own.rows), ownK.copy(k, own.keys), ownV.copy(v, own.keys), wanted.copy(out, own.rows), to.upload();
      std::vector<float> found(size_t(shape.batch * shape.qHeads * own.rowCount()));
      const device::Buffer foundLse = take(device::Buffer::allocate(found.size() * 4));
      const Operands operands{.q = mine.view, .k = ownK.view, .v = ownV.view};
      const Outputs outputs{
          .out = to.view,
          .lse = TensorView::contiguous(foundLse.data(), DType::F32, {shape.batch, shape.qHeads, own.rowCount()})};
      const auto sharded = take(ShardedAttention::prepare(&gpu()->compiler, mod, plan, 0, rank, operands, outputs));
      device::Buffer workspace = take(device::Buffer::allocate(sharded.workspaceBytes()));
      take(workspace.fill(0xff)); // NaN
      take(sharded.initialise(operands, workspace.data(), stream.get()));
      const ShardEngine engine = delivers ? deliverer(letters, rank) : collector(letters, rank);
      take(sharded.launch(operands, outputs, engine, workspace.data(), stream.get(), transfers.get()));
      take(stream.synchronize());
      if (!delivers) continue;
      take(to.device.download(to.host.data(), to.host.size() * 2));
      take(foundLse.download(found.data(), found.size() * 4));
      double largest = 0;
      const auto see = [&](double a, double b) {
        const double error = a == b ? 0 : std::abs(a - b);
        if (!(error <= largest)) largest = std::isnan(error) ? 1e9 : error;
      };
      for (size_t i = 0; i < to.host.size(); ++i) see(bf16ToFloat(to.host[i]), bf16ToFloat(wanted.host[i]));
      for (int64_t head = 0, i = 0; head < shape.batch * shape.qHeads; ++head)
        for (int64_t row = 0; row < own.rowCount(); ++row, ++i)
          see(found[size_t(i)], lse[size_t(head * shape.qLen + own.tokenOfRow(row))]);
      CHECK(largest < 0.03); // inputs are up to 2, and parts are rounded to bf16
    }
  for (const auto& [ranks, box] : letters) CHECK(box.empty());
}

} // namespace

TEST_CASE("ranks on a GPU compute what one process does", "[gpu]") {
  ATTNC_NEED_GPU();
  const std::string kAlibi = "def score_mod(score, b, h, q_idx, kv_idx):\n    return score + (kv_idx - q_idx) / 64\n"
                             "def mask_mod(b, h, q_idx, kv_idx):\n    return ";
  check(kAlibi + "q_idx >= kv_idx\n", {2, 4, 2, 1001, 1001}, 4, ShardLayout::ZigZag);
  check(kAlibi + "q_idx >= kv_idx\n", {1, 2, 2, 700, 700}, 3, ShardLayout::Greedy);
  check(kAlibi + "(q_idx >= kv_idx) & (q_idx - kv_idx < 150)\n", {1, 4, 1, 1500, 1500}, 4, ShardLayout::Contiguous);
  check(kAlibi + "kv_idx > q_idx + 300\n", {1, 2, 1, 640, 640}, 4, ShardLayout::Contiguous);
  check(kAlibi + "q_idx < kv_idx - 5000\n", {1, 2, 1, 200, 200}, 2, ShardLayout::Contiguous);
  check(kAlibi + "q_idx >= kv_idx\n", {1, 2, 1, 3, 3}, 5, ShardLayout::Contiguous);
}
