#include "kernels/findings.h"

#include "api/options_key.h"
#include "helpers/library.h"
#include "helpers/plans.h"
#include "jit/nvrtc.h"
#include "jit/orders.h"
#include "plan/arch.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <thread>

namespace attnc::test {

const Compiler& compiler() {
  static const Compiler instance({.cacheMode = CompilerOptions::CacheMode::Off});
  return instance;
}

std::vector<int> supported() {
  auto archs = jit::Nvrtc(jit::Env::read()).supportedArchs();
  return archs ? *archs : std::vector<int>();
}

std::vector<std::pair<std::string, Mod>> library(bool everywhere) {
  std::vector<std::pair<std::string, Mod>> mods;
  for (const auto& entry : std::filesystem::directory_iterator(ATTNC_SOURCE_DIR "/dsl/mods")) {
    if (entry.path().extension() != ".py" || test::goesEverywhere(entry.path().stem().string()) != everywhere) continue;
    auto mod = take(Mod::load(entry.path().string()));
    mods.emplace_back(entry.path().stem().string(), std::move(mod));
  }
  return mods;
}

namespace {

/// Jobs in which nothing was found, in the file that ATTNC_TEST_KERNELS_DONE names, a line for each.
class Done {
public:
  Done() {
    if (!path) return;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) lines.insert(line);
  }
  bool has(const Job& job) const { return path && lines.count(lineOf(job)); }
  void add(const Job& job) const {
    if (path) std::ofstream(path, std::ios::app) << lineOf(job) << '\n';
  }

private:
  static std::string lineOf(const Job& job) {
    return fmt::format("{} | {} {} {}", job.name, job.mod.hash(), optionsKey(job.options), job.templates);
  }
  const char* path = std::getenv("ATTNC_TEST_KERNELS_DONE");
  std::set<std::string> lines;
};

/// Returns the jobs whose turn is now.
std::vector<const Job*> dueOf(const std::vector<Job>& jobs, const Done& done) {
  const char* const named = std::getenv("ATTNC_TEST_KERNELS_JOBS");
  const bool all = std::getenv("ATTNC_TEST_ALL_KERNELS");
  std::vector<const Job*> due;
  for (const Job& job : jobs)
    if (done.has(job))
      continue;
    else if (named ? job.name.find(named) != std::string::npos
                   : all || std::hash<std::string>()(job.name) % kParts == partOfRun())
      due.push_back(&job);
  if (due.empty() && !named && !all) due.push_back(&jobs.front());
  return due;
}

/// Bytes that a kernel may spill: those of its job, which are of NVRTC 13.0, or as many as were seen with 13.5, which
/// gives out registers in another way.
int mostSpillsOf(const Job& job) {
  static const bool isOther = [] {
    const Expected<std::string> identity = jit::Nvrtc(jit::Env::read()).identity();
    return !identity || identity->rfind("13.0 ", 0) != 0;
  }();
  static const std::map<std::string, int> others = {{"document kind 1 sm80 sm_80 d128", 32},
                                                    {"causal d128 deterministic", 20},
                                                    {"noop d128", 8},
                                                    {"chunked kind 1 sm90 sm_90a", 20},
                                                    {"streaming_chunks kind 1 sm90 sm_90a", 20}};
  const auto known = others.find(job.name);
  return isOther && known != others.end() ? std::max(known->second, job.spillBytes) : job.spillBytes;
}

struct Launch {
  KernelSource source;
  CompiledKernel result;
};

/// Compiles the launches of a job that are looked at.
Expected<std::vector<Launch>> compiled(const Job& job) {
  static jit::Nvrtc nvrtc(jit::Env::read());
  auto sources = test::sourcesOf(compiler(), job.mod, job.options);
  if (!sources) return sources.error();
  std::vector<Launch> launches;
  for (KernelSource& source : *sources) {
    if (source.templateName.find(job.templates) == std::string::npos) continue;
    auto result = jit::compileInOrders(nvrtc, source);
    if (!result) return result.error();
    launches.push_back({std::move(source), *std::move(result)});
  }
  return launches;
}

} // namespace

std::string findings(const std::vector<Job>& jobs) {
  const Done done;
  const std::vector<const Job*> due = dueOf(jobs, done);
  std::string lines;
  std::mutex mutex;
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i; (i = next++) < due.size();) {
      const Job& job = *due[i];
      auto kernel = compiled(job);
      std::lock_guard lock(mutex);
      if (!kernel) {
        lines += job.name + ": " + kernel.error().message + "\n";
        continue;
      }
      const size_t before = lines.size();
      for (const Launch& launch : *kernel) {
        const std::string name = job.name + ", " + launch.source.templateName;
        if (launch.result.spillBytes > mostSpillsOf(job))
          lines += fmt::format("{}: spills {} bytes\n", name, launch.result.spillBytes);
        const int64_t shared = launch.result.staticSharedBytes + launch.source.dynamicSharedBytes,
                      most = plan::parseArch(job.options.arch)->sharedBytesPerCta();
        if (shared > most)
          lines += fmt::format("{}: asks for {} bytes of shared memory, a CTA has {}\n", name, shared, most);
        for (const std::string& advisory : launch.result.advisories) lines += name + ": " + advisory + "\n";
      }
      if (lines.size() == before) done.add(job);
    }
  };
  std::vector<std::thread> pool;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) pool.emplace_back(work);
  for (std::thread& thread : pool) thread.join();
  return lines;
}

} // namespace attnc::test
