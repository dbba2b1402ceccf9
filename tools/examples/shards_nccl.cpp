// Attention of a sequence that is divided among the GPUs of one host, and its gradients, from C++: a thread for each
// GPU, NCCL between them.
//   shards_nccl [length, default 8192]
// Compares with one GPU that computes the whole.
#include <attnc/attnc.h>

#include <cuda_runtime.h>
#include <nccl.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int64_t kHeads = 8, kKvHeads = 2, kHeadDim = 128;

constexpr const char* kMod = "slopes: f32[H]\n"
                             "def score_mod(score, b, h, q_idx, kv_idx):\n"
                             "    return score + slopes[h] * (kv_idx - q_idx)\n"
                             "def mask_mod(b, h, q_idx, kv_idx):\n"
                             "    return q_idx >= kv_idx\n";

[[noreturn]] void fail(const attnc::Error& error) {
  std::fprintf(stderr, "%s\n%s\n", error.message.c_str(), error.remedy.c_str());
  std::exit(1); // the other threads would wait
}

template <class T> T take(attnc::Expected<T> value) {
  if (!value) fail(value.error());
  return *std::move(value);
}

void check(const attnc::Status& status) {
  if (!status) fail(status.error());
}

void check(cudaError_t result) {
  if (result != cudaSuccess) fail(attnc::Error::environment(cudaGetErrorString(result)));
}

attnc::Status statusOf(ncclResult_t result) {
  if (result == ncclSuccess) return {};
  return attnc::Error::environment(ncclGetErrorString(result));
}

/// Device memory of the current GPU.
struct Buffer {
  void* data = nullptr;
  explicit Buffer(size_t bytes) { check(cudaMalloc(&data, std::max<size_t>(bytes, 1))); }
  Buffer(const Buffer&) = delete;
  ~Buffer() { cudaFree(data); }
};

/// Moves rows on a stream. Messages between two ranks match in their order.
attnc::ShardEngine engineOf(ncclComm_t communicator) {
  return {.exchange = [communicator](const std::vector<attnc::ShardMessage>& sends,
                                     const std::vector<attnc::ShardMessage>& receives,
                                     attnc::Stream stream) -> attnc::Status {
    ncclResult_t result = ncclGroupStart();
    for (const attnc::ShardMessage& message : sends)
      if (result == ncclSuccess)
        result = ncclSend(message.data, message.bytes, ncclUint8, message.peer, communicator, stream);
    for (const attnc::ShardMessage& message : receives)
      if (result == ncclSuccess)
        result = ncclRecv(message.data, message.bytes, ncclUint8, message.peer, communicator, stream);
    const ncclResult_t ended = ncclGroupEnd();
    return statusOf(result == ncclSuccess ? ended : result);
  }};
}

using Intervals = std::vector<attnc::ShardInterval>;

/// bf16 rows [tokens, heads, kHeadDim] in device memory, viewed as [1, heads, tokens, kHeadDim].
struct Rows {
  int64_t tokens, heads;
  std::vector<uint16_t> host;
  Buffer device;

  Rows(int64_t tokens, int64_t heads)
      : tokens(tokens), heads(heads), host(size_t(tokens * heads * kHeadDim)), device(host.size() * 2) {}

  /// Fills the rows of some tokens with numbers that are the same on each rank.
  void draw(const Intervals& intervals, uint32_t seed) {
    size_t to = 0;
    for (const attnc::ShardInterval& interval : intervals)
      for (int64_t at = interval.begin * heads * kHeadDim; at < interval.end * heads * kHeadDim; ++at) {
        uint32_t x = uint32_t(at) * 2654435761U + seed * 40503U;
        x = (x ^ x >> 15) * 2246822519U;
        host[to++] = uint16_t(std::bit_cast<uint32_t>(float(x >> 8) / (1 << 23) - 1) >> 16);
      }
    check(cudaMemcpy(device.data, host.data(), host.size() * 2, cudaMemcpyHostToDevice));
  }
  /// Copies the rows of some tokens to where they belong in `whole`, [all tokens, heads, kHeadDim].
  void downloadTo(std::vector<uint16_t>& whole, const Intervals& intervals) {
    check(cudaMemcpy(host.data(), device.data, host.size() * 2, cudaMemcpyDeviceToHost));
    auto from = host.begin();
    for (const attnc::ShardInterval& interval : intervals) {
      const int64_t count = (interval.end - interval.begin) * heads * kHeadDim;
      std::copy_n(from, count, whole.begin() + interval.begin * heads * kHeadDim);
      from += count;
    }
  }

