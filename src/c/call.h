// How every function of the C interface runs: it checks its arguments, turns errors into a status and the thread's last
// error, and lets no exception out.
#pragma once

#include "attnc/c/base.h"
#include "attnc/error.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace attnc::c {

/// The place of an argument in messages: "operands.q", or "mod" without a parent. For an element of an array, also its
/// index and perhaps a member: "operands.captures[0].name". Becomes text only if it is needed.
struct Place {
  std::string_view parent, name, member;
  std::optional<size_t> index;
  Place(std::string_view name) : name(name) {}
  Place(const char* name) : name(name) {}
  Place(const std::string& name) : name(name) {}
  Place(std::string_view parent, std::string_view name) : parent(parent), name(name) {}
  /// Returns the place of an element of this array, or of a member of that element.
  Place at(size_t element, std::string_view of = {}) const;
  std::string text() const;
};

/// What is wrong with the arguments of a call; the first finding is kept. After a refusal, readers go on with defaults,
/// and the caller checks ok() before it does anything.
class Arguments {
public:
  bool ok() const { return reason.empty(); }
  const std::string& why() const { return reason; }
  void refuse(const Place& place, std::string_view observed);
  /// Whether the pointer is not NULL; refuses it if it is.
  bool given(const void* pointer, const Place& place);

private:
  std::string reason;
};

/// Checks that an element of this index exists.
bool checkIndex(Arguments& arguments, size_t index, size_t count);

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

/// Makes a handle of a value, or returns the error that it holds instead.
template <class Handle, class T> Status give(Expected<T> value, Handle** handle) {
  if (!value) return std::move(value).error();
  *handle = new Handle(*std::move(value));
  return {};
}

} // namespace attnc::c
