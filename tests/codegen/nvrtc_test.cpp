// Generated code through the real compiler: it compiles for sm_90a without includes, spills and stack.
#include "codegen/emit.h"
#include "codegen/host_mods.h"
#include "codegen/library_mods.h"
#include "codegen/mod_source.h"
#include "helpers/random_module.h"
#include "jit/env.h"
#include "jit/nvrtc.h"

#include <catch2/catch.hpp>

#include <string>

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

Expected<CompiledKernel> compile(jit::Nvrtc& nvrtc, const std::string& mod) {
  KernelSource job;
  job.templateName = "probe.cu";
  job.text = kProbe;
  job.headers = {{"attnc_mod.cuh", mod}};
  for (const char* name : {"mod/contract.cuh", "mod/ops.cuh", "mod/random.cuh"})
    job.headers.emplace_back(name, test::readFile(std::string(ATTNC_SOURCE_DIR "/templates/") + name));
  job.arch = "sm_90a";
  job.entry = "probe";
  return nvrtc.compile(job);
}

/// Compiles, and demands that nothing spills and nothing needs a stack.
void checkKernel(jit::Nvrtc& nvrtc, const std::string& name, const ir::Module& module) {
  const std::string text = test::emitMod(module).text;
  const Expected<CompiledKernel> compiled = compile(nvrtc, text);
  INFO(name << "\n" << (compiled ? compiled->log : compiled.error().message) << text);
  REQUIRE(compiled);
  CHECK(compiled->spillBytes == 0);
  CHECK(compiled->stackBytes == 0);
}

bool skipsLoudly(jit::Nvrtc& nvrtc) {
  const bool isThere = bool(nvrtc.path());
  if (!isThere) WARN("SKIPPED: no libnvrtc.so.13 found; generated code is not compiled for the device");
  return !isThere;
}

} // namespace

TEST_CASE("every library mod compiles for sm_90a without spills and stack", "[codegen]") {
  jit::Nvrtc nvrtc(jit::Env::read());
  if (skipsLoudly(nvrtc)) return;
  for (const test::LibraryMod& mod : test::libraryMods()) checkKernel(nvrtc, mod.name, mod.module);
}

TEST_CASE("every f32 operation compiles for sm_90a without spills and stack", "[codegen]") {
  jit::Nvrtc nvrtc(jit::Env::read());
  if (skipsLoudly(nvrtc)) return;
  using ir::Op;
  for (Op op = Op::Neg; op <= Op::Fmod; op = Op(int(op) + 1)) {
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
  jit::Nvrtc nvrtc(jit::Env::read());
  if (skipsLoudly(nvrtc)) return;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    test::RandomModule random(seed);
    const std::string text = test::emitMod(random.module).text;
    const Expected<CompiledKernel> compiled = compile(nvrtc, text);
    INFO("seed " << seed << "\n" << (compiled ? "" : compiled.error().message) << text);
    CHECK(compiled);
  }
}

} // namespace attnc
