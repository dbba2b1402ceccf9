// Needs libnvrtc and no GPU. Where NVRTC is not installed these tests fail: the CPU suite depends on it.
#include "jit/nvrtc.h"

#include "helpers/child_process.h"
#include "helpers/take.h"
#include "helpers/temp_directory.h"
#include "jit/fixtures.h"
#include "jit/kernel_cache.h"
#include "jit/nvrtc_library.h"

#include <catch2/catch.hpp>

#include <filesystem>
#include <thread>
#include <unistd.h>

using namespace attnc;
using namespace attnc::jit;
using namespace attnc::test;
using attnc::jit::test::originOf;
using Catch::Contains;

namespace {

KernelSource scaleSource(const std::string& arch = "sm_80") {
  KernelSource job;
  job.templateName = "scale.cu";
  job.text = "#include \"factor.cuh\"\n"
             "extern \"C\" __global__ void scale(float* x, int n) {\n"
             "  __shared__ float staged[64];\n"
             "  staged[threadIdx.x % 64] = x[0];\n"
             "  __syncthreads();\n"
             "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
             "  if (i < n) x[i] = x[i] * factor() + staged[(i + 1) % 64];\n"
             "}\n";
  job.headers = {{"factor.cuh", "inline __device__ float factor() { return 2.0f; }\n"}};
  job.arch = arch;
  job.entry = "scale";
  return job;
}

// Takes NVRTC a few hundred milliseconds.
KernelSource slowSource(int number) {
  KernelSource job;
  job.templateName = "slow.cu";
  job.text = "extern \"C\" __global__ void slow(float* x) {\n  float v = x[threadIdx.x];\n";
  for (int i = 0; i < 8; ++i) job.text += "  v = sinf(v) * cosf(v + " + std::to_string(number * 1000 + i) + ".0f);\n";
  job.text += "  x[threadIdx.x] = v;\n}\n";
  job.arch = "sm_80";
  job.entry = "slow";
  return job;
}

} // namespace

TEST_CASE("NVRTC compiles a kernel with a header from memory", "[jit][nvrtc]") {
  Nvrtc nvrtc(Env::read());
  for (const char* arch : {"sm_80", "sm_90a", "sm_100a", "sm_120"}) {
    auto result = nvrtc.compile(scaleSource(arch));
    INFO(arch << (result ? "" : ": " + result.error().message));
    REQUIRE(result);
    CHECK(std::string(result->cubin.data(), 4) == "\177ELF");
    CHECK_THAT(result->ptx, Contains(".visible .entry scale"));
    CHECK(result->registers > 0);
    CHECK(result->registers < 64);
    CHECK(result->staticSharedBytes == 256);
    CHECK(result->spillBytes == 0);
    CHECK(result->stackBytes == 0);
    CHECK(result->advisories.empty());
    CHECK(result->compileMs > 0);
  }
}

TEST_CASE("NVRTC reports spills", "[jit][nvrtc]") {
  KernelSource job;
  job.templateName = "spill.cu";
  job.text = "extern \"C\" __global__ void spill(float* x) {\n  float v[96];\n"
             "#pragma unroll\n  for (int i = 0; i < 96; ++i) v[i] = x[i * 32 + threadIdx.x];\n"
             "  for (int round = 0; round < x[0]; ++round)\n"
             "#pragma unroll\n    for (int i = 0; i < 96; ++i) v[i] = v[i] * v[(i * 7 + 1) % 96] + 1.0f;\n"
             "#pragma unroll\n  for (int i = 0; i < 96; ++i) x[i * 32 + threadIdx.x] = v[i];\n}\n";
  job.arch = "sm_80";
  job.entry = "spill";
  job.options = {"--maxrregcount=32"};
  Nvrtc nvrtc(Env::read());
  auto result = take(nvrtc.compile(job));
  CHECK(result.registers == 32);
  CHECK(result.spillBytes > 0);
  CHECK(result.stackBytes > 0);
}

TEST_CASE("a source that does not compile is a bug of attnc, told with the log", "[jit][nvrtc]") {
  Nvrtc nvrtc(Env::read());
  KernelSource job = scaleSource();
  job.text += "int broken = ;\n";
  const Error result = refusalOf(nvrtc.compile(job));
  CHECK(result.blame == Blame::Internal);
  CHECK_THAT(result.message, Contains("scale.cu(9): error: expected an expression"));
}

