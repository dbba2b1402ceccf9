// What the environment asks of the cache.
#pragma once

#include "cache/cache.h"
#include "jit/env.h"

namespace attnc::jit {

/// A value that makes no sense is warned of and the default taken.
cache::Options cacheOptionsFrom(const Env& env, LogSink sink = {});

} // namespace attnc::jit
