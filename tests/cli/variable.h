// The environment of the command, as a test sets it.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace attnc::test {

/// A variable of the environment, set or unset (null) for the life of the object; of this process and so of the
/// command.
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

/// Whether there is no NVRTC here, for tests that compile; CTest looks for the word SKIPPED.
bool noNvrtc();

} // namespace attnc::test
