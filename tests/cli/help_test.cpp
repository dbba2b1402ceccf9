// How the command presents itself: help that fits, colours, and reports that fit a terminal.
#include "command.h"
#include "terminal.h"
#include "variable.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <pty.h>
#include <sstream>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace attnc::test;
using Catch::Contains;

std::optional<std::string> attnc::test::onTerminal(const std::string& arguments, int columns) {
  const Variable unset("COLUMNS", nullptr), color("NO_COLOR", nullptr), force("CLICOLOR_FORCE", nullptr),
      term("TERM", "xterm");
  int screen = -1, terminal = -1;
  char name[64] = "";
  winsize size{};
  size.ws_row = 24;
  size.ws_col = static_cast<unsigned short>(columns);
  if (::openpty(&screen, &terminal, name, nullptr, &size) != 0) {
    WARN("SKIPPED: there are no terminals here");
    return std::nullopt;
  }
  std::string text;
  std::thread reader([&] { // the terminal has little room, so it is read while the command writes
    char chunk[1024];
    for (ssize_t count = 0; (count = ::read(screen, chunk, sizeof(chunk))) > 0;) text.append(chunk, size_t(count));
  });
  shell("$ATTNC " + arguments + " >" + name + " 2>&1");
  ::close(terminal);
  reader.join();
  ::close(screen);
  std::erase(text, '\r');
  return text;
}

size_t attnc::test::widest(const std::string& text) {
  size_t most = 0, columns = 0;
  for (const char c : text) {
    if (c == '\n') columns = 0;
    if (c != '\n' && (c & 0xC0) != 0x80) most = std::max(most, ++columns); // the first byte of a character
  }
  return most;
}

namespace {

/// All commands, with the inner ones of `cache`; "" is attnc itself.
std::vector<std::string> allCommands() {
  std::vector<std::string> all = {
      "", "cache path ", "cache ls ", "cache stat ", "cache verify ", "cache prune ", "cache clear "};
  const std::string start = "complete -c attnc -n __fish_use_subcommand -f -a ";
  std::istringstream lines(printed("completion fish"));
  for (std::string line; std::getline(lines, line);)
    if (line.rfind(start, 0) == 0)
      all.push_back(line.substr(start.size(), line.find(' ', start.size()) - start.size()) + " ");
  REQUIRE(all.size() >= 20);
  return all;
}

std::string withoutColors(const std::string& text) {
  std::string plain;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '\033')
      plain += text[at];
    else
      at = text.find('m', at);
  }
  return plain;
}

const std::string kMods = ATTNC_SOURCE_DIR "/dsl/mods/";

} // namespace

TEST_CASE("every help fits 80 columns and less, without the noise of the parser") {
  for (const char* columns : {"80", "60"}) {
    const Variable set("COLUMNS", columns);
    for (const std::string& command : allCommands()) {
      INFO("attnc " << command << "--help, " << columns << " columns");
      const std::string help = printed(command + "--help");
      // The program of attnc's own help is code, which is not broken.
      if (std::string(columns) == "80" || !command.empty()) CHECK(widest(help) <= size_t(std::stoi(columns)));
      for (const char* noise : {"Excludes", "Needs:", "REQUIRED", "POSITIVE", "NONNEGATIVE", "UINT", "Positionals"})
        CHECK(help.find(noise) == std::string::npos);
    }
  }
  const Variable wide("COLUMNS", "300");
  CHECK(widest(printed("run --help")) <= 100);
  const std::string run = printed("run --help");
  for (const char* heading : {"\nMod:\n", "\nProblem:\n", "\nKernel:\n", "\nOutput:\n", "\nExamples:\n"})
    CHECK_THAT(run, Contains(heading));
}

TEST_CASE("the help of a command with many options names all of them, and --help-all explains all") {
  const Variable set("COLUMNS", "80");
  const auto commands = nlohmann::json::parse(printed("--help-json"))["commands"];
  int shortened = 0;
  for (const auto& command : commands) {
    const std::string name = command["name"], help = printed(name + " --help");
    INFO("attnc " << name << " --help\n" << help);
    CHECK(std::count(help.begin(), help.end(), '\n') < 100);
    const Outcome all = attnc::test::attnc(name + " --help-all");
    CHECK((all.exitCode == 0) == (help.find("\nMore, explained by --help-all:\n") != std::string::npos));
    if (all.exitCode != 0) continue;
    ++shortened;
    CHECK(widest(all.out) <= 80);
    for (const auto& option : command["options"])
      if (!option["positional"])
        for (const std::string& text : {help, all.out}) CHECK_THAT(text, Contains(std::string(option["names"].back())));
  }
  CHECK(shortened >= 6);
  CHECK_THAT(printed("run --help"), !Contains("Drawn tensors:") && !Contains("  --tile TILE "));
  CHECK_THAT(printed("run --help-all"), Contains("\n\nDrawn tensors: ") && Contains("\n  --tile TILE "));
}

