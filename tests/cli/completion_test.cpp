// `attnc completion`: what bash completes, as a shell has it.
#include "command.h"

#include <catch2/catch.hpp>

#include <set>
#include <sstream>

using attnc::test::Outcome;
using Catch::Contains;

namespace {

/// What is offered at the end of a line; its last word may be empty.
std::set<std::string> completed(const std::string& line) {
  std::istringstream stream(line);
  std::string words, word;
  int count = 0;
  for (; stream >> word; ++count) words += " '" + word + "'";
  if (line.back() == ' ') words += " ''", ++count;
  const Outcome outcome = attnc::test::shell(
      "exec bash -c 'source <(\"$0\" completion bash); compopt() { COMPREPLY=(none); }; shift 0; COMP_WORDS=(\"$@\"); "
      "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _attnc; printf \"%s\\n\" \"${COMPREPLY[@]}\"' $ATTNC" +
      words);
  INFO(line << "\n" << outcome.err);
  REQUIRE(outcome.exitCode == 0);
  CHECK(outcome.err.empty());
  std::istringstream lines(outcome.out);
  std::set<std::string> offered;
  while (std::getline(lines, word))
    if (!word.empty()) offered.insert(word);
  return offered;
}

using Words = std::set<std::string>;

} // namespace

TEST_CASE("bash completes commands, options and the values that an option has") {
  CHECK(completed("attnc ma") == Words{"mask"});
  CHECK(completed("attnc e") == Words{"emit", "explain"});
  CHECK(completed("attnc ").count("check") == 1);
  CHECK(completed("attnc --v") == Words{"--version"});
  CHECK(completed("attnc mask --sha") == Words{"--shape"});
  CHECK(completed("attnc mask causal.py --colu") == Words{"--columns"});
  CHECK(completed("attnc mask --color ") == Words{"auto", "always", "never"});
  CHECK(completed("attnc --c") == Words{"--color"});
  CHECK(completed("attnc help ma") == Words{"mask"});
  CHECK(completed("attnc gallery ali") == Words{"alibi"});
  CHECK(completed("attnc new --kind s") == Words{"softcap"});
  CHECK(completed("attnc run --sha") == Words{"--shape"});
  CHECK(completed("attnc doctor --j") == Words{"--json"});
  CHECK(completed("attnc run --back") == Words{"--backward"});
  CHECK(completed("attnc check --back").empty());
  CHECK(completed("attnc emit --stage cu") == Words{"cu", "cubin"});
  CHECK(completed("attnc emit --stage = cub") == Words{"cubin"}); // as bash takes --stage=cub apart
  CHECK(completed("attnc emit --stage =").size() == 9);
  CHECK(completed("attnc run --dtype ") == Words{"bf16", "e4m3", "fp16", "fp32"});
  CHECK(completed("attnc explain --arch sm_90") == Words{"sm_90a"});
  CHECK(completed("attnc completion ") == Words{"bash", "zsh", "fish"});
  CHECK(completed("attnc run --seed ") == Words{"none"}); // a number: no files either
  CHECK(completed("attnc run --in ").empty());            // bash offers files
  CHECK(completed("attnc check ").empty());
}

TEST_CASE("completion is for shells that it knows") {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    Outcome outcome = attnc::test::attnc(std::string("completion ") + shell);
    CHECK(outcome.exitCode == 0);
    CHECK_THAT(outcome.out, Contains("attnc") && Contains("kernel-ir"));
  }
  attnc::test::checkRefused("completion tcsh", 2, "'tcsh' is none of bash, zsh, fish");
}
