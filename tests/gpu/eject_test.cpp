// Emitted files without attnc: nvcc compiles them with their launchers, and these compute what the library does.
#include "gpu.h"

#include "attnc/stages.h"
#include "cli/command.h"
#include "helpers/launcher_tensors.h"
#include "helpers/plans.h"
#include "tools/device/limits.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <dlfcn.h>
#include <list>
#include <map>
#include <random>

using namespace attnc;
using gputest::gpu;

namespace {

/// Device memory of a test.
class Memory {
public:
  void* zeros(size_t bytes) { return upload(std::vector<char>(bytes)); }
  template <class T> void* upload(const std::vector<T>& values) {
    device::Buffer& buffer = buffers.emplace_back(take(device::Buffer::allocate(values.size() * sizeof(T))));
    take(buffer.upload(values.data(), values.size() * sizeof(T)));
    all()[buffer.data()] = &buffer;
    return buffer.data();
  }
  /// A dense tensor of normal numbers, in bf16 or f32.
  TensorView drawn(std::initializer_list<int64_t> shape, DType dtype = DType::BF16) {
    TensorView view = TensorView::contiguous(nullptr, dtype, shape);
    std::normal_distribution<float> normal;
    std::vector<uint16_t> halves;
    std::vector<float> floats;
    for (int64_t i = 0; i < view.elements(); ++i) {
      const float value = normal(random);
      uint32_t bits;
      std::memcpy(&bits, &value, sizeof bits);
      halves.push_back(uint16_t(bits >> 16)), floats.push_back(value);
    }
    view.data = dtype == DType::F32 ? upload(floats) : upload(halves);
    return view;
  }
  TensorView empty(const TensorView& like) {
    TensorView view = like;
    view.data = zeros(size_t(like.elements() * dtypeBytes(like.dtype)));
    return view;
  }

  /// All buffers that live, by address.
  static std::map<void*, device::Buffer*>& all() {
    static std::map<void*, device::Buffer*> buffers;
    return buffers;
  }

private:
  std::list<device::Buffer> buffers;
  std::mt19937 random{7};
};

std::vector<double> valuesOf(const TensorView& view) {
  const size_t count = size_t(view.elements());
  std::vector<char> bytes(count * size_t(dtypeBytes(view.dtype)));
  take(Memory::all().at(view.data)->download(bytes.data(), bytes.size()));
  std::vector<double> values(count);
  for (size_t i = 0; i < count; ++i) {
    float value = 0;
    if (view.dtype == DType::F32)
      std::memcpy(&value, bytes.data() + 4 * i, 4);
    else
      std::memcpy(reinterpret_cast<char*>(&value) + 2, bytes.data() + 2 * i, 2);
    values[i] = value;
  }
  return values;
}

/// Both compute in f32 and round to bf16; nvcc and NVRTC may be of different versions.
void checkNear(const char* name, const TensorView& actual, const TensorView& expected) {
  const std::vector<double> a = valuesOf(actual), e = valuesOf(expected);
  size_t wrong = 0, zeros = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const bool isNear = a[i] == e[i] || std::abs(a[i] - e[i]) <= 0x1p-6 * (0.1 + std::abs(e[i]));
    wrong += !isNear, zeros += e[i] == 0;
  }
  INFO(name);
  CHECK(wrong == 0);
  CHECK(zeros < a.size() / 2); // something was computed
}

struct Case {
  const char* mod;
  KernelOptions options;
  BackwardOperands operands = {};
  Outputs outputs = {};
  BackwardOutputs gradients = {};
};

