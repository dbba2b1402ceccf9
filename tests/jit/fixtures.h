// A kernel compiler for tests that need no kernel, and a job for it.
#pragma once

#include "helpers/take.h"
#include "jit/kernel_bytes.h"
#include "jit/kernel_compiler.h"

#include <fmt/format.h>

#include <atomic>

namespace attnc::jit::test {

inline KernelSource sampleSource() {
  KernelSource job;
  job.templateName = "sample.cu";
  job.text = "extern \"C\" __global__ void sample() {}";
  job.headers = {{"a.cuh", "// a"}, {"b.cuh", "// b"}};
  job.options = {"-lineinfo"};
  job.arch = "sm_90a";
  job.entry = "sample";
  return job;
}

/// A kernel with every field set.
inline CompiledKernel sampleResult() {
  CompiledKernel result;
  result.cubin = {'\177', 'E', 'L', 'F', 0, 1, 2};
  result.ptx = "ptx";
  result.log = "log\nlog";
  result.registers = 168;
  result.spillBytes = 12;
  result.staticSharedBytes = int64_t(1) << 40;
  result.stackBytes = 512;
  result.order = 1;
  result.advisories = {"(C7519) one", ""};
  result.compileMs = 312.5;
  return result;
}

/// Returns where the call that returned a kernel found it.
inline cache::Origin originOf(const CompiledKernel& kernel) {
  return kernel.fromDisk ? cache::Origin::Disk : kernel.compileMs > 0 ? cache::Origin::Compiled : cache::Origin::Memory;
}

/// Returns the bytes of a kernel without what a call tells of its origin.
inline std::string codeOf(CompiledKernel kernel) {
  kernel.compileMs = 0;
  return encodeResult(kernel);
}

/// "Compiles" any job into the sample.
class FakeKernelCompiler : public KernelCompiler {
public:
  std::optional<std::string> stamp() const override { return "stamp"; }
  Expected<std::string> identity() override {
    ++identities;
    return std::string("fake");
  }
  Expected<CompiledKernel> compile(const KernelSource& job) override {
    ++compiles;
    if (job.text == "bad") return Error::internal("bad source");
    CompiledKernel result = sampleResult();
    if (ms > 0) result.log += fmt::format("\nptxas info    : Compile time = {} ms\nregisters", result.compileMs = ms);
    return result;
  }
  std::atomic<int> compiles{0}, identities{0};
  double ms = 0; ///< that it says it took, also in the log; 0: that of the sample
};

} // namespace attnc::jit::test
