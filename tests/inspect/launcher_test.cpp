// Launchers of emitted kernels: they enqueue, byte for byte, what the library does. Their host code is compiled against
// a fake of CUDA (fake_cuda/), so no GPU is needed.
#include "attnc/stages.h"

#include "api/mod_impl.h"
#include "codegen/pack_args.h"
#include "helpers/launcher_problem.h"
#include "helpers/temp_directory.h"
#include "ir/bind.h"
#include "plan/launch_operands.h"
#include "plan/workspace.h"
#include "templates/params_decode.cuh"

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <llvm/ADT/StringRef.h>

#include <cstdlib>
#include <dlfcn.h>
#include <fstream>
#include <regex>

using namespace attnc;
using Catch::Contains;

namespace {

const std::string kHere = ATTNC_SOURCE_DIR "/tests/inspect/fake_cuda";
const plan::Device kDevice{.multiprocessors = 78, .l2Bytes = 3 << 20};
unsigned long long zero;

/// What a launch enqueues: zeros, or a kernel.
struct Enqueued {
  unsigned grid = 0, block = 0;
  size_t shared = 0;
  std::vector<uint64_t> params, args; ///< words
  const void* zeros = nullptr;
  size_t zeroBytes = 0;
};
std::vector<Enqueued> expected, seen;
size_t launches; ///< of the launcher, so far

/// Loads a shared library that is compiled from one file. Null if the machine has no compiler.
void* compiled(const std::string& source, const std::string& output, const std::string& options = "") {
  if (std::system("c++ --version > /dev/null 2>&1") != 0) return nullptr;
  const std::string line = fmt::format("c++ -std=c++20 -O0 -ftrivial-auto-var-init=zero -Wl,-Bsymbolic -Wall -Wextra "
                                       "-Werror -fPIC -shared {} -I{} {} -o {}",
                                       options, kHere, source, output);
  INFO(line);
  REQUIRE(std::system(line.c_str()) == 0);
  void* library = dlopen(output.c_str(), RTLD_NOW | RTLD_LOCAL); // names are the same in several
  INFO((library ? "" : dlerror()));
  REQUIRE(library);
  return library;
}

/// Returns the parts of a file that the host needs: structs of parameters, and all behind the kernels.
std::string hostPart(const std::string& file) {
  std::string out = "#include <cuda.h>\n#include <cuda_runtime.h>\n#include <algorithm>\n#include <array>\n"
                    "#include <bit>\n#include <cstdint>\n#include <cstring>\n#include <optional>\n";
  const size_t host = file.find("// ===== host/types.h");
  REQUIRE(host != std::string::npos);
  for (size_t at = 0; (at = file.find("// ===== params", at)) < host; at += 8)
    out += file.substr(at, file.find("// =====", at + 8) - at);
  std::smatch found;
  std::string rest = file.substr(host), space = file.substr(3, file.find(':') - 3) + "_impl";
  std::set<std::string> kernels;
  for (std::string text = rest; std::regex_search(text, found, std::regex("void\\*>\\(&([\\w:]+)::(\\w+)\\)"));
       text = found.suffix())
    if (kernels.insert(found.str()).second)
      out += fmt::format("namespace {} {{ int {}; }}\n", found.str(1), found.str(2));
  return out + fmt::format("namespace {}::mod {{ unsigned long long attnc_zero; }}\n", space) + rest;
}

std::vector<uint64_t> wordsOf(const void* data, size_t bytes) {
  std::vector<uint64_t> words((bytes + 7) / 8);
  std::memcpy(words.data(), data, bytes);
  return words;
}

void addZeros(std::vector<Enqueued>& all, const plan::WorkspaceView& view, plan::WorkspaceUse::Zeroed when) {
  for (const plan::WorkspacePart& part : view.layout.parts())
    if (part.use.zeroed == when) all.push_back({.zeros = view.at(part.use.use), .zeroBytes = part.bytes});
}

/// Returns the bytes of a stage's parameters before the padding at their end.
size_t meaningOf(const plan::Stage& stage, size_t bytes) {
  if (!stage.config.pageSize && !stage.config.appends) return bytes;
  if (stage.templateName == "forward_sm90.cu") return offsetof(Cached<ForwardParamsSm90>, cache) + sizeof(CacheParams);
  if (stage.templateName == "decode_sm90.cu") return offsetof(Cached<DecodeParamsSm90>, cache) + sizeof(CacheParams);
  return bytes;
}

struct Case {
  std::string mod;
  KernelOptions options;
  BackwardOperands operands;
  Outputs outputs = {};
  BackwardOutputs gradients = {};
};

/// Compares what the launcher of a case enqueues with what the library does. Returns false if nothing can be compiled.
bool check(const Case& one) {
  static const test::TempDirectory folder;
  static int count = 0;
  static void* const driver = compiled(kHere + "/driver.cpp", folder / "libcuda.so.1", "-Wl,-soname,libcuda.so.1");
  if (!driver) return false;
  auto mod = Mod::load(ATTNC_SOURCE_DIR "/dsl/mods/" + one.mod);
  REQUIRE(mod);
  auto derived = derive(*mod, one.options);
  REQUIRE(derived);
  auto plan = choosePlan(*derived, one.options);
  INFO((plan ? "" : plan.error().message));
  REQUIRE(plan);
  const bool isBackward = one.options.kind == KernelKind::Backward;
  auto checked = isBackward ? plan::checkBackward(one.operands, one.gradients, plan->options)
                            : plan::checkForward(one.operands, one.outputs, plan->options);
  INFO((checked ? "" : checked.error().message));
  REQUIRE(checked);

  expected.clear(), seen.clear(), launches = 0;
  const plan::WorkspaceLayout layout(plan->workspace, *checked);
  void* const memory = layout.bytes() ? reinterpret_cast<void*>(uintptr_t(0x7000000)) : nullptr;
  const plan::WorkspaceView view{layout, memory};
  addZeros(expected, view, plan::WorkspaceUse::Zeroed::Once);
  addZeros(expected, view, plan::WorkspaceUse::Zeroed::EveryLaunch);
  static const Captures kNone;
  for (const plan::Stage& stage : plan->stages) {
    const int64_t ctas = plan::ctasOf(stage, *checked, kDevice);
    if (!ctas) continue;
    auto params = stage.parameters(stage, *checked, kDevice, view);
    INFO((params ? "" : params.error().message));
    REQUIRE(params);
    auto made = kernelModOf(*derived, formOf(stage));
    REQUIRE(made);
    auto bindings =
        ir::bind((*made)->module, one.operands.captures ? *one.operands.captures : kNone, checked->problem, &*checked);
    INFO((bindings ? "" : bindings.error().message));
    REQUIRE(bindings);
    Enqueued launch{unsigned(ctas), unsigned(stage.threads), size_t(stage.config.sharedBytes)};
    launch.params = wordsOf(params->data(), meaningOf(stage, params->size()));
    launch.args.resize((*made)->source.slots.size());
    codegen::packArgs((*made)->source.slots, *bindings, &zero, launch.args.data());
    expected.push_back(launch);
  }

  auto file = cudaFile(*mod, one.options, {.launcher = true});
  INFO((file ? "" : file.error().message));
  REQUIRE(file);
  const std::string name = file->substr(3, file->find(':') - 3), path = folder / fmt::format("case{}", count++);
  std::ofstream(path + ".cpp") << hostPart(*file) << "extern \"C\" size_t run(void* memory, int* errors) {\n"
                               << name << "_Problem p;\n"
                               << test::problemText(one.options, one.operands, one.outputs, one.gradients)
                               << (file->find(name + "_initialise(") == std::string::npos
                                       ? "errors[0] = 0;\n"
                                       : "errors[0] = " + name + "_initialise(p, memory, nullptr);\n")
                               << "errors[1] = " << name << "(p, memory, nullptr);\nreturn " << name
                               << "_workspace_bytes(p);\n}\n";
  void* const library = compiled(path + ".cpp", path + ".so");
  const auto set = [&](const char* symbol, auto value) {
    *static_cast<decltype(value)*>(dlsym(library, symbol)) = value;
  };
  set("fakeMultiprocessors", kDevice.multiprocessors);
  set("fakeL2Bytes", int(kDevice.l2Bytes));
  set("fakeZero", &zero);
  set(
      "fakeZeros", +[](void* memory, size_t bytes) { seen.push_back({.zeros = memory, .zeroBytes = bytes}); });
  set(
      "fakeLaunch", +[](unsigned grid, unsigned block, size_t shared, void** arguments) {
        while (launches < expected.size() && !expected[launches].grid) ++launches;
        REQUIRE(launches < expected.size());
        const Enqueued& like = expected[launches++]; // which says how long the structs are
        seen.push_back({grid, block, shared, wordsOf(arguments[0], 8 * like.params.size()),
                        wordsOf(arguments[1], 8 * like.args.size())});
      });
  int errors[2] = {-1, -1};
  const size_t bytes = reinterpret_cast<size_t (*)(void*, int*)>(dlsym(library, "run"))(memory, errors);
  CHECK(errors[0] == 0);
  CHECK(errors[1] == 0);
  CHECK(bytes == layout.bytes());
  REQUIRE(seen.size() == expected.size());
  for (size_t i = 0; i < seen.size(); ++i) {
    INFO("step " << i);
    CHECK(seen[i].grid == expected[i].grid);
    CHECK(seen[i].block == expected[i].block);
    CHECK(seen[i].shared == expected[i].shared);
    CHECK(seen[i].params == expected[i].params);
    CHECK(seen[i].args == expected[i].args);
    CHECK(seen[i].zeros == expected[i].zeros);
    CHECK(seen[i].zeroBytes == expected[i].zeroBytes);
  }
  return true;
}

void* at(uintptr_t address) { return reinterpret_cast<void*>(address << 20); }

/// A tensor whose rows lie apart, as those of a projection of q, k and v do.
TensorView apart(uintptr_t address, int64_t batch, int64_t heads, int64_t rows, int64_t columns) {
  TensorView view = TensorView::contiguous(at(address), DType::BF16, {batch, rows, heads, columns});
  std::swap(view.shape[1], view.shape[2]), std::swap(view.stride[1], view.stride[2]);
  return view;
}

TensorView dense(uintptr_t address, DType dtype, std::initializer_list<int64_t> shape) {
  return TensorView::contiguous(at(address), dtype, shape);
}

/// q and the like for B 3, H 8, HKV 2.
Case base(const char* mod, KernelKind kind, const char* arch, int dim, int dimV, int64_t qLen, int64_t kvLen) {
  Case one{.mod = mod, .options = {.kind = kind, .arch = arch, .headDim = dim, .headDimV = dimV}, .operands = {}};
  one.operands.q = apart(1, 3, 8, qLen, dim);
  one.operands.k = dense(2, DType::BF16, {3, 2, kvLen, dim});
  one.operands.v = apart(3, 3, 2, kvLen, dimV);
  one.outputs.out = apart(4, 3, 8, qLen, dimV);
  one.outputs.lse = dense(5, DType::F32, {3, 8, qLen});
  if (kind != KernelKind::Backward) return one;
  one.operands.out = *one.outputs.out;
  one.operands.lse = *one.outputs.lse;
  one.operands.dOut = apart(6, 3, 8, qLen, dimV);
  one.operands.dLse = dense(7, DType::F32, {3, 8, qLen});
  one.gradients.dQ = dense(8, DType::BF16, {3, 8, qLen, dim});
  one.gradients.dK = apart(9, 3, 2, kvLen, dim);
  one.gradients.dV = dense(10, DType::BF16, {3, 2, kvLen, dimV});
  return one;
}

void addLists(Case& one, BlockMaskView& mask, int64_t qLen, int64_t kvLen) {
  mask.shape = {.batch = 3, .heads = 1, .qLen = qLen, .kvLen = kvLen};
  const auto list = [](uintptr_t address) { return static_cast<int32_t*>(at(address)); };
  mask.partialCount = list(20), mask.partialIndex = list(21), mask.fullCount = list(22), mask.fullIndex = list(23);
  mask.indexStride = mask.shape.kvBlocks() + 1;
  mask.columns = {list(24), list(25), list(26), list(27), mask.shape.qBlocks()};
  one.operands.blockMask = &mask;
  one.options.blockSparse = true;
}

void addPages(Case& one, int pageSize, int64_t pages) {
  one.options.pageSize = pageSize;
  one.options.features.set(Feature::Lengths);
  one.operands.k = apart(2, pages, 2, pageSize, one.options.headDim);
  one.operands.v = dense(3, DType::BF16, {pages, 2, pageSize, one.options.headDimV});
  one.operands.pageTable = dense(11, DType::I32, {3, 20});
  one.operands.kvLengths = dense(12, DType::I32, {3});
}

void addAppends(Case& one, int64_t qLen) {
  one.options.features.set(Feature::Lengths);
  one.options.features.set(Feature::Appends);
  one.operands.kvLengths = dense(12, DType::I32, {3});
  one.operands.newK = apart(13, 3, 2, qLen, one.options.headDim);
  one.operands.newV = apart(14, 3, 2, qLen, one.options.headDimV);
}

#define CHECK_LAUNCHER(one)                                                                                            \
  if (!check(one)) {                                                                                                   \
    WARN("SKIPPED: there is no C++ compiler");                                                                         \
    return;                                                                                                            \
  }

} // namespace

