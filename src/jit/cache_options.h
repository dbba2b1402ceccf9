// The cache options set by the environment.
#pragma once

#include "cache/cache.h"
#include "jit/env.h"

#include <optional>
#include <string>

namespace attnc::jit {

/// Returns the options. Warns of an invalid value and uses the default instead.
cache::Options cacheOptionsFrom(const Env& env, LogSink sink = {});

/// Parses a number of bytes: "500", "64K", "200M", "2G"; nullopt for anything else.
std::optional<uint64_t> parseBytes(const std::string& text);

} // namespace attnc::jit
