// How every function of the C interface runs: it checks its arguments, turns errors into a status and the thread's last
// error, and lets no exception out.
#pragma once

#include "attnc/c/base.h"
#include "attnc/error.h"
#include "c/arguments.h"

#include <initializer_list>
#include <utility>

namespace attnc::c {

/// Returns a finding as C sees it; the strings belong to `found`.
attnc_diagnostic toC(const Diagnostic& found);

/// Keeps the thread's last error, and returns its status.
attnc_status failed(Error error) noexcept;
/// The same for the exception that is being handled, such as a Refusal.
attnc_status caught() noexcept;

/// A pointer that a call needs, and its name.
struct Needed {
  const void* pointer;
  const char* name;
};

/// Runs body(), which returns a Status, unless a pointer is NULL.
template <class Body> attnc_status call(std::initializer_list<Needed> all, Body&& body) noexcept {
  try {
    for (const auto& [pointer, name] : all) need(pointer, name);
    Status status = body();
    return status ? ATTNC_OK : failed(std::move(status).error());
  } catch (...) {
    return caught();
  }
}

/// Whether the pointer is not NULL; else it is the thread's last error.
inline bool given(const void* pointer, const char* name) {
  return call({{pointer, name}}, [] { return Status(); }) == ATTNC_OK;
}

/// Makes a handle of a value, or returns the error that it holds instead.
template <class Handle, class T> Status give(Expected<T> value, Handle** handle) {
  if (!value) return std::move(value).error();
  *handle = new Handle{*std::move(value)};
  return {};
}

} // namespace attnc::c