/// Compiles the emitted file with its problem, and launches it.
void launchEmitted(const Case& one) {
  const test::Folder folder;
  const Mod mod = gputest::libraryMod(one.mod);
  const LaunchShape shape{one.operands, one.outputs, one.gradients, take(device::tensorCores()).multiprocessors};
  const std::string file = take(cudaFile(take(gpu()->compiler.plan(mod, one.options)), {.launcher = &shape}));
  const std::string name = file.substr(3, file.find(':') - 3);
  const bool initialises = file.find(name + "_initialise(") != std::string::npos;
  test::writeFile(
      folder / "kernel.cu",
      file +
          fmt::format("extern \"C\" size_t run(void* memory, void* stream, int* errors) {{\n{0}_Tensors t;\n"
                      "{1}if (memory || !{0}_workspace_bytes) {{\n",
                      name, test::tensorsText(one.options, one.operands, one.outputs, one.gradients)) +
          (initialises ? fmt::format("errors[0] = {}_initialise(memory, (cudaStream_t)stream);\n", name) : "") +
          fmt::format("errors[1] = {0}(t, memory, (cudaStream_t)stream);\n}}\n"
                      "return {0}_workspace_bytes;\n}}\n",
                      name));
  const std::string number = one.options.arch.substr(3);
  const test::Outcome built =
      test::shell(fmt::format("nvcc -std=c++20 --expt-relaxed-constexpr -shared -Xcompiler -fPIC,-Wall,-Wextra "
                              "-gencode arch=compute_{0},code=sm_{0} {1}/kernel.cu -o {1}/kernel.so -lcuda 2>&1",
                              number, folder / "."));
  INFO(built.out);
  REQUIRE(built.exitCode == 0);
  void* const library = dlopen((folder / "kernel.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  INFO((library ? "" : dlerror()));
  REQUIRE(library);
  const auto run = reinterpret_cast<size_t (*)(void*, void*, int*)>(dlsym(library, "run"));
  int errors[2] = {};
  CUstream_st* const stream = gpu()->stream.get();
  Memory memory;
  if (const size_t bytes = run(nullptr, stream, errors)) run(memory.zeros(bytes), stream, errors);
  CHECK(errors[0] == 0);
  CHECK(errors[1] == 0);
  take(gpu()->stream.synchronize());
}

/// Launches the library's forward or decode kernel with other outputs, and compares.
void checkForward(const Case& one) {
  INFO(one.mod << " " << kindName(one.options.kind));
  Memory memory;
  const Mod mod = gputest::libraryMod(one.mod);
  const ForwardKernel kernel = take(test::loadForward(gpu()->compiler, mod, one.options));
  Outputs outputs{.out = memory.empty(*one.outputs.out), .lse = memory.empty(*one.outputs.lse)};
  void* const workspace = memory.zeros(take(kernel.workspaceBytes(one.operands, outputs)));
  take(kernel.launch(one.operands, outputs, workspace, gpu()->stream.get()));
  take(gpu()->stream.synchronize());
  launchEmitted(one);
  checkNear("out", *one.outputs.out, *outputs.out);
  checkNear("lse", *one.outputs.lse, *outputs.lse);
}

/// Does the same for the backward kernel.
void checkBackward(Case one) {
  INFO(one.mod << " backward");
  Memory memory;
  const Mod mod = gputest::libraryMod(one.mod);
  const BackwardOperands& in = one.operands;
  KernelOptions forward = one.options;
  forward.kind = KernelKind::Forward;
  const ForwardKernel first = take(test::loadForward(gpu()->compiler, mod, forward));
  const Outputs results{.out = in.out, .lse = in.lse};
  take(first.launch(in, results, memory.zeros(take(first.workspaceBytes(in, results))), gpu()->stream.get()));
  const BackwardKernel kernel = take(test::loadBackward(gpu()->compiler, mod, one.options));
  const BackwardOutputs expected{memory.empty(in.q), memory.empty(in.k), memory.empty(in.v)};
  one.gradients = {memory.empty(in.q), memory.empty(in.k), memory.empty(in.v)};
  void* const workspace = memory.zeros(take(kernel.workspaceBytes(in, expected)));
  take(kernel.launch(in, expected, workspace, gpu()->stream.get()));
  take(gpu()->stream.synchronize());
  launchEmitted(one);
  checkNear("dq", *one.gradients.dQ, *expected.dQ);
  checkNear("dk", *one.gradients.dK, *expected.dK);
  checkNear("dv", *one.gradients.dV, *expected.dV);
}

/// A problem with B 2, H 4, HKV 2.
Case base(Memory& memory, const char* mod, KernelKind kind, int64_t qLen, int64_t kvLen) {
  Case one{.mod = mod, .options = {.kind = kind, .arch = gpu()->context.info().arch, .headDim = 64, .headDimV = 64}};
  BackwardOperands& in = one.operands;
  in.q = memory.drawn({2, 4, qLen, 64});
  in.k = memory.drawn({2, 2, kvLen, 64});
  in.v = memory.drawn({2, 2, kvLen, 64});
  one.outputs.out = memory.empty(in.q);
  one.outputs.lse = memory.empty(TensorView::contiguous(nullptr, DType::F32, {2, 4, qLen}));
  in.out = *one.outputs.out, in.lse = *one.outputs.lse;
  in.dOut = memory.drawn({2, 4, qLen, 64});
  in.dLse = memory.drawn({2, 4, qLen}, DType::F32);
  return one;
}

/// K and V in pages that lie in reverse order.
void addPages(Memory& memory, Case& one, int pageSize, int64_t pages, std::vector<int32_t> lengths) {
  std::vector<int32_t> table;
  for (int32_t i = 0; i < 2 * pages; ++i) table.push_back(int32_t(2 * pages) - 1 - i);
  one.options.pageSize = pageSize;
  one.options.features.set(Feature::Lengths);
  one.options.offsets = QueryOffsets::FromLengths;
  one.operands.k = memory.drawn({2 * pages, 2, pageSize, 64});
  one.operands.v = memory.drawn({2 * pages, 2, pageSize, 64});
  one.operands.pageTable = TensorView::contiguous(memory.upload(table), DType::I32, {2, pages});
  one.operands.kvLengths = TensorView::contiguous(memory.upload(lengths), DType::I32, {2});
}

/// The lists of a mod's mask, on the GPU.
BlockMaskView lists(Memory& memory, const BlockMask& mask) {
  const BlockMaskView host = mask.view();
  BlockMaskView view = host;
  const auto upload = [&](int32_t*& list, int64_t count) {
    if (list) list = static_cast<int32_t*>(memory.upload(std::vector<int32_t>(list, list + count)));
  };
  const int64_t heads = host.shape.batch * host.shape.heads;
  const auto all = [&](auto& of, int64_t count) {
    upload(of.partialCount, count), upload(of.partialIndex, count * of.indexStride);
    upload(of.fullCount, count), upload(of.fullIndex, count * of.indexStride);
  };
  all(view, heads * host.shape.qBlocks());
  all(view.columns, heads * host.shape.kvBlocks());
  return view;
}

bool hasNvcc() { return test::shell("nvcc --version").exitCode == 0; }

#define ATTNC_NEED_NVCC()                                                                                              \
  ATTNC_NEED_GPU();                                                                                                    \
  if (!hasNvcc()) {                                                                                                    \
    WARN("SKIPPED: there is no nvcc");                                                                                 \
    return;                                                                                                            \
  }

} // namespace

TEST_CASE("emitted launchers of forward kernels compute what the library does", "[gpu]") {
  ATTNC_NEED_NVCC();
  Memory memory;
  Case plain = base(memory, "alibi", KernelKind::Forward, 300, 300);
  const Captures slopes = Captures().set("slopes", memory.drawn({4}, DType::F32));
  plain.operands.captures = &slopes;
  checkForward(plain);

  Case paged = base(memory, "causal", KernelKind::Forward, 100, 256);
  addPages(memory, paged, 64, 4, {256, 131});
  checkForward(paged);
}

TEST_CASE("emitted launchers of decode kernels compute what the library does", "[gpu]") {
  ATTNC_NEED_NVCC();
  Memory memory;
  Case paged = base(memory, "causal", KernelKind::Decode, 2, 2048);
  addPages(memory, paged, 16, 128, {2048, 777});
  checkForward(paged);
}

TEST_CASE("emitted launchers walk lists, forward and backward", "[gpu][backward]") {
  ATTNC_NEED_NVCC();
  Memory memory;
  Captures captures = Captures().set("window", 130);
  const ProblemShape shape{2, 4, 2, 500, 500};
  const BlockMask mask =
      take(BlockMask::build(gputest::libraryMod("sliding_window"), captures, shape, {.qLen = 500, .kvLen = 500}))
          .withColumns();
  const BlockMaskView view = lists(memory, mask);
  for (KernelKind kind : {KernelKind::Forward, KernelKind::Backward}) {
    Case one = base(memory, "sliding_window", kind, 500, 500);
    one.options.blockSparse = true;
    one.operands.blockMask = &view;
    one.operands.captures = &captures;
    kind == KernelKind::Forward ? checkForward(one) : checkBackward(one);
  }
}

TEST_CASE("emitted launchers of backward kernels compute what the library does", "[gpu][backward]") {
  ATTNC_NEED_NVCC();
  Memory memory;
  Case plain = base(memory, "alibi", KernelKind::Backward, 300, 300);
  const Captures slopes = Captures().set("slopes", memory.drawn({4}, DType::F32));
  plain.operands.captures = &slopes;
  checkBackward(plain);
}