  attnc::TensorView view() const {
    attnc::TensorView view =
        attnc::TensorView::contiguous(device.data, attnc::DType::BF16, {1, heads, tokens, kHeadDim});
    view.stride = {tokens * heads * kHeadDim, kHeadDim, heads * kHeadDim, 1};
    return view;
  }
};

std::vector<float> slopesOfHeads() {
  std::vector<float> slopes(kHeads);
  for (size_t h = 0; h < slopes.size(); ++h) slopes[h] = std::exp2(-float(h) - 4);
  return slopes;
}

/// A number for each head, in memory of the host or of a GPU.
attnc::TensorView ofHeads(void* data) { return attnc::TensorView::contiguous(data, attnc::DType::F32, {kHeads}); }

/// What both passes give, of all tokens.
struct Results {
  std::vector<uint16_t> out, dQ, dK, dV;
  std::vector<float> dSlopes;

  explicit Results(int64_t length)
      : out(size_t(length * kHeads * kHeadDim)), dQ(out.size()), dK(size_t(length * kKvHeads * kHeadDim)),
        dV(dK.size()), dSlopes(kHeads) {}
};

/// The tensors of both passes: of a rank, or of the whole.
struct Problem {
  const Intervals &rows, &keys;
  Rows q, k, v, out, dOut, dQ, dK, dV;
  Buffer lse, slopes, dSlopes;
  attnc::Captures captures, dCaptures;
  attnc::BackwardOperands operands;
  attnc::Outputs outputs;
  attnc::BackwardOutputs gradients;

  Problem(const attnc::ShardTokens& tokens)
      : rows(tokens.rows), keys(tokens.keys), q(tokens.rowCount(), kHeads), k(tokens.keyCount(), kKvHeads),
        v(k.tokens, kKvHeads), out(q.tokens, kHeads), dOut(q.tokens, kHeads), dQ(q.tokens, kHeads),
        dK(k.tokens, kKvHeads), dV(k.tokens, kKvHeads), lse(size_t(q.tokens * kHeads) * 4), slopes(kHeads * 4),
        dSlopes(kHeads * 4) {
    q.draw(rows, 1), k.draw(keys, 2), v.draw(keys, 3);
    dOut.draw(rows, 4); // the gradient of a loss
    check(cudaMemcpy(slopes.data, slopesOfHeads().data(), kHeads * 4, cudaMemcpyHostToDevice));
    captures.set("slopes", ofHeads(slopes.data)), dCaptures.set("slopes", ofHeads(dSlopes.data));
    outputs = {.out = out.view(),
               .lse = attnc::TensorView::contiguous(lse.data, attnc::DType::F32, {1, kHeads, q.tokens})};
    operands.q = q.view(), operands.k = k.view(), operands.v = v.view(), operands.captures = &captures;
    operands.out = *outputs.out, operands.lse = *outputs.lse, operands.dOut = dOut.view();
    gradients = {.dQ = dQ.view(), .dK = dK.view(), .dV = dV.view(), .captures = &dCaptures};
  }
  Problem(const Problem&) = delete;

  void downloadTo(Results& results) {
    out.downloadTo(results.out, rows), dQ.downloadTo(results.dQ, rows);
    dK.downloadTo(results.dK, keys), dV.downloadTo(results.dV, keys);
  }
  void downloadSlopes(Results& results) {
    check(cudaMemcpy(results.dSlopes.data(), dSlopes.data, kHeads * 4, cudaMemcpyDeviceToHost));
  }
};

