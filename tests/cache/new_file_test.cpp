#include "support/new_file.h"

#include "cache/fixtures.h"

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>

using namespace attnc;
using namespace attnc::cache;
using namespace attnc::cache::test;
namespace fs = std::filesystem;

namespace {

Fd opened(FileOps& ops, const std::string& directory) {
  return Fd(ops, ops.open(AT_FDCWD, directory.c_str(), O_PATH | O_DIRECTORY, 0));
}

} // namespace

TEST_CASE("a new file appears whole under its name, with the permissions that were asked for", "[cache]") {
  TempDirectory directory;
  FileOps ops;
  const Fd folder = opened(ops, directory.path());
  writeText(directory / "out", "old");
  {
    NewFile file(ops, folder.get(), 0600);
    file.setMode(0644);
    file.write("one");
    file.write(" two");
    CHECK(readText(directory / "out") == "old");
    CHECK(file.publish("out") == 0);
  }
  CHECK(readText(directory / "out") == "one two");
  CHECK(fs::status(directory / "out").permissions() == fs::perms(0644));
  const mode_t before = ::umask(027);
  NewFile masked(ops, folder.get(), 0666);
  ::umask(before);
  CHECK(masked.publish("masked") == 0);
  CHECK(fs::status(directory / "masked").permissions() == fs::perms(0640));
}

TEST_CASE("of a file that is not published nothing is left", "[cache]") {
  TempDirectory directory;
  std::string failing;
  ScriptedOps ops([&](int, const char* name) { return failing == name ? EIO : 0; });
  const Fd folder = opened(ops, directory.path());
  {
    NewFile file(ops, folder.get(), 0600);
    file.write("given up");
    CHECK_FALSE(fs::is_empty(directory.path()));
  }
  CHECK(fs::is_empty(directory.path()));
  for (const char* name : {"open", "write", "sync", "close", "rename"}) {
    failing = name;
    INFO(name);
    NewFile file(ops, folder.get(), 0600);
    file.write("x");
    file.sync();
    CHECK(file.publish("out") == -EIO);
    CHECK_FALSE(fs::exists(directory / "out"));
  }
  failing.clear();
  CHECK(fs::is_empty(directory.path()));
}
