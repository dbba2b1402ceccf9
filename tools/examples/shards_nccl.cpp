// Attention of a sequence that is divided among the GPUs of one host, from C++: a thread for each GPU, NCCL between
// them.
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

/// bf16 rows [tokens, heads, kHeadDim] in device memory, viewed as [1, heads, tokens, kHeadDim].
struct Rows {
  int64_t tokens, heads;
  std::vector<uint16_t> host;
  Buffer device;

  Rows(int64_t tokens, int64_t heads)
      : tokens(tokens), heads(heads), host(size_t(tokens * heads * kHeadDim)), device(host.size() * 2) {}

  /// Fills the rows of some tokens with numbers that are the same on each rank.
  void draw(const std::vector<attnc::ShardInterval>& intervals, uint32_t seed) {
    size_t to = 0;
    for (const attnc::ShardInterval& interval : intervals)
      for (int64_t at = interval.begin * heads * kHeadDim; at < interval.end * heads * kHeadDim; ++at) {
        uint32_t x = uint32_t(at) * 2654435761U + seed * 40503U;
        x = (x ^ x >> 15) * 2246822519U;
        host[to++] = uint16_t(std::bit_cast<uint32_t>(float(x >> 8) / (1 << 23) - 1) >> 16);
      }
    check(cudaMemcpy(device.data, host.data(), host.size() * 2, cudaMemcpyHostToDevice));
  }
  void download() { check(cudaMemcpy(host.data(), device.data, host.size() * 2, cudaMemcpyDeviceToHost)); }

  attnc::TensorView view() const {
    attnc::TensorView view =
        attnc::TensorView::contiguous(device.data, attnc::DType::BF16, {1, heads, tokens, kHeadDim});
    view.stride = {tokens * heads * kHeadDim, kHeadDim, heads * kHeadDim, 1};
    return view;
  }
};

/// Computes the rows of a rank, and puts them where they belong in `out`, [tokens, heads, kHeadDim].
void computeRank(int rank, const attnc::ShardPlan& plan, const attnc::Mod& mod, ncclComm_t communicator,
                 std::vector<uint16_t>& out) {
  check(cudaSetDevice(rank));
  const attnc::ShardTokens& own = plan.ranks[size_t(rank)];
  Rows q(own.rowCount(), kHeads), k(own.keyCount(), kKvHeads), v(k.tokens, kKvHeads), to(q.tokens, kHeads);
  q.draw(own.rows, 1), k.draw(own.keys, 2), v.draw(own.keys, 3);
  const attnc::Operands operands{.q = q.view(), .k = k.view(), .v = v.view()};
  const attnc::Outputs outputs{.out = to.view()};
  const attnc::Compiler compiler;
  const auto sharded = take(attnc::ShardedAttention::prepare(&compiler, mod, plan, 0, rank, operands, outputs));
  const Buffer workspace(sharded.workspaceBytes());
  cudaStream_t stream, transfers;
  check(cudaStreamCreate(&stream));
  check(cudaStreamCreate(&transfers));
  check(sharded.initialise(operands, workspace.data, stream));
  check(sharded.launch(operands, outputs, engineOf(communicator), workspace.data, stream, transfers));
  check(cudaStreamSynchronize(stream));
  to.download();
  size_t from = 0;
  for (const attnc::ShardInterval& interval : own.rows) {
    const size_t count = size_t((interval.end - interval.begin) * kHeads * kHeadDim);
    std::copy_n(to.host.begin() + std::ptrdiff_t(from), count, out.begin() + interval.begin * kHeads * kHeadDim);
    from += count;
  }
  check(cudaStreamDestroy(stream));
  check(cudaStreamDestroy(transfers));
}

/// Computes the whole on the first GPU.
std::vector<uint16_t> computeWhole(const attnc::Mod& mod, int64_t length) {
  check(cudaSetDevice(0));
  Rows q(length, kHeads), k(length, kKvHeads), v(length, kKvHeads), out(length, kHeads);
  q.draw({{0, length}}, 1), k.draw({{0, length}}, 2), v.draw({{0, length}}, 3);
  const attnc::Operands operands{.q = q.view(), .k = k.view(), .v = v.view()};
  const attnc::Outputs outputs{.out = out.view()};
  const attnc::Compiler compiler;
  const attnc::Prepared attention = take(compiler.prepare(mod, operands, outputs));
  const Buffer workspace(attention.workspaceBytes());
  check(attention.initialise(operands, workspace.data, nullptr));
  check(attention.launch(operands, outputs, workspace.data, nullptr));
  check(cudaDeviceSynchronize());
  out.download();
  return std::move(out.host);
}

} // namespace

int main(int argc, char** argv) {
  const int64_t length = argc > 1 ? std::atoll(argv[1]) : 8192;
  int world = 0;
  if (cudaGetDeviceCount(&world) != cudaSuccess || world == 0) {
    std::printf("no GPU here\n");
    return 0;
  }
  const attnc::Mod mod = take(attnc::Mod::parse("q_idx >= kv_idx"));
  const auto plan = take(attnc::ShardPlan::make({{.mod = &mod}}, {1, kHeads, kKvHeads, length, length}, world));
  std::vector<ncclComm_t> communicators(size_t(world), nullptr);
  check(statusOf(ncclCommInitAll(communicators.data(), world, nullptr)));
  std::vector<uint16_t> out(size_t(length * kHeads * kHeadDim));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < world; ++rank)
    ranks.emplace_back([&, rank] { computeRank(rank, plan, mod, communicators[size_t(rank)], out); });
  for (std::thread& rank : ranks) rank.join();
  for (ncclComm_t communicator : communicators) ncclCommDestroy(communicator);

  const std::vector<uint16_t> wanted = computeWhole(mod, length);
  const auto number = [](uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); };
  double error = 0, size = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    error += std::pow(double(number(out[i])) - number(wanted[i]), 2);
    size += std::pow(double(number(wanted[i])), 2);
  }
  const double difference = std::sqrt(error / std::max(size, 1e-30)); // each stage rounds its part to bf16
  std::printf("%d GPUs, %s, %d stages of transfers: out is %s\n", world, attnc::shardLayoutName(plan.layout),
              plan.stages, difference < 0.01 ? "that of one GPU" : "WRONG");
  return difference < 0.01 ? 0 : 1;
}