/// Computes both passes of a rank.
void computeRank(int rank, const attnc::ShardPlan& plan, const attnc::Mod& mod, ncclComm_t communicator,
                 Results& results) {
  check(cudaSetDevice(rank));
  Problem mine(plan.ranks[size_t(rank)]);
  const attnc::Compiler compiler;
  const auto sharded = take(attnc::ShardedAttention::prepareTraining(&compiler, mod, plan, 0, rank, mine.operands,
                                                                     mine.outputs, mine.gradients));
  const Buffer workspace(sharded.workspaceBytes()), kept(sharded.keptBytes());
  cudaStream_t stream, transfers;
  check(cudaStreamCreate(&stream));
  check(cudaStreamCreate(&transfers));
  check(sharded.initialise(mine.operands, workspace.data, stream));
  const attnc::ShardEngine engine = engineOf(communicator);
  check(sharded.launch(mine.operands, mine.outputs, engine, workspace.data, stream, transfers, kept.data));
  check(sharded.launchBackward(mine.operands, mine.gradients, engine, workspace.data, stream, transfers, kept.data));
  // Each rank has its part of the gradients of captures.
  check(statusOf(
      ncclAllReduce(mine.dSlopes.data, mine.dSlopes.data, kHeads, ncclFloat32, ncclSum, communicator, stream)));
  check(cudaStreamSynchronize(stream));
  mine.downloadTo(results);
  if (rank == 0) mine.downloadSlopes(results);
  check(cudaStreamDestroy(stream));
  check(cudaStreamDestroy(transfers));
}

/// Computes the whole on the first GPU.
Results computeWhole(const attnc::Mod& mod, int64_t length) {
  check(cudaSetDevice(0));
  const attnc::ShardTokens tokens{.rows = {{0, length}}, .keys = {{0, length}}};
  Problem whole(tokens);
  const attnc::Compiler compiler;
  const auto attention = take(compiler.prepareTraining(mod, whole.operands, whole.outputs, whole.gradients));
  const Buffer workspace(attention.workspaceBytes());
  check(attention.initialise(whole.operands, workspace.data, nullptr));
  check(attention.launch(whole.operands, whole.outputs, workspace.data, nullptr));
  check(attention.launchBackward(whole.operands, whole.gradients, workspace.data, nullptr));
  check(cudaDeviceSynchronize());
  Results results(length);
  whole.downloadTo(results), whole.downloadSlopes(results);
  return results;
}

float numberOf(float value) { return value; }
float numberOf(uint16_t bf16) { return std::bit_cast<float>(uint32_t(bf16) << 16); }

/// Returns whether the RMS of the difference is below a fiftieth: each stage rounds its part to bf16.
template <class T> bool areAlike(const char* name, const std::vector<T>& found, const std::vector<T>& wanted) {
  double error = 0, size = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    error += std::pow(double(numberOf(found[i])) - numberOf(wanted[i]), 2);
    size += std::pow(double(numberOf(wanted[i])), 2);
  }
  const double difference = std::sqrt(error / std::max(size, 1e-30));
  const bool alike = difference < 0.02; // false for NaN
  if (!alike) std::printf("%s differs by %.1e of its RMS\n", name, difference);
  return alike;
}

} // namespace

int main(int argc, char** argv) {
  const int64_t length = argc > 1 ? std::atoll(argv[1]) : 8192;
  int world = 0;
  if (cudaGetDeviceCount(&world) != cudaSuccess || world == 0) {
    std::printf("no GPU here\n");
    return 0;
  }
  const attnc::Mod mod = take(attnc::Mod::parse(kMod));
  std::vector<float> slopes = slopesOfHeads();
  attnc::Captures captures;
  captures.set("slopes", ofHeads(slopes.data()));
  const auto plan = take(
      attnc::ShardPlan::make({{.mod = &mod, .captures = &captures}}, {1, kHeads, kKvHeads, length, length}, world));
  std::vector<ncclComm_t> communicators(size_t(world), nullptr);
  check(statusOf(ncclCommInitAll(communicators.data(), world, nullptr)));
  Results found(length);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < world; ++rank)
    ranks.emplace_back([&, rank] { computeRank(rank, plan, mod, communicators[size_t(rank)], found); });
  for (std::thread& rank : ranks) rank.join();
  for (ncclComm_t communicator : communicators) ncclCommDestroy(communicator);

  const Results wanted = computeWhole(mod, length);
  bool isRight = areAlike("out", found.out, wanted.out);
  isRight = areAlike("dQ", found.dQ, wanted.dQ) && isRight;
  isRight = areAlike("dK", found.dK, wanted.dK) && isRight;
  isRight = areAlike("dV", found.dV, wanted.dV) && isRight;
  isRight = areAlike("the gradient of slopes", found.dSlopes, wanted.dSlopes) && isRight;
  std::printf("%d GPUs, %s, %d stages of transfers: out and gradients are %s\n", world,
              attnc::shardLayoutName(plan.layout), plan.stages, isRight ? "those of one GPU" : "WRONG");
  return isRight ? 0 : 1;
}
