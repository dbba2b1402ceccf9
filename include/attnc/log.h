// Log lines of attnc.
#pragma once

#include <functional>
#include <string_view>

namespace attnc {

/// The level of a log line.
enum class LogLevel {
  Event,   ///< An action of the compiler or its caches.
  Warning, ///< A problem of the environment that makes no call fail.
};

/// Receives one line of valid UTF-8, without its line end and without control characters. `line` is valid only during
/// the call.
using LogSink = std::function<void(LogLevel level, std::string_view line)>;

} // namespace attnc
