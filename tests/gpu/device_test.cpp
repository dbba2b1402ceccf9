// Runs on a GPU where there is one; elsewhere it holds the errors to what they should say.
#include "helpers/take.h"
#include "jit/loaded_kernel.h"
#include "jit/nvrtc.h"
#include "tools/device/device.h"

#include <catch2/catch.hpp>

#include <thread>

using namespace attnc;
using namespace attnc::jit;
using Catch::Contains;

namespace {

constexpr char kSource[] = "extern \"C\" __device__ unsigned long long fortyTwo = 42;\n"
                           "extern \"C\" __global__ void addSum(float* out, float value) {\n"
                           "  extern __shared__ float staged[];\n"
                           "  staged[threadIdx.x] = value;\n"
                           "  __syncthreads();\n"
                           "  float sum = 0;\n"
                           "  for (int i = 0; i < blockDim.x; ++i) sum += staged[i];\n"
                           "  out[blockIdx.x * blockDim.x + threadIdx.x] += sum;\n"
                           "}\n";

bool noGpu() {
  auto count = device::count();
  if (count && *count > 0) return false;
  WARN("SKIPPED: there is no GPU here");
  return true;
}

CompiledKernel compiled(const std::string& arch) {
  Nvrtc nvrtc(Env::read());
  KernelSource job{.entry = "addSum", .templateName = "add_sum.cu", .text = kSource, .arch = arch};
  return take(nvrtc.compile(job));
}

LoadRequest request(const CompiledKernel& result, const std::string& arch, int64_t shared) {
  return {{result.cubin.data(), result.cubin.size()}, "addSum", arch, shared};
}

// Adds 128 * value to each of 256 floats.
Status launchOnce(const LoadedKernel& kernel, device::Buffer& out, CUstream_st* stream, float value, unsigned shared) {
  void* address = out.data();
  void* arguments[] = {&address, &value};
  return kernel.launch({.grid = {2, 1, 1}, .block = {128, 1, 1}, .dynamicSharedBytes = shared}, stream, arguments);
}

bool allEqual(const device::Buffer& buffer, float expected) {
  std::vector<float> host(buffer.bytes() / sizeof(float));
  REQUIRE(buffer.download(host.data(), buffer.bytes()));
  for (float value : host)
    if (value != expected) return false;
  return true;
}

} // namespace

TEST_CASE("without a driver the errors say so", "[jit]") {
  auto count = device::count();
  if (count) {
    WARN("SKIPPED: there is a driver here");
    return;
  }
  CHECK(count.error().blame == Blame::Environment);
  CHECK_THAT(count.error().message, Contains("CUDA driver") || Contains("CUDA_ERROR"));
  CHECK_FALSE(currentDevice());
  CHECK_FALSE(device::Context::create());
  CHECK_FALSE(device::Buffer::allocate(16));
  CHECK_FALSE(LoadedKernel::load({}));
}

TEST_CASE("without a current context there is no current device", "[jit]") {
  if (noGpu()) return;
  std::thread([] { CHECK_THAT(refusalOf(currentDevice()).message, Contains("no current CUDA context")); }).join();
}

TEST_CASE("a kernel is loaded and launched, with more than 48 KiB of shared memory", "[jit]") {
  if (noGpu()) return;
  auto context = take(device::Context::create());
  const std::string arch = context.info().arch;
  CompiledKernel result = compiled(arch);
  auto kernel = take(LoadedKernel::load(request(result, arch, 64 << 10)));
  CHECK(kernel.attributes().registers == result.registers);
  auto out = device::Buffer::allocate(256 * sizeof(float));
  auto stream = device::Stream::create();
  REQUIRE(out);
  REQUIRE(stream);
  REQUIRE(out->fill(0));
  REQUIRE(launchOnce(kernel, *out, stream->get(), 2.0f, 64 << 10));
  REQUIRE(stream->synchronize());
  CHECK(allEqual(*out, 256.0f));
  CHECK_FALSE(launchOnce(kernel, *out, stream->get(), 2.0f, 100 << 10));
  CHECK_FALSE(out->upload(nullptr, 1, out->bytes()));
}

