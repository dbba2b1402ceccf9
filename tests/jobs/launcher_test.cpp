// Launchers of emitted kernels: they enqueue, byte for byte, what the library does. Their host code is compiled against
// a fake of CUDA (fake_cuda/), so no GPU is needed.
#include "attnc/stages.h"

#include "api/drawn_captures.h"
#include "api/recorded_launch.h"
#include "helpers/launcher_tensors.h"
#include "helpers/plan_parts.h"
#include "helpers/temp_directory.h"
#include "jobs/operands.h"
#include "jobs/variants.h"
#include "support/try.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <regex>

using namespace attnc;
using namespace attnc::test;

namespace {

const plan::Device kDevice{.multiprocessors = 78, .l2Bytes = 3 << 20};
unsigned long long zero;

/// What a launch enqueues: zeros, or a kernel.
struct Enqueued {
  unsigned grid = 0, block = 0;
  size_t shared = 0;
  std::vector<uint64_t> params, args; ///< words
  const void* zeros = nullptr;
  size_t zeroBytes = 0;
  friend bool operator==(const Enqueued&, const Enqueued&) = default;
};

/// A launch of a kernel of a mod, with what the library enqueues for it.
struct Case {
  std::string name;
  Launch launch;
  std::vector<Enqueued> expected;
  size_t workspaceBytes = 0;
  std::string code; ///< of the host: the launcher in a namespace, and a function that calls it
};

std::vector<Enqueued> seen;
const std::vector<Enqueued>* expected; ///< says how long the structs are

/// Fills what the library enqueues. `tokens`: as in fillLaunch(). Errors: the plan does not take the launch.
Status record(Case& one, const Mod& mod, const KernelOptions& options, int64_t tokens) {
  ATTNC_TRY_AS(kernel, test::written(mod, options));
  fillLaunch(one.launch, mod, kernel->plan().options, tokens);
  void* const memory = reinterpret_cast<void*>(uintptr_t(1) << 44);
  ATTNC_TRY_AS(recorded, plan::recordLaunch(kernel->plan(), kernel->mods, kernel->mod().module(), one.launch.operands,
                                            one.launch.outputs, one.launch.gradients, kDevice, memory, &zero));
  one.workspaceBytes = recorded->workspace.bytes();
  const plan::WorkspaceView view{recorded->workspace, memory};
  const auto addZeros = [&](plan::WorkspaceUse::Zeroed when) {
    for (const plan::WorkspacePart& part : view.layout.parts())
      if (part.use.zeroed == when) one.expected.push_back({.zeros = view.at(part.use.use), .zeroBytes = part.bytes});
  };
  addZeros(plan::WorkspaceUse::Zeroed::Once);
  for (const plan::CaptureOutput& capture : recorded->operands.captureOutputs)
    if (capture.isDirect) one.expected.push_back({.zeros = capture.out.data, .zeroBytes = capture.bytes()});
  addZeros(plan::WorkspaceUse::Zeroed::EveryLaunch);
  for (plan::RecordedStage& recordedStage : recorded->stages) {
    const plan::Stage& stage = kernel->plan().stages[recordedStage.index];
    Enqueued launch{unsigned(recordedStage.ctas), unsigned(stage.threads), size_t(stage.config.sharedBytes)};
    launch.params.resize((recordedStage.params.size() + 7) / 8);
    std::memcpy(launch.params.data(), recordedStage.params.data(), recordedStage.params.size());
    launch.args = recordedStage.args;
    one.expected.push_back(std::move(launch));
  }
  return {};
}

/// Writes the code of a case.
void write(Case& one, size_t number, const Mod& mod, const KernelOptions& options) {
  // The launcher may know only layouts: other addresses than those of the launch.
  const LaunchShape shape{one.launch.operands, one.launch.outputs, one.launch.gradients, kDevice.multiprocessors,
                          kDevice.l2Bytes};
  const auto file = cudaFile(*Compiler().plan(mod, options), {.launcher = &shape});
  INFO(one.name << (file ? "" : file.error().message));
  REQUIRE(file);
  const std::string name = file->substr(3, file->find(':') - 3);
  const std::string host = file->substr(file->find("// ===== launcher"));
  std::string stubs = fmt::format("namespace {}_impl::mod {{ unsigned long long attnc_zero; }}\n", name);
  std::set<std::string> kernels;
  std::smatch found;
  for (std::string text = host; std::regex_search(text, found, std::regex("void\\*>\\(&([\\w:]+)::(\\w+)\\)"));
       text = found.suffix())
    if (kernels.insert(found.str()).second)
      stubs += fmt::format("namespace {} {{ int {}; }}\n", found.str(1), found.str(2));
  const bool isPrepared = host.find(name + "_initialise(") != std::string::npos;
  one.code = fmt::format("namespace case{0} {{\n{1}{2}}}\nextern \"C\" size_t run{0}(void* memory, int* errors) {{\n"
                         "using namespace case{0};\n{3}_Tensors t;\n{4}errors[0] = {5};\n"
                         "errors[1] = {3}(t, memory, nullptr);\nreturn {3}_workspace_bytes;\n}}\n",
                         number, stubs, host, name,
                         tensorsText(options, one.launch.operands, one.launch.outputs, one.launch.gradients),
                         isPrepared ? name + "_initialise(memory, nullptr)" : "0");
}

/// Loads a shared library that is compiled from the text. Null if the machine has no compiler.
void* compiled(const std::string& text) {
  if (std::system("c++ --version > /dev/null 2>&1") != 0) return nullptr;
  static const TempDirectory folder;
  const std::string source = folder / "launchers.cpp", library = folder / "launchers.so";
  std::ofstream(source) << text;
  const std::string line = fmt::format("c++ -std=c++20 -O0 -Wl,-Bsymbolic -Wall -Wextra -Werror -fPIC -shared -I{} {} "
                                       "-o {}",
                                       ATTNC_SOURCE_DIR "/tests/jobs/fake_cuda", source, library);
  INFO(line);
  REQUIRE(std::system(line.c_str()) == 0);
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  INFO((handle ? "" : dlerror()));
  REQUIRE(handle);
  return handle;
}

} // namespace

