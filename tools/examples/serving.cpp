// Serves two sequences from a cache in pages: a prompt of each, then token by token. On a GPU a step is a CUDA graph,
// which is replayed for all lengths and tables. Without one, the CPU reference computes. In the end the pages of a
// sequence are swapped to host memory, and back to other pages.
#include <attnc/attnc.h>

#include "page_allocator.h"
#include "support.hpp"

#include <cmath>

using attnc::DType;
using attnc::TensorView;

namespace {

constexpr int64_t kBatch = 2, kHeads = 8, kKvHeads = 2, kHeadDim = 64, kPage = 16, kPages = 16, kColumns = 4,
                  kMost = 64;
constexpr int kSteps = 20;

/// A tensor where attention is computed, and its values on the host.
template <class T> struct Tensor {
  std::vector<T> host;
  Buffer memory;
  TensorView view;

  Tensor(const device& gpu, DType dtype, std::initializer_list<int64_t> shape)
      : host(size_t(TensorView::contiguous(nullptr, dtype, shape).elements()), T(-1)), // NaN, as bf16
        memory(gpu, host), view(TensorView::contiguous(memory.data(), dtype, shape)) {}
  TensorView onHost() {
    TensorView of = view;
    of.data = host.data();
    return of;
  }
};
struct Half : Tensor<uint16_t> {
  Half(const device& gpu, int64_t batch, int64_t heads, int64_t rows)
      : Tensor(gpu, DType::BF16, {batch, heads, rows, kHeadDim}) {}
};

/// New tokens of each sequence, and their attention.
struct Tokens {
  int64_t count;
  Half q, k, v, out;
  std::optional<Buffer> workspace;
  void* graph = nullptr;

  Tokens(const device& gpu, int64_t count)
      : count(count), q(gpu, kBatch, kHeads, count), k(gpu, kBatch, kKvHeads, count), v(gpu, kBatch, kKvHeads, count),
        out(gpu, kBatch, kHeads, count) {}
};

/// A sequence that is swapped out: its number of rows, and its pages of k, then those of v.
struct Swapped {
  int64_t rows;
  std::vector<uint16_t> pages;
};

/// The cache in pages, and all keys and values in a row for the check.
struct Cache {
  using Sequence = example::PageAllocator::Sequence;

  const device& gpu;
  example::PageAllocator pages{kPages, kPage};
  std::vector<Sequence> sequences{pages.add(), pages.add()};
  Half k, v, seenK, seenV;
  Tensor<int32_t> table, lengths;
  uint32_t state = 1;

  explicit Cache(const device& gpu)
      : gpu(gpu), k(gpu, kPages, kKvHeads, kPage), v(gpu, kPages, kKvHeads, kPage), seenK(gpu, kBatch, kKvHeads, kMost),
        seenV(gpu, kBatch, kKvHeads, kMost), table(gpu, DType::I32, {kBatch, kColumns}),
        lengths(gpu, DType::I32, {kBatch}) {}

  attnc::Operands operandsOf(const Tokens& of) const {
    return {.q = of.q.view,
            .k = k.view,
            .v = v.view,
            .kvLengths = lengths.view,
            .pageTable = table.view,
            .newK = of.k.view,
            .newV = of.v.view};
  }

  /// Fills the table and lengths of the sequences where attention is computed.
  void uploadTable() {
    check(pages.fill(sequences, kColumns, table.host.data(), lengths.host.data()));
    table.memory.upload(table.host);
    lengths.memory.upload(lengths.host);
  }

  /// Copies the pages of a sequence between the pools and host memory, by `copy(host, page, bytes)`.
  template <class Copy> void copyPages(Sequence sequence, uint16_t* host, const Copy& copy) const {
    constexpr size_t kElements = kKvHeads * kPage * kHeadDim, kBytes = kElements * sizeof(uint16_t);
    for (const Half* pool : {&k, &v})
      for (const int32_t page : pages.pagesOf(sequence)) {
        checkCuda(copy(host, reinterpret_cast<uint64_t>(pool->memory.data()) + size_t(page) * kBytes, kBytes));
        host += kElements;
      }
  }

  /// Moves a sequence to host memory, and gives back its pages. It must not be in a launch until it is swapped in.
  Swapped swapOut(Sequence sequence) {
    const int64_t elements = int64_t(pages.pagesOf(sequence).size()) * kKvHeads * kPage * kHeadDim;
    Swapped swapped{pages.length(sequence), std::vector<uint16_t>(size_t(2 * elements))};
    copyPages(sequence, swapped.pages.data(), gpu.download);
    check(pages.truncate(sequence, 0));
    return swapped;
  }

  /// Moves a sequence back, to the pages that are free now.
  void swapIn(Sequence sequence, Swapped& swapped) {
    take(pages.append(sequence, swapped.rows));
    copyPages(sequence, swapped.pages.data(),
              [&](const uint16_t* host, uint64_t page, size_t bytes) { return gpu.upload(page, host, bytes); });
  }

