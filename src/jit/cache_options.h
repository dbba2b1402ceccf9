// What the environment asks of the cache.
#pragma once

#include "cache/cache.h"
#include "jit/env.h"

#include <optional>
#include <string>

namespace attnc::jit {

/// A value that makes no sense is warned of and the default taken.
cache::Options cacheOptionsFrom(const Env& env, LogSink sink = {});

/// A number of bytes: "500", "64K", "200M", "2G"; nullopt for anything else.
std::optional<uint64_t> parseBytes(const std::string& text);

} // namespace attnc::jit
