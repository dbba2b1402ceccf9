// Launching: graphs, threads, determinism, large tensors, odd layouts, and block masks built on the GPU.
#include "on_device.h"

#include "api/compiler_access.h"
#include "helpers/plan_parts.h"
#include "reference/attention.h"

#include <algorithm>
#include <functional>
#include <thread>

using namespace attnc;
using namespace attnc::gputest;

namespace {

/// One small problem in device memory, kept for many launches.
struct Launchable : OnDevice {
  explicit Launchable(const Problem& of) : OnDevice(Mod::identity(), of) { outputs.lse.reset(); }

  std::vector<char> result() const {
    std::vector<char> bytes(buffers[results[0]].bytes());
    take(buffers[results[0]].download(bytes.data(), bytes.size()));
    return bytes;
  }
  Status launch(const ForwardKernel& kernel, Stream stream) const {
    return kernel.launch(inputs, outputs, nullptr, stream);
  }
};

KernelOptions optionsFor(const Problem& problem, Family family) {
  return {.family = family, .dtype = problem.dtype, .headDim = problem.headDim, .headDimV = problem.headDimV};
}

/// The families of this device.
std::vector<Family> families() { return familiesFor(Mod::identity(), {{1, 1, 1, 1, 1}, 64, 64, DType::BF16}); }

} // namespace

GPU_TEST_CASE("a launch can be captured in a CUDA graph and replayed", "[gpu]") {
  Gpu& device = *gpu();
  for (Family family : families()) {
    Launchable work({{2, 4, 2, 200, 300}, 64, 64, DType::BF16});
    const ForwardKernel kernel =
        take(test::loadForward(device.compiler, libraryMod("causal"), optionsFor(work.problem, family)));
    take(work.launch(kernel, device.stream.get()));
    take(device.stream.synchronize());
    const std::vector<char> expected = work.result();

    take(device.stream.beginCapture());
    take(work.launch(kernel, device.stream.get()));
    const device::Graph graph = take(device.stream.endCapture());
    work.poison();
    for (int i = 0; i < 100; ++i) take(graph.launch(device.stream.get()));
    take(device.stream.synchronize());
    CHECK(work.result() == expected);
  }
}

GPU_TEST_CASE("equal launches give equal bits", "[gpu]") {
  Gpu& device = *gpu();
  for (Family family : families()) {
    Launchable work({{2, 8, 2, 500, 700}, 128, 128, DType::BF16});
    const ForwardKernel kernel =
        take(test::loadForward(device.compiler, libraryMod("causal"), optionsFor(work.problem, family)));
    std::vector<char> first;
    for (int i = 0; i < 20; ++i) {
      take(work.launch(kernel, device.stream.get()));
      take(device.stream.synchronize());
      if (i == 0) first = work.result();
      REQUIRE(work.result() == first);
    }
  }
}