  /// Makes room for more rows of each sequence, and draws new tokens.
  void grow(Tokens& of, const std::vector<int64_t>& rows) {
    for (size_t b = 0; b < sequences.size(); ++b) take(pages.append(sequences[b], rows[b]));
    uploadTable();
    for (Half* of : {&of.q, &of.k, &of.v}) {
      of->host = drawBf16(int64_t(of->host.size()), state);
      of->memory.upload(of->host);
    }
    keep(of.k, seenK, of.count, rows);
    keep(of.v, seenV, of.count, rows);
  }

  /// Copies the last rows of each sequence to where they belong in a row of all.
  void keep(const Half& from, Half& to, int64_t count, const std::vector<int64_t>& rows) const {
    for (int64_t b = 0; b < kBatch; ++b)
      for (int64_t head = 0; head < kKvHeads; ++head) {
        const int64_t at = (b * kKvHeads + head) * kMost + lengths.host[size_t(b)] - rows[size_t(b)];
        const auto first = from.host.begin() + ((b * kKvHeads + head + 1) * count - rows[size_t(b)]) * kHeadDim;
        std::copy(first, first + rows[size_t(b)] * kHeadDim, to.host.begin() + at * kHeadDim);
      }
  }

  /// Returns the largest difference of out from the CPU reference over contiguous keys.
  double difference(const attnc::Mod& mod, Tokens& of) {
    std::vector<uint16_t> out(of.out.host.size());
    of.out.memory.download(out);
    const attnc::Operands operands{
        .q = of.q.onHost(), .k = seenK.onHost(), .v = seenV.onHost(), .kvLengths = lengths.onHost()};
    check(attnc::computeOnCpu(mod, operands, {.out = of.out.onHost()}));
    double largest = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      const double apart = std::abs(from_bf16(out[i]) - from_bf16(of.out.host[i]));
      largest = std::fmax(largest, std::isnan(apart) ? HUGE_VAL : apart);
    }
    return largest;
  }
};

} // namespace

int main() {
  device gpu;
  const bool onGpu = device_open(&gpu);
  std::puts(onGpu ? "serving on the GPU" : "no GPU here: the CPU reference computes");
  const attnc::Mod mod = take(attnc::Mod::parse("q_idx >= kv_idx"));
  const attnc::Compiler compiler;
  Cache cache(gpu);
  const std::vector<int64_t> prompts = {37, 20}; // the shorter one is padded: rows before position 0 are dropped
  Tokens phases[] = {{gpu, 37}, {gpu, 1}};
  void* stream = nullptr;
  if (onGpu) {
    checkCuda(gpu.create_stream(&stream, 0));
    for (Tokens& of : phases) {
      const attnc::Operands operands = cache.operandsOf(of);
      const auto cuda = static_cast<attnc::Stream>(stream);
      const attnc::Prepared attention = take(compiler.prepare(mod, operands, {.out = of.out.view}));
      void* const workspace = of.workspace.emplace(gpu, attention.workspaceBytes()).data();
      check(attention.initialise(operands, workspace, cuda));
      void* recorded = nullptr;
      checkCuda(gpu.begin_capture(stream, 0));
      check(attention.launch(operands, {.out = of.out.view}, workspace, cuda));
      checkCuda(gpu.end_capture(stream, &recorded));
      checkCuda(gpu.instantiate(&of.graph, recorded, 0));
    }
  }

  const auto attend = [&](Tokens& of) {
    if (onGpu)
      checkCuda(gpu.launch_graph(of.graph, stream));
    else
      check(attnc::computeOnCpu(mod, cache.operandsOf(of), {.out = of.out.view}));
    checkCuda(gpu.synchronize());
  };
  double worst = 0;
  for (int step = 0; step <= kSteps; ++step) {
    Tokens& of = phases[step > 0];
    cache.grow(of, step ? std::vector<int64_t>{1, 1} : prompts);
    attend(of);
    worst = std::fmax(worst, cache.difference(mod, of));
  }

  // The first sequence leaves for the host, another one takes a page of it, and it comes back. The last token again:
  Tokens& last = phases[1];
  const auto first = cache.sequences[0];
  const std::vector<int32_t> before = cache.pages.pagesOf(first);
  std::vector<uint16_t> expected(last.out.host.size()), found(expected.size());
  last.out.memory.download(expected);
  Swapped swapped = cache.swapOut(first);
  const auto guest = cache.pages.add();
  take(cache.pages.append(guest, 1));
  cache.swapIn(first, swapped);
  check(cache.pages.free(guest));
  cache.uploadTable();
  attend(last);
  last.out.memory.download(found);
  for (size_t i = 0; i < before.size(); ++i)
    std::printf("%s %d, now %d", i ? ";" : "swapped out of page", before[i], cache.pages.pagesOf(first)[i]);
  const bool isSame = found == expected;
  std::printf(": %s\n", isSame ? "the same bits" : "OTHER BITS");

  const bool isRight = worst < 0.02 && isSame;
  std::printf("lengths %d and %d, %d pages, %d steps: largest difference %.4f, %s\n", cache.lengths.host[0],
              cache.lengths.host[1], int(kPages - cache.pages.freePages()), kSteps, worst,
              isRight ? "as the reference" : "WRONG");
  return isRight ? 0 : 1;
}
