#include "codegen/host_mods.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace attnc::test {
namespace {

/// `-fsanitize` turns undefined behaviour of generated code into a trap; -ffp-contract=off keeps every rounding.
constexpr const char* kFlags =
    "-std=c++17 -O1 -ffp-contract=off -fPIC -shared -Wall -Wno-unused -Wno-tautological-compare -Wno-bool-compare "
    "-fsanitize=signed-integer-overflow,shift,integer-divide-by-zero,float-cast-overflow "
    "-fsanitize-undefined-trap-on-error";

constexpr const char* kPrologue = R"(
#include "mod/ops.cuh"
namespace attnc {
struct Sample { int b, h, q, kv; float score; };
struct Outcome { float score; bool mask; };
template <class Args, class Mod>
void runMod(const unsigned long long* words, const Sample* samples, int count, Outcome* outcomes) {
  Args args;
  memcpy(&args, words, sizeof args);
  for (int i = 0; i < count; ++i) {
    Sample at = samples[i];
    auto head = Mod::head(args, at.b, at.h);
    auto row = Mod::row(args, head, at.b, at.h, at.q, float(at.q));
    auto col = Mod::col(args, head, at.b, at.h, at.kv, float(at.kv), 0.f);
    Coord coord{at.b, at.h, at.q, at.kv};
    outcomes[i] = {Mod::score(args, head, row, col, coord, at.score), Mod::mask(args, head, row, col, coord)};
  }
}
}
)";

/// A directory of its own under the build folder, removed with its content.
struct ScratchDirectory {
  std::string path;
  ScratchDirectory() {
    std::string name = std::string(ATTNC_BINARY_DIR) + "/host_mods_XXXXXX";
    if (!mkdtemp(name.data())) throw std::runtime_error("no scratch directory " + name);
    path = name;
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

std::string inShell(const std::string& path) { return "'" + path + "'"; }

} // namespace

std::vector<uint64_t> wordsOf(const codegen::ModSource& source, const ir::Bindings& bindings) {
  std::vector<uint64_t> words(source.slots.size() + 1);
  codegen::packArgs(source.slots, bindings, &kZero, words.data());
  return words;
}

std::string readFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string inNamespace(const std::string& modText, const std::string& name) {
  const std::string open = "namespace attnc::mod {", end = "\nnamespace attnc {";
  std::string text = modText.substr(0, modText.find(end));
  text.insert(text.find(open) + open.size(), fmt::format("\nnamespace {} {{", name));
  return text + "}\n";
}

HostMods::~HostMods() {
  if (handle) dlclose(handle);
}

size_t HostMods::add(const codegen::ModSource& source) {
  std::string name = fmt::format("mod{}", count);
  text += inNamespace(source.text, name) +
          fmt::format("\nextern \"C\" void run_{0}(const unsigned long long* args, const attnc::Sample* samples, int "
                      "count, attnc::Outcome* outcomes) {{\n  "
                      "attnc::runMod<attnc::mod::{0}::ModArgs, attnc::mod::{0}::Mod>(args, samples, count, outcomes);\n"
                      "}}\n",
                      name);
  return count++;
}

void HostMods::build(const std::string& extra) {
  ScratchDirectory scratch;
  std::string source = scratch.path + "/mods.cpp", object = scratch.path + "/mods.so", said = scratch.path + "/log";
  std::string body = kPrologue + text + extra;
  for (size_t at; (at = body.find("#pragma once\n")) != std::string::npos;) body.erase(at, 13);
  std::ofstream(source) << body;
  const char* compiler = std::getenv("CXX");
  std::string command =
      fmt::format("{} {} -I {} -o {} {} > {} 2>&1", compiler ? compiler : "c++", kFlags,
                  inShell(ATTNC_SOURCE_DIR "/templates"), inShell(object), inShell(source), inShell(said));
  bool compiled = std::system(command.c_str()) == 0;
  if (!compiled) FAIL(readFile(said));
  handle = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) FAIL(dlerror());
}

void* HostMods::symbol(const char* name) const { return dlsym(handle, name); }

HostMods::Run HostMods::function(size_t mod) const {
  return reinterpret_cast<Run>(symbol(fmt::format("run_mod{}", mod).c_str()));
}

} // namespace attnc::test