TEST_CASE("launchers of forward kernels enqueue what the library does") {
  for (const char* arch : {"sm_80", "sm_90a"}) {
    DYNAMIC_SECTION(arch) {
      Case plain = base("alibi.py", KernelKind::Forward, arch, 128, 64, 500, 700);
      const Captures slopes = Captures().set("slopes", dense(30, DType::F32, {8}));
      plain.operands.captures = &slopes;
      plain.operands.scale = 0.25f;
      CHECK_LAUNCHER(plain);

      Case lists = base("sliding_window.py", KernelKind::Forward, arch, 64, 64, 500, 700);
      lists.operands.k = dense(2, DType::BF16, {1, 2, 700, 64}); // shared by the batch
      lists.operands.v = dense(3, DType::BF16, {1, 2, 700, 64});
      lists.options.features.set(Feature::RowMax);
      lists.outputs.rowMax = dense(15, DType::F32, {3, 8, 500});
      const Captures window = Captures().set("window", 100);
      lists.operands.captures = &window;
      BlockMaskView mask;
      addLists(lists, mask, 500, 700);
      CHECK_LAUNCHER(lists);

      Case pages = base("causal.py", KernelKind::Forward, arch, 128, 128, 40, 1280);
      addPages(pages, 64, 50);
      addAppends(pages, 40);
      pages.options.offsets = QueryOffsets::Tensor;
      pages.operands.qOffsets = dense(16, DType::I32, {3});
      CHECK_LAUNCHER(pages);
    }
  }
}

