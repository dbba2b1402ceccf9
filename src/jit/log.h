// Where the compiler and the cache tell what they did. Silent unless ATTNC_LOG names a target.
//
// In: lines. Out: the same lines with time and process id, appended to a file in one write each, so that processes
// can share it. Not: levels, rotation, errors; a line that cannot be written is dropped.
#pragma once

#include <string>
#include <string_view>

namespace attnc::jit {

class Log {
public:
  Log() = default;
  /// `target`: a path, "-" for stderr, empty for nowhere.
  explicit Log(std::string target) : target(std::move(target)) {}
  bool enabled() const { return !target.empty(); }
  /// Thread-safe.
  void line(std::string_view text) const;

private:
  std::string target;
};

} // namespace attnc::jit
