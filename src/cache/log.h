// The log of the compiler and the cache. Silent unless ATTNC_LOG names a target, or there is a sink.
//
// In: lines. Out: the same lines with time and process id, appended to a file in one write each, so that processes
// can share it; and as they are, to the sink. Not: rotation, errors; a line that cannot be written is dropped.
#pragma once

#include "attnc/log.h"

#include <memory>
#include <set>
#include <string>
#include <string_view>

namespace attnc::cache {

/// Thread-safe. Copies share what they have warned of.
class Log {
public:
  Log() = default;
  /// `target`: a path, "-" for stderr, empty for nowhere.
  explicit Log(std::string target, LogSink sink = {}) : target(std::move(target)), sink(std::move(sink)) {}
  bool enabled() const { return !target.empty() || sink; }
  /// An event.
  void line(std::string_view text) const;
  /// A warning; the same text is logged once.
  void warn(const std::string& text) const;

private:
  void write(LogLevel level, std::string_view text) const;
  std::string target;
  LogSink sink;
  std::shared_ptr<std::set<std::string>> warned = std::make_shared<std::set<std::string>>(); // by lockForkSafe()
};

} // namespace attnc::cache
