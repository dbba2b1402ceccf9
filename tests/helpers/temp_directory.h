// A directory for a test's files, and whole files as texts.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace attnc::test {

/// A fresh directory, removed with its content. It is in memory if /dev/shm exists, so that fdatasync costs nothing.
class TempDirectory {
public:
  TempDirectory() {
    root = std::filesystem::exists("/dev/shm") ? "/dev/shm/attnc-test-XXXXXX" : "/tmp/attnc-test-XXXXXX";
    if (!::mkdtemp(root.data())) std::abort();
  }
  ~TempDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(root, ignored);
  }
  TempDirectory(const TempDirectory&) = delete;
  std::string path() const { return root; }
  std::string operator/(const std::string& name) const { return root + "/" + name; }

private:
  std::string root;
};

inline std::string readText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void writeText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

} // namespace attnc::test