TEST_CASE("headers that the job does not bring are not looked for on disk", "[jit][nvrtc]") {
  TempDirectory directory;
  writeText(directory / "factor.cuh", "inline __device__ float factor() { return 2.0f; }\n");
  auto before = std::filesystem::current_path();
  std::filesystem::current_path(directory.path());
  KernelSource job = scaleSource();
  job.headers.clear();
  Nvrtc nvrtc(Env::read());
  auto result = nvrtc.compile(job);
  std::filesystem::current_path(before);
  REQUIRE_FALSE(result);
  CHECK_THAT(result.error().message, Contains("factor.cuh"));
}

TEST_CASE("a missing entry and an unknown arch are errors with a reason", "[jit][nvrtc]") {
  Nvrtc nvrtc(Env::read());
  KernelSource job = scaleSource();
  job.entry = "scal";
  CHECK_THAT(refusalOf(nvrtc.compile(job)).message, Contains("no kernel `scal`"));
  for (const char* arch : {"sm_12", "sm_90ab", "sm_", "90", "compute_90", "", "sm_9999999999999"}) {
    auto unknown = nvrtc.compile(scaleSource(arch));
    INFO(arch);
    REQUIRE_FALSE(unknown);
    CHECK(unknown.error().blame == Blame::Environment);
    CHECK_THAT(unknown.error().remedy, Contains("sm_90"));
  }
}

TEST_CASE("a missing NVRTC is told with the places that were searched", "[jit][nvrtc]") {
  Nvrtc nvrtc(Env{}, "/nowhere/libnvrtc.so.13");
  CHECK_FALSE(nvrtc.stamp());
  const Error result = refusalOf(nvrtc.compile(scaleSource()));
  CHECK(result.blame == Blame::Environment);
  CHECK_THAT(result.message, Contains("/nowhere/libnvrtc.so.13"));
  CHECK_THAT(result.remedy, Contains("ATTNC_NVRTC"));
  Env env;
  env.nvrtc = "/elsewhere";
  CHECK_THAT(refusalOf(Nvrtc(env).identity()).message, Contains("/elsewhere"));
}

TEST_CASE("a library that is not NVRTC is refused", "[jit][nvrtc]") {
  for (const char* path : {"/proc/self/exe", "libm.so.6"}) {
    CHECK(refusalOf(Nvrtc(Env{}, path).identity()).blame == Blame::Environment);
  }
}

TEST_CASE("the identity names the exact build", "[jit][nvrtc]") {
  Nvrtc nvrtc(Env::read());
  auto identity = take(nvrtc.identity());
  CHECK_THAT(identity, Contains("Cuda compilation tools"));
  CHECK_THAT(identity, Contains("V13."));
  auto again = take(Nvrtc(Env::read()).identity());
  CHECK(again == identity);
}

TEST_CASE("the stamp is the same before and after opening", "[jit][nvrtc]") {
  Nvrtc nvrtc(Env::read());
  auto before = nvrtc.stamp();
  REQUIRE(nvrtc.identity());
  REQUIRE(nvrtc.stamp());
  if (before) CHECK(*before == *nvrtc.stamp());
}

TEST_CASE("equal jobs give equal machine code in different processes", "[jit][nvrtc]") {
  TempDirectory directory;
  auto compileTo = [&](const std::string& file) {
    return [&, file] {
      Nvrtc nvrtc(Env::read());
      auto result = nvrtc.compile(slowSource(1));
      if (!result) return 1;
      writeText(directory / file, std::string(result->cubin.begin(), result->cubin.end()));
      return 0;
    };
  };
  CHECK(waitFor(startChild(compileTo("a"))) == 0);
  CHECK(waitFor(startChild(compileTo("b"))) == 0);
  CHECK(readText(directory / "a").size() > 1000);
  CHECK(readText(directory / "a") == readText(directory / "b"));
}

TEST_CASE("threads compile at the same time", "[jit][nvrtc]") {
  Nvrtc nvrtc(Env::read());
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      KernelSource job = scaleSource();
      job.headers[0].second = "inline __device__ float factor() { return " + std::to_string(t) + ".0f; }\n";
      for (int i = 0; i < 3; ++i)
        if (!nvrtc.compile(job)) ++failed;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(failed == 0);
}

