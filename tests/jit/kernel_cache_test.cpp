#include "jit/kernel_cache.h"

#include "helpers/temp_directory.h"
#include "jit/fixtures.h"

#include <catch2/catch.hpp>

using namespace attnc;
using namespace attnc::jit;
using namespace attnc::jit::test;
using namespace attnc::test;
namespace fs = std::filesystem;

TEST_CASE("a kernel is the same from the compiler, from memory and from disk", "[jit]") {
  TempDirectory directory;
  const cache::Options options{.directory = directory.path()};
  auto compiler = std::make_shared<FakeKernelCompiler>();
  KernelCache cache(options, compiler), other(options, compiler);
  const std::pair<KernelCache*, cache::Origin> calls[] = {{&cache, cache::Origin::Compiled},
                                                          {&cache, cache::Origin::Memory},
                                                          {&other, cache::Origin::Disk},
                                                          {&other, cache::Origin::Memory}};
  for (auto [from, origin] : calls) {
    auto kernel = take(from->getOrCompile(sampleSource()));
    CHECK(originOf(kernel) == origin);
    CHECK(codeOf(kernel) == codeOf(sampleResult()));
  }
  CHECK(compiler->compiles == 1);
}

TEST_CASE("a kernel that is nowhere is named where compiling is forbidden", "[jit]") {
  TempDirectory directory;
  cache::Options options{.directory = directory.path(), .mayCompile = false};
  auto compiler = std::make_shared<FakeKernelCompiler>();
  KernelSource job = sampleSource();
  job.label = "kind=forward";
  const Error missing = refusalOf(KernelCache(options, compiler).getOrCompile(job));
  CHECK(missing.blame == Blame::Environment);
  for (const std::string& part :
       {std::string("sample.cu sample sm_90a kind=forward"), contentOf(job).hex(), std::string("ATTNC_NO_COMPILE")})
    CHECK_THAT(missing.message, Catch::Contains(part));
  CHECK_THAT(missing.remedy, Catch::Contains("attnc pack"));

  cache::Options filling = options;
  filling.mayCompile = true;
  REQUIRE(KernelCache(filling, compiler).getOrCompile(job));
  CHECK(KernelCache(options, compiler).getOrCompile(job));
  KernelSource foreign = sampleSource();
  foreign.text = "foreign";
  const auto noKernel = [] { return std::string("no kernel"); };
  REQUIRE(cache::Cache(filling, compiler).getOrCompile(contentOf(foreign), "foreign", noKernel));
  CHECK_FALSE(KernelCache(options, compiler).getOrCompile(foreign));
  CHECK(compiler->compiles == 1);
}

TEST_CASE("a sound entry whose bytes are no kernel is compiled anew", "[jit]") {
  TempDirectory directory;
  const cache::Options options{.directory = directory.path()};
  auto compiler = std::make_shared<FakeKernelCompiler>();
  REQUIRE(cache::Cache(options, compiler).getOrCompile(contentOf(sampleSource()), "foreign", [] {
    return std::string("no kernel");
  }));
  auto kernel = take(KernelCache(options, compiler).getOrCompile(sampleSource()));
  CHECK(originOf(kernel) == cache::Origin::Compiled);
  CHECK(kernel.cubin == sampleResult().cubin);
}

TEST_CASE("a failed compile is dumped with its error", "[jit]") {
  TempDirectory directory;
  KernelSource bad = sampleSource();
  bad.text = "bad";
  KernelCache cache(cache::Options{}, std::make_shared<FakeKernelCompiler>(), directory.path());
  CHECK(refusalOf(cache.getOrCompile(bad)).message == "bad source");
  for (const auto& folder : fs::directory_iterator(directory.path()))
    CHECK(readText(folder.path() / "log.txt") == "bad source");
  CHECK_FALSE(fs::is_empty(directory.path()));
}

TEST_CASE("options that read files are refused", "[jit]") {
  KernelCache cache(cache::Options{}, std::make_shared<FakeKernelCompiler>());
  for (const char* option : {"-I/usr/include", "--include-path=x", "--pre-include=x", "--use-pch=x", "--pch",
                             "--time=x.csv", "--split-compile=2"}) {
    KernelSource job = sampleSource();
    job.options = {option};
    auto kernel = cache.getOrCompile(job);
    INFO(option);
    REQUIRE_FALSE(kernel);
    CHECK(kernel.error().blame == Blame::Internal);
  }
}

TEST_CASE("a dump holds what a kernel was made from", "[jit]") {
  TempDirectory directory;
  cache::Options options{.directory = directory / "cache"};
  options.log = cache::Log(directory / "log");
  KernelSource job = sampleSource();
  job.headers.push_back({"tile/deep.cuh", "// deep"});
  job.headers.push_back({"../outside.cuh", "// outside"});
  KernelCache cache(options, std::make_shared<FakeKernelCompiler>(), directory / "dump");
  REQUIRE(cache.getOrCompile(job));
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(directory / "dump")) folders.push_back(entry.path());
  REQUIRE(folders.size() == 1);
  CHECK(readText(folders[0] / "sample.cu") == job.text);
  CHECK(readText(folders[0] / "tile/deep.cuh") == "// deep");
  CHECK(readText(folders[0] / "kernel.ptx") == "ptx");
  CHECK(readText(folders[0] / "options.txt").find("-lineinfo") != std::string::npos);
  CHECK_FALSE(fs::exists(directory / "dump/outside.cuh"));
  CHECK(readText(directory / "log").find("compiled sample.cu for sm_90a") != std::string::npos);
}
