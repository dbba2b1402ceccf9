// The value of what must succeed, and the error of what must fail. A failure tells the line of the call.
#pragma once

#include "attnc/error.h"

#include <catch2/catch.hpp>

#include <optional>
#include <string>
#include <utility>

namespace attnc {

/// Returns the value, or fails the test with the error's message.
template <class T> T take(Expected<T> value, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (!value) FAIL(file << ":" << line << ": " << value.error().message);
  return *std::move(value);
}
template <class T> T take(std::optional<T> value, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (!value) FAIL(file << ":" << line << ": there is no value");
  return *std::move(value);
}
inline void take(const Status& status, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (!status) FAIL(file << ":" << line << ": " << status.error().message);
}

/// Returns the error of what must fail.
template <class T>
Error refusalOf(const Expected<T>& value, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (value) FAIL(file << ":" << line << ": there is no error");
  return value.error();
}

/// Returns the message of what must fail for a reason in the environment.
template <class T>
std::string environmentErrorOf(const Expected<T>& value, const char* file = __builtin_FILE(),
                               int line = __builtin_LINE()) {
  const Error error = refusalOf(value, file, line);
  CHECK(error.blame == Blame::Environment);
  return error.message;
}

} // namespace attnc
