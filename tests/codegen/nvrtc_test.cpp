// Generated code through the real compiler: it compiles for sm_90a without includes, spills and stack.
#include "codegen/emit.h"
#include "codegen/host_mods.h"
#include "codegen/library_mods.h"
#include "codegen/mod_source.h"
#include "support/random_module.h"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <dlfcn.h>
#include <regex>

namespace attnc {
namespace {

/// What a kernel does with a mod: rows and columns held in registers, a score and a mask for each pair.
constexpr const char* kProbe = R"(
#include "attnc_mod.cuh"
using namespace attnc;
extern "C" __global__ void __launch_bounds__(128)
probe(const __grid_constant__ ModArgs args, const float* in, float* out, int q_len, int kv_len) {
  int b = blockIdx.z, h = blockIdx.y;
  Mod::Head head = Mod::head(args, b, h);
  int q0 = blockIdx.x * 64 + threadIdx.x;
  Mod::Row rows[2];
  int q[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    q[i] = min(q0 + 8 * i, q_len - 1);
    rows[i] = Mod::row(args, head, b, h, q[i], float(q[i]));
  }
  for (int kv0 = 0; kv0 < kv_len; kv0 += 8) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      int kv = min(kv0 + j, kv_len - 1);
      Mod::Col col = Mod::col(args, head, b, h, kv, float(kv), 0.f);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        long long at = (long long)q[i] * kv_len + kv;
        float score = Mod::score(args, head, rows[i], col, {b, h, q[i], kv}, in[at]);
        out[at] = Mod::mask(args, head, rows[i], col, {b, h, q[i], kv}) ? score : -1.0f;
      }
    }
  }
}
)";

/// The few functions of NVRTC that the test needs, from wherever CUDA 13 is installed.
class Nvrtc {
public:
  Nvrtc() {
    std::vector<std::string> places = {"libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so.13"};
    if (const char* home = std::getenv("CUDA_HOME")) places.push_back(std::string(home) + "/lib64/libnvrtc.so.13");
    for (const char* python : {"3.10", "3.11", "3.12", "3.13"})
      places.push_back(std::string(ATTNC_SOURCE_DIR "/.venv/lib/python") + python +
                       "/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
    for (const std::string& place : places)
      if (!library) library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  explicit operator bool() const { return library; }

  /// True if it compiles; `log` is the compiler's and the assembler's.
  bool compile(const std::string& mod, std::string& log) const {
    std::string contract = test::readFile(ATTNC_SOURCE_DIR "/templates/mod/contract.cuh");
    std::string ops = test::readFile(ATTNC_SOURCE_DIR "/templates/mod/ops.cuh");
    const char* texts[] = {mod.c_str(), contract.c_str(), ops.c_str()};
    const char* names[] = {"attnc_mod.cuh", "mod/contract.cuh", "mod/ops.cuh"};
    const char* options[] = {"-arch=sm_90a", "-std=c++17", "--ptxas-options=-v"};
    void* program = nullptr;
    if (function<int(void**, const char*, const char*, int, const char**, const char**)>("nvrtcCreateProgram")(
            &program, kProbe, "probe.cu", 3, texts, names) != 0)
      return false;
    int result = function<int(void*, int, const char**)>("nvrtcCompileProgram")(program, 3, options);
    size_t size = 0;
    function<int(void*, size_t*)>("nvrtcGetProgramLogSize")(program, &size);
    log.resize(size);
    function<int(void*, char*)>("nvrtcGetProgramLog")(program, log.data());
    function<int(void**)>("nvrtcDestroyProgram")(&program);
    return result == 0;
  }

private:
  template <class F> F* function(const char* name) const { return reinterpret_cast<F*>(dlsym(library, name)); }
  void* library = nullptr;
};

/// Compiles, and demands that nothing spills and nothing needs a stack.
void checkKernel(const Nvrtc& nvrtc, const std::string& name, const ir::Module& module) {
  std::string text = test::emitMod(module).text, log;
  bool compiled = nvrtc.compile(text, log);
  INFO(name << "\n" << log << text);
  CHECK(compiled);
  CHECK(std::regex_search(log, std::regex("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads")));
}

bool skipsLoudly(const Nvrtc& nvrtc) {
  if (!nvrtc) WARN("SKIPPED: no libnvrtc.so.13 found; generated code is not compiled for the device");
  return !nvrtc;
}

} // namespace

TEST_CASE("every library mod compiles for sm_90a without spills and stack", "[codegen]") {
  Nvrtc nvrtc;
  if (skipsLoudly(nvrtc)) return;
  for (const test::LibraryMod& mod : test::libraryMods()) checkKernel(nvrtc, mod.name, mod.module);
}

TEST_CASE("every f32 operation compiles for sm_90a without spills and stack", "[codegen]") {
  Nvrtc nvrtc;
  if (skipsLoudly(nvrtc)) return;
  using ir::Op;
  for (Op op = Op::Neg; op <= Op::Pow; op = Op(int(op) + 1)) {
    ir::TypeRule rule = ir::info(op).rule;
    if (rule != ir::TypeRule::Float && rule != ir::TypeRule::Arith) continue;
    ir::Module module;
    ir::Value score = module.param(ir::ParamKind::Score);
    ir::Value row = module.make(Op::Cast, ir::Type::F32, {module.param(ir::ParamKind::QIdx)});
    llvm::SmallVector<ir::Value, 3> operands = {score, row};
    operands.resize(size_t(ir::info(op).arity), score);
    module.setOutput(ir::kScore, module.make(op, ir::Type::F32, operands));
    checkKernel(nvrtc, ir::info(op).text, module);
  }
}

TEST_CASE("random modules compile for sm_90a", "[codegen]") {
  Nvrtc nvrtc;
  if (skipsLoudly(nvrtc)) return;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    test::RandomModule random(seed);
    std::string text = test::emitMod(random.module).text, log;
    bool compiled = nvrtc.compile(text, log);
    INFO("seed " << seed << "\n" << log << text);
    CHECK(compiled);
  }
}

} // namespace attnc
