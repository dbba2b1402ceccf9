// A configuration for templates that run on the host.
#pragma once

#include "tile/element.cuh"

namespace attnc {

using Element = float;
constexpr int kBlockM = 32;
constexpr int kBlockN = 64;
constexpr int kWarps = 2;
constexpr bool kDeterministic = false;

} // namespace attnc
