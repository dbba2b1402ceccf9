// Hashes of every job: what NVRTC would compile, and what launches would enqueue, for the mods of the library in the
// kernels of variants.h. Nothing is compiled, and libcuda is a fake that writes what a tensor map is made of. Equal
// hashes mean equal machine code and equal parameters.
//
//   ATTNC_WRITE_JOBS=1 build/tests/attnc_test_jobs     writes hashes.txt anew
//
// A line of hashes.txt is a variant. It has a word for each mod, in the order of the first line: six digits of the hash
// of the texts, without comments and #line; a point; six digits of that of CTAs, parameters, arguments and workspace.
#include "api/drawn_captures.h"
#include "api/recorded_launch.h"
#include "cache/sha256.h"
#include "helpers/plan_parts.h"
#include "jobs/operands.h"
#include "jobs/variants.h"
#include "support/try.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

using namespace attnc;
using namespace attnc::test;

namespace {

const std::string kFile = ATTNC_SOURCE_DIR "/tests/jobs/hashes.txt";
const plan::Device kDevice{.multiprocessors = 132, .l2Bytes = 50 << 20};

/// Returns a text without comments, lines that name a place in the mod's file, empty lines and spaces at the end of a
/// line.
std::string bare(llvm::StringRef text) {
  std::string out;
  while (!text.empty()) {
    auto [line, rest] = text.split('\n');
    text = rest;
    bool isQuoted = false;
    for (size_t i = 0; i + 1 < line.size(); ++i) {
      if (line[i] == '"' && (i == 0 || line[i - 1] != '\\')) isQuoted = !isQuoted;
      if (!isQuoted && line.substr(i, 2) == "//") line = line.take_front(i);
    }
    if (line = line.rtrim(); !line.empty() && !std::string_view(line).starts_with("#line ")) out += line.str() + "\n";
  }
  return out;
}

/// What a variant of a mod is made of.
struct Job {
  cache::FieldHasher text, launch;
  void refused(const Error& error) { launch.field(error.message); }
};

/// Adds what NVRTC compiles.
void addTexts(Job& job, const std::vector<KernelSource>& sources) {
  for (const KernelSource& source : sources) {
    for (const std::string& part : {source.templateName, source.entry, source.arch}) job.text.field(part);
    job.text.field(bare(source.text));
    for (const auto& [name, text] : source.headers) job.text.field(name), job.text.field(bare(text));
    for (const std::string& option : source.options) job.text.field(option);
  }
}

/// Adds what a launch enqueues.
Status addLaunch(Job& job, const Launch& launch, const test::WrittenPlan& kernel) {
  ATTNC_TRY_AS(recorded,
               plan::recordLaunch(kernel.plan(), kernel.mods, kernel.mod().module(), launch.operands, launch.outputs,
                                  launch.gradients, kDevice, reinterpret_cast<void*>(uintptr_t(1) << 44),
                                  reinterpret_cast<const void*>(uintptr_t(1) << 45)));
  for (const plan::WorkspacePart& part : recorded->workspace.parts())
    for (uint64_t number :
         {uint64_t(part.use.use), uint64_t(part.use.zeroed), uint64_t(part.offset), uint64_t(part.bytes)})
      job.launch.field(number);
  for (plan::RecordedStage& one : recorded->stages) {
    const plan::Stage& stage = kernel.plan().stages[one.index];
    for (int64_t number : {one.ctas, int64_t(stage.threads), int64_t(stage.config.sharedBytes)})
      job.launch.field(uint64_t(number));
    job.launch.field(std::string_view(static_cast<const char*>(one.params.data()), one.params.size()));
    job.launch.field(std::string_view(reinterpret_cast<const char*>(one.args.data()),
                                      8 * kernel.mods[one.index]->source.slots.size()));
  }
  return {};
}

Status add(Job& job, const Mod& mod, const Variant& variant) {
  const KernelOptions options = optionsOf(variant, mod);
  ATTNC_TRY_AS(kernel, test::written(mod, options));
  ATTNC_TRY_AS(sources, kernel->handle.sources());
  addTexts(job, *sources);
  for (int64_t tokens : tokensOf(options)) {
    Launch launch;
    fillLaunch(launch, mod, kernel->plan().options, tokens);
    if (const Status added = addLaunch(job, launch, *kernel); !added) job.refused(added.error());
  }
  return {};
}

/// Returns a mod's word for a variant.
std::string wordOf(const Mod& mod, const Variant& variant) {
  Job job;
  if (const Status added = add(job, mod, variant); !added) job.refused(added.error());
  return job.text.finish().hex().substr(0, 6) + "." + job.launch.finish().hex().substr(0, 6);
}

/// Returns the lines of hashes.txt.
std::vector<std::string> hashes() {
  std::vector<Mod> mods;
  std::string head;
  for (const std::string& path : libraryMods()) {
    auto mod = take(Mod::load(path));
    head += " " + std::filesystem::path(path).stem().string();
    mods.push_back(std::move(mod));
  }
  const std::vector<Variant> all = variants();
  std::vector<std::string> words(all.size() * mods.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i; (i = next++) < words.size();) words[i] = wordOf(mods[i / all.size()], all[i % all.size()]);
  };
  std::vector<std::thread> pool;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) pool.emplace_back(work);
  for (std::thread& thread : pool) thread.join();
  std::vector<std::string> lines = {"mods:" + head};
  for (size_t i = 0; i < all.size(); ++i) {
    lines.push_back(all[i].name + ":");
    for (size_t mod = 0; mod < mods.size(); ++mod) lines.back() += " " + words[mod * all.size() + i];
  }
  return lines;
}