TEST_CASE("help and version are commands and options") {
  CHECK(printed("help") == printed("--help"));
  CHECK(printed("") == printed("--help"));
  CHECK(printed("help mask") == printed("mask --help"));
  CHECK(printed("help mask") == printed("mask -h"));
  CHECK(printed("help completion") == printed("completion --help"));
  CHECK(printed("help cache prune") == printed("cache prune --help"));
  CHECK(printed("version") == printed("--version"));
  CHECK(printed("version") == printed("-V"));
  const Outcome wrong = attnc::test::attnc("help msk");
  CHECK(wrong.exitCode == 2);
  CHECK_THAT(wrong.err,
             Contains("'msk' is none of check, infer, mask") && Contains("did you mean mask?") && !Contains("prune"));
  CHECK_THAT(attnc::test::attnc("help mask ls").err, Contains("'attnc mask ls' is no command"));
}

TEST_CASE("there are colours where they are asked for, and the text is the same") {
  const Variable none("NO_COLOR", nullptr), force("CLICOLOR_FORCE", nullptr);
  const std::string wrong = "check --expr 'q_idx >= kvidx' ";
  for (const std::string& command : {std::string("help emit "), "mask --shape 300 " + kMods + "causal.py ", wrong,
                                     "check " + kMods + "alibi.py ", std::string("emit --stge ir ")}) {
    INFO("attnc " << command);
    const Outcome plain = attnc::test::attnc(command), colored = attnc::test::attnc(command + "--color always");
    CHECK(plain.out.find('\033') == std::string::npos);
    CHECK(plain.err.find('\033') == std::string::npos);
    CHECK((colored.out + colored.err).find('\033') != std::string::npos);
    CHECK(withoutColors(colored.out) == plain.out);
    CHECK(withoutColors(colored.err) == plain.err);
  }
  const Outcome shown = attnc::test::attnc(wrong + "--color=always");
  CHECK_THAT(shown.err, Contains("\033[1;31merror:\033[0m") && Contains("\033[1;32m^~~~~\033[0m") &&
                            Contains("\033[1;36mnote:\033[0m did you mean"));
  const auto isColored = [&](const std::string& options) {
    return attnc::test::attnc(wrong + options).err.find('\033') != std::string::npos;
  };
  const Variable forced("CLICOLOR_FORCE", "1");
  CHECK(isColored(""));
  CHECK_FALSE(isColored("--color never"));
  const Variable no("NO_COLOR", "1");
  CHECK_FALSE(isColored(""));
  CHECK(isColored("--color always"));
  CHECK_THAT(attnc::test::attnc(wrong + "--color sometimes").err,
             Contains("'sometimes' is none of auto, always, never"));
}

TEST_CASE("a terminal gets colours, and lines that fit it; a file gets lines whole") {
  const Folder folder;
  const Variable cache("ATTNC_CACHE_DIR", (folder / "cache").c_str());
  const std::string check = "check " + kMods + "document.py";
  const std::string whole = printed(check);
  REQUIRE(widest(whole) > 60);
  const auto shown = onTerminal(check, 60);
  if (!shown) return;
  CHECK_THAT(*shown, Contains("\033[1;36mcaptures\033[0m"));
  const std::string plain = withoutColors(*shown);
  CHECK(widest(plain.substr(0, plain.find("\nhash"))) <= 60); // a word is not broken
  const auto words = [](const std::string& text) {
    std::istringstream stream(text);
    std::vector<std::string> all;
    for (std::string word; stream >> word;) all.push_back(word);
    return all;
  };
  CHECK(words(plain) == words(whole));
  CHECK(withoutColors(*onTerminal("help run", 72)) != printed("help run"));
  CHECK(widest(withoutColors(*onTerminal("help run", 72))) <= 72);
  CHECK(widest(withoutColors(*onTerminal("gallery", 90))) <= 90);
  CHECK(onTerminal("check --color never " + kMods + "alibi.py", 200) == printed("check " + kMods + "alibi.py"));
  if (noNvrtc()) return;
  attnc::test::attnc("emit --expr 'q_idx >= kv_idx' --stage cubin --arch sm_80 --head-dim 64 -o " + folder / "a.cubin");
  REQUIRE(widest(printed("cache ls")) > 80);
  const std::string listed = withoutColors(*onTerminal("cache ls", 80));
  CHECK(widest(listed) <= 80);
  CHECK(words(listed) == words(printed("cache ls")));
}
