// The header of Catch2 2 on top of Catch2 3, as far as the tests use it.
#pragma once

#include <catch2/catch_all.hpp>

#include <string>

namespace Catch {

inline Matchers::StringContainsMatcher Contains(const std::string& part) { return Matchers::ContainsSubstring(part); }
using Matchers::EndsWith;
using Matchers::StartsWith;

} // namespace Catch

using Catch::Approx;
