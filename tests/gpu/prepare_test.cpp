// Prepared attention: parse, prepare, launch.
#include "on_device.h"

#include "families/catalog.h"

#include <cstring>

using namespace attnc;
using namespace attnc::gputest;

namespace {

/// Memory that holds no zeros.
device::Buffer dirty(size_t bytes) { return filled(bytes, 0xa5); }

} // namespace

GPU_TEST_CASE("prepared attention is right, whatever the workspace held before", "[gpu]") {
  Gpu& gpu = *gputest::gpu();
  for (const char* name : {"noop", "causal", "alibi", "document", "global_local", "sliding_window"})
    for (Family family : {Family::Auto, Family::Sm80, Family::Naive}) {
      INFO(name << ", family " << int(family));
      const Mod mod = libraryMod(name);
      const Problem problem{{2, 4, 2, 300, 500}, 64, 64, DType::BF16};
      OnDevice device(mod, problem);
      const uint64_t before = plan::plansMade;
      const Prepared prepared = take(gpu.compiler.prepare(mod, device.inputs, device.outputs, {.family = family}));
      CHECK(plan::plansMade - before <= prepared.preparation().kernels().size()); // fewer if one is in memory
      CHECK((prepared.blockMaskKernel() != nullptr) == prepared.preparation().blockMask.has_value());
      const device::Buffer workspace = dirty(prepared.workspaceBytes());
      take(prepared.initialise(device.inputs, workspace.data(), gpu.stream.get()));
      for (int i = 0; i < 3; ++i) {
        device.poison();
        take(prepared.launch(device.inputs, device.outputs, workspace.data(), gpu.stream.get()));
        take(gpu.stream.synchronize());
        device.check(mod);
      }
    }
}

GPU_TEST_CASE("one preparation serves operands elsewhere, and other values of captures", "[gpu]") {
  Gpu& gpu = *gputest::gpu();
  const Mod mod = libraryMod("document");
  Problem problem{{2, 4, 2, 384, 384}, 64, 64, DType::BF16};
  OnDevice a(mod, problem);
  problem.seed = 7;
  OnDevice b(mod, problem);
  const Prepared prepared = take(gpu.compiler.prepare(mod, a.inputs, a.outputs));
  REQUIRE(prepared.preparation().blockMask);
  const device::Buffer workspace = dirty(prepared.workspaceBytes());
  for (OnDevice* device : {&a, &b, &a}) {
    device->poison();
    take(prepared.initialise(device->inputs, workspace.data(), gpu.stream.get()));
    take(prepared.launch(device->inputs, device->outputs, workspace.data(), gpu.stream.get()));
    take(gpu.stream.synchronize());
    device->check(mod);
  }
}

GPU_TEST_CASE("prepared attention can be captured whole, its block mask included", "[gpu]") {
  Gpu& gpu = *gputest::gpu();
  for (const char* name : {"causal", "document"}) {
    const Mod mod = libraryMod(name);
    const Problem problem{{2, 4, 2, 200, 300}, 64, 64, DType::BF16};
    OnDevice device(mod, problem);
    const Prepared prepared = take(gpu.compiler.prepare(mod, device.inputs, device.outputs));
    const device::Buffer workspace = dirty(prepared.workspaceBytes());
    take(gpu.stream.beginCapture());
    take(prepared.initialise(device.inputs, workspace.data(), gpu.stream.get()));
    take(prepared.launch(device.inputs, device.outputs, workspace.data(), gpu.stream.get()));
    const device::Graph graph = take(gpu.stream.endCapture());
    for (int i = 0; i < 20; ++i) take(graph.launch(gpu.stream.get()));
    take(gpu.stream.synchronize());
    device.check(mod);
  }
}