TEST_CASE("a child forked during a compile is refused, and one forked when idle compiles", "[jit][nvrtc]") {
  Nvrtc nvrtc(Env::read());
  REQUIRE(nvrtc.identity());
  auto compileInChild = [&] {
    ::alarm(20);
    auto result = nvrtc.compile(scaleSource());
    if (result) return 0;
    return result.error().blame == Blame::Environment ? 3 : 1;
  };
  CHECK(waitFor(startChild(compileInChild)) == 0);
  std::atomic<bool> stop{false};
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; !stop; ++i, ++done) (void)nvrtc.compile(slowSource(10 * t + i));
    });
  while (done == 0) std::this_thread::yield();
  int refused = 0;
  for (int i = 0; i < 8; ++i) {
    int status = waitFor(startChild(compileInChild));
    CHECK((status == 0 || status == 3));
    refused += status == 3;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(refused > 0);
  CHECK(waitFor(startChild(compileInChild)) == 0);
}

TEST_CASE("a child forked during a compile still reads the disk", "[jit][nvrtc]") {
  TempDirectory directory;
  auto nvrtc = std::make_shared<Nvrtc>(Env::read());
  const cache::Options options{.directory = directory / "cache"};
  KernelCache cache(options, nvrtc);
  REQUIRE(cache.getOrCompile(scaleSource()));
  std::atomic<bool> stop{false};
  std::atomic<int> done{0};
  std::thread busy([&] {
    for (int i = 0; !stop; ++i, ++done) (void)nvrtc->compile(slowSource(i));
  });
  while (done == 0) std::this_thread::yield();
  for (int i = 0; i < 4; ++i)
    CHECK(waitFor(startChild([&] {
            ::alarm(20);
            KernelCache fresh(options, nvrtc);
            auto kernel = fresh.getOrCompile(scaleSource());
            return kernel && originOf(*kernel) == cache::Origin::Disk ? 0 : 1;
          })) == 0);
  stop = true;
  busy.join();
}

TEST_CASE("a kernel of NVRTC comes back from the disk as it was", "[jit][nvrtc]") {
  TempDirectory directory;
  auto nvrtc = std::make_shared<Nvrtc>(Env::read());
  const cache::Options options{.directory = directory / "cache"};
  auto first = take(KernelCache(options, nvrtc).getOrCompile(scaleSource()));
  CHECK(originOf(first) == cache::Origin::Compiled);
  auto second = take(KernelCache(options, std::make_shared<Nvrtc>(Env::read())).getOrCompile(scaleSource()));
  CHECK(originOf(second) == cache::Origin::Disk);
  CHECK(second.cubin == first.cubin);
  CHECK(second.ptx == first.ptx);
  CHECK(second.log == first.log);
  CHECK(second.registers == first.registers);
}

TEST_CASE("in a process that has not loaded NVRTC: what NVRTC read of its environment counts", "[.]") {
  ::unsetenv("NV_NVVM_VERSION");
  Nvrtc early(Env::read());
  auto before = take(early.stamp());
  ::setenv("NV_NVVM_VERSION", "nvvm-latest", 1);
  auto refused = early.identity(); // since its stamp is told
  REQUIRE_FALSE(refused);
  CHECK(refused.error().blame == Blame::Environment);
  CHECK_THAT(refused.error().message, Contains("NV_NVVM_VERSION"));

  Nvrtc loading(Env::read());
  auto loaded = take(loading.identity());
  CHECK_THAT(loaded, Contains("NV_NVVM_VERSION=nvvm-latest"));
  ::unsetenv("NV_NVVM_VERSION");
  Nvrtc late(Env::read());
  CHECK(late.stamp() != before);
  CHECK(late.stamp() == loading.stamp());
  auto same = take(late.identity());
  CHECK(same == loaded);
}

TEST_CASE("what NVRTC read of its environment counts, not what stands there later", "[jit][nvrtc]") {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  CHECK(std::system(("'" + self + "' 'in a process that has not loaded NVRTC*'").c_str()) == 0);
}