TEST_CASE("a variable of a cubin has an address in device memory", "[jit]") {
  if (noGpu()) return;
  auto context = take(device::Context::create());
  const std::string arch = context.info().arch;
  CompiledKernel result = compiled(arch);
  LoadRequest wanted = request(result, arch, 512);
  wanted.variable = "fortyTwo";
  auto kernel = take(LoadedKernel::load(wanted));
  REQUIRE(kernel.variable());
  CHECK(reinterpret_cast<uintptr_t>(kernel.variable()) % 8 == 0);
  auto plain = take(LoadedKernel::load(request(result, arch, 512)));
  CHECK_FALSE(plain.variable());
  wanted.variable = "missing";
  CHECK(refusalOf(LoadedKernel::load(wanted)).blame == Blame::Internal);
}

TEST_CASE("the first launch of a kernel may be captured, and the graph replayed", "[jit]") {
  if (noGpu()) return;
  auto context = take(device::Context::create());
  CompiledKernel result = compiled(context.info().arch);
  auto kernel = LoadedKernel::load(request(result, context.info().arch, 512));
  auto out = device::Buffer::allocate(256 * sizeof(float));
  auto stream = device::Stream::create();
  auto begin = device::Event::create(), end = device::Event::create();
  REQUIRE((kernel && out && stream && begin && end));
  REQUIRE(out->fill(0));
  REQUIRE(stream->beginCapture());
  Status launched = launchOnce(*kernel, *out, stream->get(), 1.0f, 512);
  auto graph = stream->endCapture();
  REQUIRE(launched);
  REQUIRE(graph);
  CHECK(allEqual(*out, 0.0f));
  REQUIRE(begin->record(stream->get()));
  for (int i = 0; i < 1000; ++i) REQUIRE(graph->launch(stream->get()));
  REQUIRE(end->record(stream->get()));
  REQUIRE(stream->synchronize());
  CHECK(allEqual(*out, 128'000.0f));
  auto ms = take(end->msSince(*begin));
  CHECK(ms > 0);
}

TEST_CASE("threads launch one kernel on their own streams", "[jit]") {
  if (noGpu()) return;
  auto context = take(device::Context::create());
  CompiledKernel result = compiled(context.info().arch);
  auto kernel = take(LoadedKernel::load(request(result, context.info().arch, 512)));
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      if (!context.makeCurrent()) return;
      auto out = device::Buffer::allocate(256 * sizeof(float));
      auto stream = device::Stream::create();
      if (!out || !stream || !out->fill(0)) return;
      for (int i = 0; i < 100; ++i)
        if (!launchOnce(kernel, *out, stream->get(), 1.0f, 512)) return;
      std::vector<float> host(256);
      if (!stream->synchronize() || !out->download(host.data(), out->bytes())) return;
      right += std::all_of(host.begin(), host.end(), [](float value) { return value == 12'800.0f; });
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(right == 4);
}

TEST_CASE("a kernel that does not fit the device is refused with a reason", "[jit]") {
  if (noGpu()) return;
  auto context = take(device::Context::create());
  const DeviceInfo& device = context.info();
  CompiledKernel result = compiled(device.arch);
  CHECK_THAT(refusalOf(LoadedKernel::load(request(result, device.arch, device.sharedBytesPerBlock + 1))).message,
             Contains("bytes of shared memory"));
  CHECK_THAT(refusalOf(LoadedKernel::load(request(result, "sm_75", 0))).message, Contains("compiled for sm_75"));
  LoadRequest noEntry = request(result, device.arch, 0);
  noEntry.entry = "missing";
  CHECK(refusalOf(LoadedKernel::load(noEntry)).blame == Blame::Internal);
  LoadRequest garbage = request(result, device.arch, 0);
  garbage.cubin = "this is not a cubin, and the driver says so";
  CHECK_FALSE(LoadedKernel::load(garbage));
}
