// The built command, run as users run it.
#pragma once

#include <string>

namespace attnc::test {

struct Outcome {
  int exitCode = -1; ///< -1: killed by a signal
  std::string out, err;
};

/// Runs `attnc ARGUMENTS` in a shell, without a terminal.
Outcome attnc(const std::string& arguments);

/// What it prints. It ends well and says nothing on stderr, or the test fails.
std::string printed(const std::string& arguments);

/// Runs a line in a shell, in which $ATTNC is the command, without a terminal.
Outcome shell(const std::string& line);

std::string readFile(const std::string& path);
void writeFile(const std::string& path, const std::string& bytes);

/// A folder of its own that goes away with the test.
class Folder {
public:
  Folder();
  ~Folder();
  std::string operator/(const std::string& name) const { return path + "/" + name; }
  std::string name() const; ///< within the folder above
  size_t files() const;

private:
  std::string path;
};

} // namespace attnc::test
