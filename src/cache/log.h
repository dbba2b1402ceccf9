// The log of the compiler and the cache. Silent unless ATTNC_LOG names a target or there is a sink.
//
// In: lines, which may quote names and texts of callers. Out: the same lines, readable. A file gets them with time and
// process id, each in one write, so that processes can share it. Not: rotation, errors; a line that cannot be written
// is dropped.
#pragma once

#include "attnc/log.h"

#include <memory>
#include <set>
#include <string>
#include <string_view>

namespace attnc::cache {

/// Thread-safe. Copies share the set of warnings given.
class Log {
public:
  Log() = default;
  /// `target`: a path, "-" for stderr, empty for nowhere.
  explicit Log(std::string target, LogSink sink = {}) : target(std::move(target)), sink(std::move(sink)) {}
  bool enabled() const { return !target.empty() || sink; }
  /// Logs an event.
  void line(std::string_view text) const;
  /// Logs a warning; the same text only once.
  void warn(const std::string& text) const;

private:
  void write(LogLevel level, std::string_view text) const;
  std::string target;
  LogSink sink;
  std::shared_ptr<std::set<std::string>> warned = std::make_shared<std::set<std::string>>(); // lockForkSafe()
};

} // namespace attnc::cache
