// What attnc says beside its results.
#pragma once

#include <functional>
#include <string_view>

namespace attnc {

enum class LogLevel {
  Event,   ///< what the compiler and its caches did
  Warning, ///< something around attnc is not as it should be, and no call fails for it
};

/// Takes one line without its end.
using LogSink = std::function<void(LogLevel level, std::string_view line)>;

} // namespace attnc
