// Generated mods, compiled for the host: many in one translation unit and one shared object.
#pragma once

#include "codegen/mod_source.h"

#include <cstdint>
#include <string>
#include <vector>

namespace attnc::test {

/// One evaluation of all hooks of a mod.
struct Sample {
  int b = 0, h = 0, q = 0, kv = 0;
  float score = 0;
};
struct Outcome {
  float score = 0;
  bool mask = false;
};

/// Moves the text from namespace attnc::mod into another one and drops the using-declarations at its end, so that
/// several mods fit into one program.
std::string inNamespace(const std::string& modText, const std::string& name);

/// Reads a whole file. Returns an empty string if it does not exist.
std::string readFile(const std::string& path);

/// The argument of packArgs() for tensors without elements.
inline constexpr uint64_t kZero = 0;

/// Returns the words that a launch passes for the mod's captures.
std::vector<uint64_t> wordsOf(const codegen::ModSource& source, const ir::Bindings& bindings);

class HostMods {
public:
  using Run = void (*)(const uint64_t* args, const Sample* samples, int count, Outcome* outcomes);

  HostMods() = default;
  HostMods(const HostMods&) = delete;
  ~HostMods();

  /// Adds a mod. Returns its number.
  size_t add(const codegen::ModSource& source);
  /// Compiles all mods, followed by `extra`. The test fails with what the compiler says.
  void build(const std::string& extra = {});
  Run function(size_t mod) const;
  void* symbol(const char* name) const;

private:
  std::string text;
  size_t count = 0;
  void* handle = nullptr;
};

} // namespace attnc::test
