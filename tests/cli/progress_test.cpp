// The line about work that takes long: on a terminal, and gone when the work ends.
#include "command.h"
#include "progress.h"

#include <catch2/catch.hpp>

#include <pty.h>
#include <string>
#include <unistd.h>

using attnc::cli::Progress;
using Catch::Contains;

namespace {

/// Reads from the terminal's other side until the text is there.
std::string readUntil(int descriptor, const std::string& text) {
  std::string all;
  char chunk[256];
  while (all.find(text) == std::string::npos) {
    const ssize_t count = ::read(descriptor, chunk, sizeof(chunk));
    if (count <= 0) break;
    all.append(chunk, size_t(count));
  }
  return all;
}

} // namespace

TEST_CASE("a line of progress shows what takes long, and is taken away") {
  int screen = -1, terminal = -1;
  if (::openpty(&screen, &terminal, nullptr, nullptr, nullptr) != 0) {
    WARN("SKIPPED: there are no terminals here");
    return;
  }
  {
    Progress progress("compiling", terminal, std::chrono::milliseconds(5));
    const std::string shown = readUntil(screen, " s");
    CHECK_THAT(shown, Contains("attnc: compiling: 0 s"));
    CHECK(shown.find('\n') == std::string::npos);
  }
  ::write(terminal, "!", 1); // what comes last is the line taken away
  const std::string rest = readUntil(screen, "!");
  CHECK(rest.substr(rest.size() - 5) == "\r\033[K!");
  // Work that ends first shows nothing.
  { Progress progress("compiling", terminal, std::chrono::hours(1)); }
  ::write(terminal, "!", 1);
  CHECK(readUntil(screen, "!") == "!");
  ::close(screen);
  ::close(terminal);
}

TEST_CASE("there is no progress where stderr is no terminal") {
  const attnc::test::Outcome outcome =
      attnc::test::attnc("mask --expr '(q_idx + kv_idx * 3) % 1021 != 0' --shape 20000 --head 0");
  CHECK(outcome.exitCode == 0);
  CHECK(outcome.err.empty());
}