TEST_CASE("launchers of decode kernels enqueue what the library does") {
  for (const char* arch : {"sm_80", "sm_90a"}) {
    DYNAMIC_SECTION(arch) {
      Case listed = base("document.py", KernelKind::Decode, arch, 128, 128, 6, 3000); // steps along KV are listed
      const Captures documents = Captures().set("document_id", dense(31, DType::I32, {3000}));
      listed.operands.captures = &documents;
      CHECK_LAUNCHER(listed);

      Case pages = base("softcap.py", KernelKind::Decode, arch, 64, 64, 1, 320);
      const Captures cap = Captures().set("cap", 37.5);
      pages.operands.captures = &cap;
      addPages(pages, 16, 50);
      addAppends(pages, 1);
      CHECK_LAUNCHER(pages);
    }
  }
}

TEST_CASE("launchers of backward kernels enqueue what the library does") {
  const Captures slopes = Captures().set("slopes", dense(30, DType::F32, {8}));
  for (const char* arch : {"sm_80", "sm_90a"}) {
    DYNAMIC_SECTION(arch) {
      for (auto [dim, dimV] : {std::pair(64, 64), {128, 64}, {256, 256}}) {
        Case plain = base("alibi.py", KernelKind::Backward, arch, dim, dimV, 500, 700);
        plain.operands.captures = &slopes;
        CHECK_LAUNCHER(plain);
      }
      Case lists = base("sliding_window.py", KernelKind::Backward, arch, 128, 128, 500, 700);
      const Captures window = Captures().set("window", 100);
      lists.operands.captures = &window;
      BlockMaskView mask;
      addLists(lists, mask, 500, 700);
      CHECK_LAUNCHER(lists);
    }
  }
}

TEST_CASE("what launchers do not serve is refused by name") {
  const Mod mod = Mod::identity();
  const auto refusal = [&](KernelOptions options) {
    auto file = cudaFile(mod, options, {.launcher = true});
    REQUIRE_FALSE(file);
    CHECK(file.error().blame == Blame::Environment);
    return file.error().message;
  };
  CHECK_THAT(refusal({.arch = "sm_80", .dtype = DType::F32}), Contains("f32"));
  CHECK_THAT(refusal({.arch = "sm_80", .features = {Feature::Ragged}}), Contains("ragged batches"));
  CHECK_THAT(refusal({.family = Family::Naive, .arch = "sm_80"}), Contains("the naive family"));
  CHECK_THAT(refusal({.kind = KernelKind::BlockMask, .arch = "sm_80"}), Contains("kernels that build block masks"));
  CHECK_THAT(refusal({.kind = KernelKind::Backward, .arch = "sm_90a", .features = {Feature::Deterministic}}),
             Contains("deterministic"));
  CHECK_THAT(refusal({.kind = KernelKind::Decode, .arch = "sm_90a", .features = {Feature::Fp8Kv}}), Contains("e4m3"));
}
