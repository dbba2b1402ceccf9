// How every function of the C interface runs: it checks its arguments, turns errors into a status and the thread's last
// error, and lets no exception out.
#pragma once

#include "attnc/c/base.h"
#include "attnc/error.h"
#include "c/arguments.h"

#include <initializer_list>
#include <type_traits>
#include <utility>

namespace attnc::c {

/// Returns a finding as C sees it; the strings belong to `found`.
attnc_diagnostic toC(const Diagnostic& found);

/// Keeps the thread's last error, and returns its status.
attnc_status failed(Error error) noexcept;
attnc_status refused(const Arguments& arguments) noexcept;
/// The same for the exception that is being handled.
attnc_status caught() noexcept;

/// Runs body(arguments), which returns a Status. A refusal of arguments takes precedence over that Status.
template <class Body> attnc_status call(Body&& body) noexcept {
  try {
    Arguments arguments;
    Status status = body(arguments);
    if (!arguments.ok()) return refused(arguments);
    return status ? ATTNC_OK : failed(std::move(status).error());
  } catch (...) {
    return caught();
  }
}

/// A pointer that a call needs, and its name.
struct Needed {
  const void* pointer;
  const char* name;
};

/// Does the same if no pointer is NULL. The body may do without `arguments`.
template <class Body> attnc_status call(std::initializer_list<Needed> all, Body&& body) noexcept {
  return call([&](Arguments& arguments) -> Status {
    for (const auto& [pointer, name] : all) arguments.given(pointer, name);
    if (!arguments.ok()) return {};
    if constexpr (std::is_invocable_v<Body, Arguments&>)
      return body(arguments);
    else
      return body();
  });
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
