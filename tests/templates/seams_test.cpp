// The table of hooks in templates/mod/contract.cuh against the templates: who calls which hook, and how often.
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>

namespace {

namespace fs = std::filesystem;
const fs::path kTemplates = ATTNC_SOURCE_DIR "/templates";

std::string textOf(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

/// (hook, file) -> calls
using Calls = std::map<std::pair<std::string, std::string>, int>;

/// Rows "//   hook   file   calls"; a row without a hook goes on with the one above.
Calls stated(const std::string& contract) {
  const size_t begin = contract.find("//   hook        called in");
  REQUIRE(begin != std::string::npos);
  std::istringstream lines(contract.substr(begin));
  const std::regex row(R"(//   (\w*)\s+([\w/]+\.cuh?)\s+(\d+))");
  Calls calls;
  std::string line, hook;
  std::getline(lines, line);
  for (std::smatch match; std::getline(lines, line) && std::regex_match(line, match, row);) {
    if (match[1].length()) hook = match[1];
    calls[{hook, match[2]}] = std::stoi(match[3]);
  }
  return calls;
}

/// Calls of Mod's functions in all templates. Each carries the comment SEAM(hook) on its line or on one of the next
/// two.
Calls found() {
  Calls calls;
  const std::regex call(R"(\bM(?:od)?::([a-z_]+)\()");
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(kTemplates)) {
    if (!entry.is_regular_file() || entry.path().string().find("/mod/") != std::string::npos) continue;
    const std::string text = textOf(entry.path()), file = fs::relative(entry.path(), kTemplates).string();
    for (std::sregex_iterator match(text.begin(), text.end(), call), end; match != end; ++match) {
      const std::string hook = (*match)[1];
      size_t at = size_t(match->position()), stop = at;
      if (text.rfind("//", at) != std::string::npos && text.rfind("//", at) > text.rfind('\n', at))
        continue; // in a comment
      for (int line = 0; line < 3 && stop != std::string::npos; ++line) stop = text.find('\n', stop + 1);
      INFO(file << ": " << text.substr(at, stop - at));
      CHECK(text.substr(at, stop - at).find("SEAM(" + hook + ")") != std::string::npos);
      ++calls[{hook, file}];
    }
  }
  return calls;
}

} // namespace

TEST_CASE("the hooks of a mod are called where the contract says, and as often", "[seams]") {
  const Calls want = stated(textOf(kTemplates / "mod/contract.cuh")), got = found();
  REQUIRE(want.size() >= 15);
  for (const auto& [key, calls] : want) {
    INFO(key.first << " in " << key.second);
    CHECK((got.count(key) ? got.at(key) : 0) == calls);
  }
  for (const auto& [key, calls] : got) {
    INFO(key.first << " in " << key.second << ", " << calls << " calls");
    CHECK(want.count(key) == 1);
  }
}

TEST_CASE("kernels know no form of a score", "[seams]") {
  for (const fs::directory_entry& entry : fs::directory_iterator(kTemplates)) {
    if (entry.path().extension() != ".cu") continue;
    const std::string text = textOf(entry.path());
    INFO(entry.path());
    for (const char* word : {"tanh", "slope", "linear", "softcap", "scale_in", "scale_out"})
      CHECK(text.find(word) == std::string::npos);
  }
}
