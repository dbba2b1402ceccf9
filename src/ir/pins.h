// Pins: captures whose value is fixed when a mod is compiled.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace attnc::ir {

/// Values that the user fixes at compile time: a named extent ("KV_LEN") or a scalar, by name.
using Pins = std::map<std::string, int64_t>;

} // namespace attnc::ir