TEST_CASE("launchers enqueue what the library does") {
  constexpr size_t kModsOfVariant = 1;
  const std::vector<std::string> paths = libraryMods();
  std::vector<std::unique_ptr<Case>> cases;
  std::string text = "#include <cuda.h>\n#include <cuda_runtime.h>\n#include <cstdint>\n#include <initializer_list>\n";
  size_t next = 0;
  for (const Variant& variant : variants()) {
    size_t taken = 0;
    for (size_t tried = 0; tried < paths.size() && taken < kModsOfVariant; ++tried) {
      const std::string& path = paths[next++ % paths.size()];
      const auto mod = take(Mod::load(path));
      const KernelOptions options = optionsOf(variant, mod);
      std::unique_ptr<Case> one;
      for (const int64_t tokens : tokensOf(options)) {
        auto tried = std::make_unique<Case>();
        tried->name = variant.name + ", " + std::filesystem::path(path).stem().string();
        if (!one && record(*tried, mod, options, tokens) && !tried->expected.empty()) one = std::move(tried);
      }
      if (!one) continue;
      write(*one, cases.size(), mod, options);
      text += one->code;
      cases.push_back(std::move(one));
      ++taken;
    }
    INFO(variant.name);
    CHECK((taken > 0 || variant.options.maskByBoxes)); // fillLaunch() makes no lists of boxes
  }
  void* const library = compiled(text);
  if (!library) {
    WARN("SKIPPED: there is no C++ compiler");
    return;
  }
  const auto set = [&](const char* symbol, auto value) {
    *static_cast<decltype(value)*>(dlsym(library, symbol)) = value;
  };
  set("fakeMultiprocessors", kDevice.multiprocessors);
  set("fakeZero", &zero);
  set(
      "fakeZeros", +[](void* memory, size_t bytes) { seen.push_back({.zeros = memory, .zeroBytes = bytes}); });
  set(
      "fakeLaunch", +[](unsigned grid, unsigned block, size_t shared, void** arguments) {
        REQUIRE(seen.size() < expected->size());
        const Enqueued& like = (*expected)[seen.size()];
        const auto words = [](const void* data, size_t count) {
          std::vector<uint64_t> all(count);
          std::memcpy(all.data(), data, 8 * count);
          return all;
        };
        seen.push_back(
            {grid, block, shared, words(arguments[0], like.params.size()), words(arguments[1], like.args.size())});
      });
  for (size_t number = 0; number < cases.size(); ++number) {
    const Case& one = *cases[number];
    INFO(one.name);
    seen.clear();
    expected = &one.expected;
    int errors[2] = {-1, -1};
    const auto run = reinterpret_cast<size_t (*)(void*, int*)>(dlsym(library, fmt::format("run{}", number).c_str()));
    void* const memory = one.workspaceBytes ? reinterpret_cast<void*>(uintptr_t(1) << 44) : nullptr;
    CHECK(run(memory, errors) == one.workspaceBytes);
    CHECK(errors[0] == 0);
    CHECK(errors[1] == 0);
    REQUIRE(seen.size() == one.expected.size());
    for (size_t i = 0; i < seen.size(); ++i) {
      INFO("step " << i << " " << one.expected[i].block << " " << one.expected[i].params.size());
      for (const auto words : {&Enqueued::params, &Enqueued::args}) {
        const auto [is, was] = std::mismatch((seen[i].*words).begin(), (seen[i].*words).end(),
                                             (one.expected[i].*words).begin(), (one.expected[i].*words).end());
        INFO("word " << is - (seen[i].*words).begin());
        if (is != (seen[i].*words).end()) CHECK(*is == *was);
      }
      CHECK((seen[i] == one.expected[i]));
    }
  }
}
