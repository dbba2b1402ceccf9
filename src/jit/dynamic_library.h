// A shared library opened at run time, and its functions by name.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace attnc::jit {

/// Copies share the handle. A library stays open until the process ends, since CUDA's own threads and exit handlers may
/// still run in it.
class DynamicLibrary {
public:
  /// Opens a path or a soname; on failure sets `why` to the reason.
  static std::optional<DynamicLibrary> open(const std::string& name, std::string& why);

  /// Returns the library if this process has opened it already.
  static std::optional<DynamicLibrary> alreadyOpen(const std::string& soname);

  /// Returns the symbol's address; nullptr if it is not found.
  void* symbol(const char* name) const;

  /// Returns the file's path; empty if unknown.
  std::string path() const;

private:
  explicit DynamicLibrary(void* handle) : handle(handle) {}
  void* handle;
};

} // namespace attnc::jit