/// Returns a line for each variant whose hashes differ: of how many mods, and the first of them.
std::string moved(const std::vector<std::string>& was, const std::vector<std::string>& is) {
  const std::string others = "the mods or the variants are others\n";
  if (was.size() != is.size() || was.front() != is.front()) return others;
  const auto wordsIn = [](llvm::StringRef line) {
    llvm::SmallVector<llvm::StringRef, 64> words;
    line.split(words, ' ');
    return words;
  };
  const auto mods = wordsIn(llvm::StringRef(is.front()).split(": ").second);
  std::string out;
  for (size_t line = 1; line < is.size(); ++line) {
    const auto [name, nowLine] = llvm::StringRef(is[line]).split(": ");
    const auto [oldName, thenLine] = llvm::StringRef(was[line]).split(": ");
    const auto now = wordsIn(nowLine), then = wordsIn(thenLine);
    if (name != oldName || then.size() != mods.size()) return others;
    for (auto [what, begin] : {std::pair("texts", 0u), {"launches", 7u}}) {
      std::vector<std::string> differ;
      for (size_t i = 0; i < mods.size(); ++i)
        if (now[i].substr(begin, 6) != then[i].substr(begin, 6)) differ.push_back(mods[i].str());
      if (differ.empty()) continue;
      const size_t shown = std::min<size_t>(differ.size(), 3);
      out +=
          fmt::format("{}: {} of {} mods: {}{}\n", name.str(), what, differ.size(),
                      fmt::join(differ.begin(), differ.begin() + long(shown), ", "), differ.size() > 3 ? ", ..." : "");
    }
  }
  return out;
}

} // namespace

TEST_CASE("texts and parameters of every job are those of hashes.txt") {
  const std::vector<std::string> is = hashes();
  if (std::getenv("ATTNC_WRITE_JOBS")) {
    std::ofstream file(kFile);
    for (const std::string& line : is) file << line << "\n";
    return;
  }
  std::vector<std::string> was;
  std::ifstream file(kFile);
  for (std::string line; std::getline(file, line);) was.push_back(line);
  INFO("A change that means to move jobs writes the file anew: ATTNC_WRITE_JOBS=1 " ATTNC_BINARY_DIR
       "/tests/attnc_test_jobs");
  CHECK(moved(was, is) == "");
}
