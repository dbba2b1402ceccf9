// Calls that tell a caller about something, in a struct of the caller.
#pragma once

#include "c/call.h"
#include "c/structs.h"

namespace attnc::c {

/// Tells a caller what fill(all) writes into a struct.
template <class T, class Fill>
attnc_status tell(std::initializer_list<Needed> needed, T* to, const char* name, Fill&& fill) noexcept {
  return call(needed, [&]() -> Status {
    T all = {};
    fill(all);
    writeStruct(all, to, name);
    return {};
  });
}

} // namespace attnc::c
