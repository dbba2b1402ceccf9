// Runs the built command as users do.
#pragma once

#include <string>
#include <vector>

namespace attnc::test {

struct Outcome {
  int exitCode = -1; ///< -1: killed by a signal
  std::string out, err;
};

/// Runs `attnc ARGUMENTS` in a shell, without a terminal.
Outcome attnc(const std::string& arguments);

/// Returns what the command prints. The test fails if it fails or prints to stderr.
std::string printed(const std::string& arguments);

/// Checks that `attnc ARGUMENTS` ends with this exit code, says the message on stderr, and prints nothing.
void checkRefused(const std::string& arguments, int exitCode, const std::string& message);

struct Refusal {
  int exitCode;
  std::string arguments, message;
};
void checkRefused(const std::vector<Refusal>& rows);

/// Runs a line in a shell without a terminal. $ATTNC is the command.
Outcome shell(const std::string& line);

std::string readFile(const std::string& path);
void writeFile(const std::string& path, const std::string& bytes);

/// A folder for one test, removed with the object.
class Folder {
public:
  Folder();
  ~Folder();
  std::string operator/(const std::string& name) const { return path + "/" + name; }
  std::string name() const; ///< relative to the folder above
  size_t files() const;

private:
  std::string path;
};

} // namespace attnc::test
