// A shared library opened at run time, and its functions by name.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace attnc::jit {

/// Copies share the handle. A library stays open until the process ends: CUDA's own threads and exit handlers may
/// still run in it.
class DynamicLibrary {
public:
  /// Opens a path or a soname; on failure tells why in `why`.
  static std::optional<DynamicLibrary> open(const std::string& name, std::string& why);

  /// The library if somebody in this process has opened it already.
  static std::optional<DynamicLibrary> alreadyOpen(const std::string& soname);

  /// nullptr if there is no such symbol.
  void* symbol(const char* name) const;

  /// Path of the file, or empty.
  std::string path() const;

private:
  explicit DynamicLibrary(void* handle) : handle(handle) {}
  void* handle;
};

} // namespace attnc::jit
