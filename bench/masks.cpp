// Times block masks of long sequences, one JSON line a mask: on the CPU runs of blocks (BlockRuns) and the count of
// blocks (what `attnc explain` says), on the GPU lists (BlockMaskKernel), which are held against the runs.
//
// "runs_ms" and "census_ms" are the least user and system time of `--rounds` calls, so that they count all threads;
// "runs_mib" and "census_mib" are the largest heap of one. "evaluated" is the number of blocks whose elements were
// evaluated, "estimated" the number that the census estimated. "lists_ms" is the median of device-event times with the
// L2 cache overwritten between runs, "lists_mib" the size of the lists. Without a GPU, the last two are missing.
#include "measure.h"

#include "api/compiler_access.h"
#include "attnc/explain.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <atomic>
#include <iostream>
#include <malloc.h>
#include <new>
#include <random>
#include <sys/resource.h>

namespace {

std::atomic<int64_t> heap, largestHeap; // bytes that operator new has given out

} // namespace

void* operator new(size_t bytes) {
  void* memory = std::malloc(bytes ? bytes : 1);
  if (!memory) throw std::bad_alloc();
  const int64_t now = heap += int64_t(malloc_usable_size(memory));
  for (int64_t seen = largestHeap; now > seen && !largestHeap.compare_exchange_weak(seen, now);) {
  }
  return memory;
}
void operator delete(void* memory) noexcept {
  heap -= int64_t(malloc_usable_size(memory));
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

namespace {

using namespace attnc;
using bench::take;

struct Mask {
  std::string name, mod;
  std::vector<int32_t> data = {}; ///< the captured tensor, if the mod has one
  Captures captures = {};         ///< its scalars
};

/// Documents of random lengths, `count` of them.
std::vector<int32_t> documents(int64_t length, int64_t count) {
  std::mt19937_64 random(1);
  std::vector<int32_t> id(static_cast<size_t>(length), 0);
  for (int64_t i = 1; i < count; ++i) ++id[size_t(random() % uint64_t(length))];
  for (size_t i = 1; i < id.size(); ++i) id[i] += id[i - 1];
  return id;
}

/// Ends of subtrees of a tree in depth-first order: a token in 128 begins a new branch, at any of its ancestors.
std::vector<int32_t> tree(int64_t length) {
  std::mt19937_64 random(1);
  std::vector<int32_t> end(static_cast<size_t>(length), int32_t(length));
  std::vector<size_t> path;
  for (size_t i = 0; i < end.size(); ++i) {
    if (i > 0 && random() % 128 == 0)
      for (size_t depth = 1 + random() % path.size(); path.size() > depth; path.pop_back())
        end[path.back()] = int32_t(i);
    path.push_back(i);
  }
  return end;
}

std::vector<Mask> masksOf(int64_t length) {
  std::vector<Mask> masks = {{"causal", "causal"},
                             {"window", "sliding_window"},
                             {"prefix", "prefix_lm"},
                             {"documents", "document", documents(length, length / 1024)},
                             {"tree", "tree", tree(length)}};
  masks[1].captures.set("window", int64_t(4096));
  masks[2].captures.set("prefix", length / 16);
  return masks;
}

double cpuMs() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto ms = [](const timeval& t) { return double(t.tv_sec) * 1e3 + double(t.tv_usec) / 1e3; };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

/// Adds the time and heap of a call to a row.
template <class Work> void measure(nlohmann::json& row, const std::string& name, int rounds, const Work& work) {
  double best = INFINITY;
  int64_t bytes = 0;
  for (int i = 0; i < rounds; ++i) {
    const int64_t before = largestHeap = heap.load();
    const double start = cpuMs();
    work();
    best = std::min(best, cpuMs() - start);
    bytes = std::max(bytes, largestHeap - before);
  }
  row[name + "_ms"] = bench::rounded(best, 2);
  row[name + "_mib"] = bench::rounded(double(bytes) / (1 << 20), 2);
}

/// Throws std::exception if the lists are not those of the runs.
void checkLists(const BlockMaskView& lists, const BlockRuns& runs) {
  for (int64_t row = 0; row < lists.shape.qBlocks(); ++row) {
    const int32_t *partial = lists.partialIndex + row * lists.indexStride,
                  *full = lists.fullIndex + row * lists.indexStride;
    const int32_t *const partialEnd = partial + lists.partialCount[row], *const fullEnd = full + lists.fullCount[row];
    bool isSame = true;
    for (const BlockRun& run : runs.row(0, 0, row))
      for (int32_t block = run.begin; block < run.end; ++block)
        isSame &= run.isFull ? full < fullEnd && *full++ == block : partial < partialEnd && *partial++ == block;
    if (!isSame || partial != partialEnd || full != fullEnd)
      throw std::runtime_error("the GPU's lists differ from the CPU's in row of blocks " + std::to_string(row));
  }
}

nlohmann::json rowOf(const Mask& mask, int64_t length, int rounds, const std::string& mods, bench::Bench* gpu) {
  nlohmann::json row{{"mask", mask.name}, {"length", length}};
  const Mod mod = take(Mod::load(mods + "/" + mask.mod + ".py"));
  const ProblemShape problem{.qLen = length, .kvLen = length};
  const BlockMaskShape shape{.qLen = length, .kvLen = length};
  Captures host = mask.captures, onDevice = mask.captures;
  bench::DeviceTensor data;
  if (!mask.data.empty()) {
    const std::string& name = mod.captures().front().name;
    host.set(name, TensorView::contiguous(const_cast<int32_t*>(mask.data.data()), DType::I32, {length}));
    if (gpu) data = bench::upload(mask.data.data(), DType::I32, {length}), onDevice.set(name, data.view);
  }
  measure(row, "runs", rounds, [&] { take(BlockRuns::build(mod, host, problem, shape)); });
  const BlockRuns runs = take(BlockRuns::build(mod, host, problem, shape));
  row["live"] = runs.liveBlocks();
  row["full"] = runs.fullBlocks();
  row["evaluated"] = runs.evaluatedBlocks();
  MaskCensus census;
  measure(row, "census", rounds, [&] { census = take(takeCensus(mod, host, problem, shape)); });
  row["estimated"] = census.estimated;
  if (!gpu) return row;
  const device::Buffer storage = take(device::Buffer::allocate(BlockMask::storageBytes(shape)));
  const BlockMaskView lists = BlockMask::viewInto(storage.data(), shape);
  const Plan plan = take(gpu->compiler.plan(mod, {.kind = KernelKind::BlockMask}));
  const BlockMaskKernel builder = take(CompilerAccess::loadBlockMask(gpu->compiler, plan));
  const auto launch = [&] { take(builder.launch(lists, problem, onDevice, gpu->stream.get())); };
  launch();
  take(gpu->stream.synchronize());
  std::vector<char> copy(storage.bytes());
  take(storage.download(copy.data(), copy.size()));
  checkLists(BlockMask::viewInto(copy.data(), shape), runs);
  row["lists_ms"] = bench::rounded(gpu->medianMs(launch), 4);
  row["lists_mib"] = bench::rounded(double(storage.bytes()) / (1 << 20), 1);
  return row;
}

} // namespace

int main(int argc, char** argv) {
  int64_t length = 1 << 20;
  int rounds = 9;
  std::string only, mods = ATTNC_SOURCE_DIR "/dsl/mods";
  CLI::App app("Times block masks of long sequences, on the CPU and on the GPU.");
  app.add_option("--length", length, "queries and keys")->check(CLI::Range(2048, 1 << 24));
  app.add_option("--rounds", rounds, "calls on the CPU")->check(CLI::PositiveNumber);
  app.add_option("--only", only, "part of the names of masks");
  app.add_option("--mods", mods, "folder of the mods");
  CLI11_PARSE(app, argc, argv);
  const auto context = device::Context::create();
  std::optional<bench::Bench> gpu;
  if (context) gpu.emplace(bench::Bench{.mods = mods});
  for (const Mask& mask : masksOf(length)) {
    if (mask.name.find(only) == std::string::npos) continue;
    try {
      std::cout << rowOf(mask, length, rounds, mods, gpu ? &*gpu : nullptr).dump() << std::endl;
    } catch (const std::exception& error) {
      std::cout << nlohmann::json{{"mask", mask.name}, {"error", error.what()}}.dump() << std::endl;
    }
  }
}
