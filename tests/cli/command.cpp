#include "command.h"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sys/wait.h>

namespace attnc::test {

Outcome attnc(const std::string& arguments) { return shell("exec $ATTNC " + arguments); }

std::string printed(const std::string& arguments) {
  Outcome outcome = attnc(arguments);
  INFO("attnc " << arguments << "\n" << outcome.err);
  REQUIRE(outcome.exitCode == 0);
  CHECK(outcome.err.empty());
  return outcome.out;
}

void checkRefused(const std::string& arguments, int exitCode, const std::string& message) {
  INFO("attnc " << arguments);
  const Outcome outcome = attnc(arguments);
  CHECK(outcome.exitCode == exitCode);
  CHECK(outcome.out.empty());
  CHECK_THAT(outcome.err, Catch::Contains(message));
}

void checkRefused(const std::vector<Refusal>& rows) {
  for (const Refusal& row : rows) checkRefused(row.arguments, row.exitCode, row.message);
}

Outcome shell(const std::string& line) {
  Folder folder;
  std::string whole =
      "ATTNC='" ATTNC_COMMAND "'; (" + line + "\n) >" + folder / "out" + " 2>" + folder / "err" + " </dev/null";
  int status = std::system(whole.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, readFile(folder / "out"), readFile(folder / "err")};
}

std::string readFile(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void writeFile(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

Folder::Folder() : path((std::filesystem::temp_directory_path() / "attnc-test-XXXXXX").string()) {
  if (!mkdtemp(path.data())) std::abort();
}

Folder::~Folder() { std::filesystem::remove_all(path); }

std::string Folder::name() const { return std::filesystem::path(path).filename().string(); }

size_t Folder::files() const { return size_t(std::distance(std::filesystem::directory_iterator(path), {})); }

} // namespace attnc::test