GPU_TEST_CASE("several kernels run from several threads at once", "[gpu]") {
  Gpu& device = *gpu();
  const std::vector<std::string> names = {"noop", "causal", "softcap_approx", "noop"};
  std::vector<std::unique_ptr<Launchable>> work;
  std::vector<std::vector<char>> expected;
  const auto kernelOf = [&](size_t i) {
    return test::loadForward(device.compiler, take(Mod::parse(i % 2 ? "q_idx >= kv_idx" : "score * 0.5")),
                             optionsFor(work[i]->problem, i < 2 ? Family::Naive : Family::Sm80));
  };
  for (size_t i = 0; i < names.size(); ++i) {
    work.push_back(std::make_unique<Launchable>(Problem{{1, 4, 4, 256, 256 + int64_t(i)}, 64, 64, DType::F16}));
    take(work[i]->launch(take(kernelOf(i)), device.stream.get()));
    take(device.stream.synchronize());
    expected.push_back(work[i]->result());
    work[i]->poison();
  }
  std::vector<std::string> failures(names.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < names.size(); ++i)
    threads.emplace_back([&, i] {
      auto fail = [&](const Error& error) { failures[i] = error.message; };
      if (Status status = device.context.makeCurrent(); !status) return fail(status.error());
      auto stream = device::Stream::create();
      if (!stream) return fail(stream.error());
      for (int round = 0; round < 50; ++round) {
        auto kernel = kernelOf(i);
        if (!kernel) return fail(kernel.error());
        if (Status status = work[i]->launch(*kernel, stream->get()); !status) return fail(status.error());
      }
      if (Status status = stream->synchronize(); !status) return fail(status.error());
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < names.size(); ++i) {
    CHECK(failures[i] == "");
    CHECK(work[i]->result() == expected[i]);
  }
}

GPU_TEST_CASE("offsets beyond 2^31 elements are reached", "[gpu]") {
  Gpu& device = *gpu();
  // Two batches of k lie 2^31 + 64 elements apart; everything between stays untouched.
  Launchable work({{2, 1, 1, 64, 64}, 64, 64, DType::BF16});
  const int64_t apart = (int64_t(1) << 31) + 64, block = 64 * 64 * 2;
  const device::Buffer far = take(device::Buffer::allocate(size_t(apart) * 2 + size_t(block)));
  std::vector<char> k(size_t(2 * block));
  take(work.buffers[1].download(k.data(), k.size()));
  device::Buffer& writable = const_cast<device::Buffer&>(far);
  take(writable.upload(k.data(), size_t(block)));
  take(writable.upload(k.data() + block, size_t(block), size_t(apart) * 2));
  for (Family family : families()) {
    const ForwardKernel kernel =
        take(test::loadForward(device.compiler, Mod::identity(), optionsFor(work.problem, family)));
    take(work.launch(kernel, device.stream.get()));
    take(device.stream.synchronize());
    const std::vector<char> expected = work.result();
    Operands inputs = work.inputs;
    inputs.k.data = far.data();
    inputs.k.stride[0] = apart;
    work.poison();
    take(kernel.launch(inputs, work.outputs, nullptr, device.stream.get()));
    take(device.stream.synchronize());
    CHECK(work.result() == expected);
  }
}

GPU_TEST_CASE("layouts that the copy engine cannot describe are served by another family", "[gpu]") {
  Gpu& device = *gpu();
  const Mod mod = libraryMod("causal");
  Launchable work({{2, 4, 2, 100, 150}, 64, 64, DType::BF16});
  const auto move = [](TensorView& view, int64_t elements) {
    view.data = static_cast<char*>(view.data) + elements * dtypeBytes(view.dtype);
  };
  const std::pair<const char*, std::function<void(TensorView&)>> layouts[] = {
      {"one head for all", [](TensorView& view) { view.stride[1] = 0; }},
      {"one row for all", [](TensorView& view) { view.stride[2] = 0; }},
      {"rows backwards",
       [&](TensorView& view) {
         move(view, (view.shape[2] - 1) * view.stride[2]);
         view.stride[2] *= -1;
       }},
      {"an odd address",
       [&](TensorView& view) {
         move(view, 1);
         --view.shape[2];
       }},
      {"an odd row stride", [](TensorView& view) { --view.stride[2]; }},
  };
  KernelOptions asked = optionsFor(work.problem, Family::Auto);
  const ForwardKernel aligned = take(test::loadForward(device.compiler, mod, asked));
  const bool isSm90 = aligned.options().family == Family::Sm90;
  for (const auto& [what, change] : layouts) {
    INFO(what);
    Operands inputs = work.inputs;
    Operands host{.q = work.host.q.view(), .k = work.host.k.view(), .v = work.host.v.view()};
    for (TensorView* view : {&inputs.k, &inputs.v, &host.k, &host.v}) change(*view);
    const Preparation settled = take(device.compiler.settle(mod, inputs, work.outputs));
    CHECK(settled.kernel.passedOver().empty() == !isSm90);
    if (isSm90) CHECK_FALSE(aligned.launch(inputs, work.outputs, nullptr, device.stream.get()));

    work.poison();
    asked.family = settled.kernel.options().family;
    const ForwardKernel kernel = take(test::loadForward(device.compiler, mod, asked));
    CHECK(kernel.options().family == Family::Sm80);
    take(kernel.launch(inputs, work.outputs, nullptr, device.stream.get()));
    take(device.stream.synchronize());
    const cli::HostTensor out{DType::BF16, {2, 4, 100, 64}, work.result()};
    const reference::AttentionResult expected = take(reference::attention(mod.module(), {}, host));
    checkClose({toDoubles(out), {}, {}}, {expected.out, {}, expected.rowMax}, work.problem);
  }
}

GPU_TEST_CASE("block masks built on the GPU are those built on the CPU", "[gpu]") {
  Gpu& device = *gpu();
  for (const char* name : {"causal", "sliding_window", "prefix_lm", "document", "global_local", "neighborhood2d",
                           "tree", "permutation_lm"}) {
    const Mod mod = libraryMod(name);
    constexpr BlockMask::Lists kBoth = BlockMask::Lists::ByRowAndColumn;
    const BlockMaskKernel builder = take(test::loadBlockMask(device.compiler, mod, {.columnLists = true}));
    for (auto [q, kv] : {std::pair{64, 64}, {128, 128}, {256, 64}, {64, 256}})
      for (auto [qLen, kvLen] : {std::pair{1000, 1000}, {130, 513}, {1, 70}, {512, 512}, {70, 140'000}}) {
        const Problem problem{{2, 2, 2, qLen, kvLen}, 8, 8, DType::BF16};
        const HostOperands operands = draw(mod, problem);
        const BlockMaskShape shape{2, 2, qLen, kvLen, q, kv};
        const BlockMask expected = take(BlockMask::build(mod, operands.captures, problem.shape, shape));

        const DeviceCaptures captures = uploadCaptures(operands.captures);
        const device::Buffer storage = take(device::Buffer::allocate(BlockMask::storageBytes(shape, kBoth)));
        const BlockMaskView view = BlockMask::viewInto(storage.data(), shape, kBoth);
        take(builder.launch(view, problem.shape, captures.captures, device.stream.get()));
        take(device.stream.synchronize());
        std::vector<char> host(storage.bytes());
        take(storage.download(host.data(), host.size()));
        // Lists by column are held against those by row here, order aside.
        const BlockMaskView lists = BlockMask::viewInto(host.data(), shape, kBoth);
        const BlockMask actual = take(BlockMask::fromLists(lists));
        INFO(name << " " << qLen << " x " << kvLen << ", blocks " << q << " x " << kv);
        CHECK(actual.toString() == expected.toString());
        CHECK(actual.liveBlocks() == expected.liveBlocks());
        CHECK(actual.fullBlocks() == expected.fullBlocks());
        for (int64_t column = 0; column < 2 * 2 * shape.kvBlocks(); ++column) {
          const int32_t* partial = lists.columns.partialIndex + column * lists.columns.indexStride;
          const int32_t* full = lists.columns.fullIndex + column * lists.columns.indexStride;
          CHECK(std::is_sorted(partial, partial + lists.columns.partialCount[column]));
          CHECK(std::is_sorted(full, full + lists.columns.fullCount[column]));
        }
      }
  }
}
