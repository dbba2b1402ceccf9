// Environment variables of the command, set by a test.
#pragma once

#include "helpers/test_case.h"

#include <cstdlib>
#include <optional>
#include <string>

namespace attnc::test {

/// Sets or unsets (null) an environment variable while the object lives, for this process and so for the command.
class Variable {
public:
  Variable(const char* name, const char* value) : name(name) {
    if (const char* old = std::getenv(name)) before = old;
    set(value);
  }
  ~Variable() { set(before ? before->c_str() : nullptr); }
  Variable(const Variable&) = delete;

private:
  void set(const char* value) { value ? ::setenv(name, value, 1) : ::unsetenv(name); }
  const char* name;
  std::optional<std::string> before;
};

/// Whether NVRTC is missing here, for tests that compile. CTest looks for the word SKIPPED.
bool noNvrtc();

} // namespace attnc::test

#define NVRTC_TEST_CASE(...) ATTNC_TEST_CASE(if (attnc::test::noNvrtc()) return, __VA_ARGS__)