GPU_TEST_CASE("the block mask of a workspace is that of the CPU", "[gpu]") {
  Gpu& gpu = *gputest::gpu();
  const Mod mod = libraryMod("document");
  const Problem problem{{2, 2, 2, 1000, 1000}, 64, 64, DType::BF16};
  OnDevice device(mod, problem);
  const Prepared prepared = take(gpu.compiler.prepare(mod, device.inputs, device.outputs));
  REQUIRE(prepared.preparation().blockMask);
  const BlockMaskShape shape = *prepared.preparation().blockMask;
  const device::Buffer workspace = dirty(prepared.workspaceBytes());
  take(prepared.initialise(device.inputs, workspace.data(), gpu.stream.get()));
  take(gpu.stream.synchronize());
  std::vector<char> bytes(workspace.bytes());
  take(workspace.download(bytes.data(), bytes.size()));
  std::vector<char> lists(BlockMask::storageBytes(shape));
  const auto* begin = reinterpret_cast<char*>(prepared.blockMaskIn(workspace.data()).partialCount);
  std::memcpy(lists.data(), bytes.data() + (begin - static_cast<char*>(workspace.data())), lists.size());
  const BlockMask actual = take(BlockMask::fromLists(BlockMask::viewInto(lists.data(), shape)));
  CHECK(actual.toString() == take(BlockMask::build(mod, device.host.captures, problem.shape, shape)).toString());
}

GPU_TEST_CASE("what was not prepared is not launched", "[gpu]") {
  Gpu& gpu = *gputest::gpu();
  const Mod mod = libraryMod("document");
  const Problem problem{{2, 4, 2, 200, 200}, 64, 64, DType::BF16};
  OnDevice device(mod, problem);
  const Prepared prepared = take(gpu.compiler.prepare(mod, device.inputs, device.outputs));
  const device::Buffer workspace = dirty(prepared.workspaceBytes());
  const auto errorOf = [&](const Operands& inputs, const Outputs& outputs, void* memory) {
    return environmentErrorOf(prepared.launch(inputs, outputs, memory, gpu.stream.get()));
  };
  Operands inputs = device.inputs;
  Outputs outputs = device.outputs;
  CHECK(errorOf(inputs, outputs, nullptr).find("the workspace is null, expected") == 0);
  CHECK(errorOf(inputs, outputs, static_cast<char*>(workspace.data()) + 4) ==
        "the workspace does not begin at a multiple of 256 bytes");
  inputs.k.shape[2] = inputs.v.shape[2] = 199;
  CHECK(errorOf(inputs, outputs, workspace.data()) ==
        "operands are of B 2, H 4, HKV 2, Q_LEN 200, KV_LEN 199, prepared were B 2, H 4, HKV 2, Q_LEN 200, KV_LEN 200");
  inputs = device.inputs;
  const BlockMaskView mask = prepared.blockMaskIn(workspace.data());
  inputs.blockMask = &mask;
  CHECK(errorOf(inputs, outputs, workspace.data()) ==
        "a block mask is given, but the one of the workspace was prepared");
  inputs = device.inputs;
  outputs.rowMax = outputs.lse;
  CHECK(errorOf(inputs, outputs, workspace.data()) == "row_max is asked for, but the kernel was compiled without");
  outputs = device.outputs;
  outputs.out.reset();
  CHECK(errorOf(inputs, outputs, workspace.data()).find("out is not given") == 0);
  take(gpu.stream.synchronize());
  for (double value : device.outcome().lse) REQUIRE(value != value); // nothing was written
}

GPU_TEST_CASE("a launch that breaks a condition of the mod is refused before anything is written", "[gpu]") {
  Gpu& gpu = *gputest::gpu();
  const Mod mod = take(Mod::parse("window: int\nassert window <= KV_LEN, 'the window lies outside'\n"
                                  "def mask_mod(b, h, q_idx, kv_idx):\n    return q_idx - kv_idx <= window\n"));
  const Problem problem{{2, 4, 2, 200, 200}, 64, 64, DType::BF16};
  OnDevice device(mod, problem);
  Captures captures;
  device.inputs.captures = &captures.set("window", 200);
  const Prepared prepared = take(gpu.compiler.prepare(mod, device.inputs, device.outputs));
  const device::Buffer workspace = dirty(prepared.workspaceBytes());
  take(prepared.initialise(device.inputs, workspace.data(), gpu.stream.get()));
  captures.set("window", 201);
  CHECK(refusalOf(prepared.launch(device.inputs, device.outputs, workspace.data(), gpu.stream.get()))
            .message.find("the window lies outside (") != std::string::npos);
  take(gpu.stream.synchronize());
  for (double value : device.outcome().lse) REQUIRE(value != value); // nothing was written
  captures.set("window", 200);
  take(prepared.launch(device.inputs, device.outputs, workspace.data(), gpu.stream.get()));
  take(gpu.stream.synchronize());
  for (double value : device.outcome().lse) REQUIRE(value == value);
}
