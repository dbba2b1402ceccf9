// Times the way from mod text to a kernel: cold (NVRTC), from the disk cache, from memory. One JSON line each. "memory"
// requests a kernel of a parsed mod; "parse" is the parsing and all passes.
//
// With a GPU, the kernel is also loaded ("loaded": true); without one, the time ends with the machine code. Cold mods
// differ in a constant, so that none has been compiled before. The directory of the disk cache is a fresh one.
#include "cases.h"

#include "attnc/attnc.h"
#include "tools/device/device.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <vector>

namespace {

using namespace attnc;
using Clock = std::chrono::steady_clock;

struct Setting {
  KernelOptions options;
  bool loads = false; ///< whether there is a GPU
  int rounds = 9;
};

/// ALiBi with its own factor: a mod with a captured tensor, a score_mod and a mask_mod.
std::string modText(int variant) {
  return fmt::format("slopes: f32[H]\n"
                     "def score_mod(score, b, h, q_idx, kv_idx):\n"
                     "    return score + {} * slopes[h] * (kv_idx - q_idx)\n"
                     "def mask_mod(b, h, q_idx, kv_idx):\n"
                     "    return q_idx >= kv_idx\n",
                     1.0 + variant / 1024.0);
}

template <class T> T take(Expected<T> value) {
  if (value) return *std::move(value);
  std::cerr << "attnc-bench-compile: " << value.error().message << "\n";
  std::exit(3);
}

double msSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void build(const Compiler& compiler, const Mod& mod, const Setting& setting) {
  const Plan plan = take(compiler.plan(mod, setting.options));
  if (setting.loads)
    take(compiler.loadForward(plan));
  else
    take(compiler.compile(plan));
}

/// Returns the milliseconds from text to kernel.
double once(const Compiler& compiler, const Setting& setting, int variant) {
  const auto start = Clock::now();
  build(compiler, take(Mod::parse(modText(variant))), setting);
  return msSince(start);
}

void print(const char* what, std::vector<double> times, const Setting& setting) {
  std::sort(times.begin(), times.end());
  std::cout << nlohmann::json{{"what", what},
                              {"median_ms", times[times.size() / 2]},
                              {"worst_ms", times.back()},
                              {"rounds", times.size()},
                              {"arch", setting.options.arch},
                              {"head_dim", setting.options.headDim},
                              {"loaded", setting.loads}}
                   .dump()
            << std::endl;
}

} // namespace

int main(int argc, char** argv) {
  Setting setting;
  setting.options.blockSparse = true;
  std::string arch = "sm_90a";
  CLI::App app("Times compiling: cold, from disk, from memory.");
  app.add_option("--arch", arch, "without a GPU: what to compile for");
  app.add_option("--head-dim", setting.options.headDim, "head dim of the forward kernel");
  app.add_option("--rounds", setting.rounds, "measurements of each kind");
  app.add_option("--kernel-family", setting.options.family, "auto, naive, sm80, sm90 or grid")
      ->transform(CLI::CheckedTransformer(bench::familiesByName()));
  CLI11_PARSE(app, argc, argv);

  const auto context = device::Context::create();
  setting.loads = bool(context);
  setting.options.arch = context ? context->info().arch : arch;
  const std::filesystem::path directory =
      std::filesystem::temp_directory_path() / fmt::format("attnc-bench-{}", Clock::now().time_since_epoch().count());
  std::filesystem::create_directory(directory);
  std::filesystem::permissions(directory, std::filesystem::perms::owner_all);

  const CompilerOptions caching{.cacheDirectory = directory.string(),
                                .cacheMode = CompilerOptions::CacheMode::ReadWrite};
  std::vector<double> cold, disk, memory, parse;
  {
    const Compiler compiler(caching);
    once(compiler, setting, 0); // opens NVRTC, and the driver's own first use
    for (int i = 1; i <= setting.rounds; ++i) cold.push_back(once(compiler, setting, i));
  }
  for (int i = 1; i <= setting.rounds; ++i) disk.push_back(once(Compiler(caching), setting, i));
  const Compiler compiler(caching);
  once(compiler, setting, 1);
  for (int i = 0; i < 100 * setting.rounds; ++i) {
    auto start = Clock::now();
    const Mod mod = take(Mod::parse(modText(1)));
    parse.push_back(msSince(start));
    start = Clock::now();
    build(compiler, mod, setting);
    memory.push_back(msSince(start));
  }
  print("cold", cold, setting);
  print("disk", disk, setting);
  print("memory", memory, setting);
  print("parse", parse, setting);
  std::filesystem::remove_all(directory);
}
