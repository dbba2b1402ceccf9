// Calls that tell a caller about something, in a struct of the caller.
#pragma once

#include "c/call.h"
#include "c/structs.h"

namespace attnc::c {

/// Tells a caller what fill(arguments, all) writes into a struct, unless it refuses an argument.
template <class T, class Fill>
attnc_status tell(std::initializer_list<Needed> needed, T* to, const char* name, Fill&& fill) noexcept {
  return call(needed, [&](Arguments& arguments) -> Status {
    T all = {};
    fill(arguments, all);
    if (arguments.ok()) writeStruct(arguments, all, to, name);
    return {};
  });
}

} // namespace attnc::c
