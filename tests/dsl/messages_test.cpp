// Whatever bytes a text and its name have: what is said of it is UTF-8 without control characters.
#include "dsl/tracing.h"
#include "helpers/take.h"
#include "ir/reader.h"
#include "support/readable.h"

#include <catch2/catch.hpp>

using namespace attnc;
using namespace attnc::testing;

namespace {

const std::string kHostile = "x\x1b[2J\x07\n\xe2\x80\xa8\xe2\x80\xae\xc2\x9b\xff\xc0\x80\x7f";

void checkReadable(const Error& error) {
  INFO(error.message);
  REQUIRE_FALSE(error.message.empty());
  CHECK(readableLines(error.message) == error.message);
  for (const Diagnostic& diagnostic : error.diagnostics) {
    for (const std::string& text : {diagnostic.file, diagnostic.message, diagnostic.hint})
      CHECK(readable(text) == text);
    CHECK(readableLines(diagnostic.rendered) == diagnostic.rendered);
  }
}

} // namespace

TEST_CASE("diagnostics have no control characters, whatever the text has", "[dsl][diagnostics]") {
  const std::string safe = "x\x1b[2J\x07\xe2\x80\xa8\xe2\x80\xae\xc2\x9b\x7f"; // UTF-8, and one line
  const std::vector<std::string> texts = {"score + " + kHostile,
                                          "'" + safe + "' + score",
                                          "score + len(" + safe + ")",
                                          "# " + safe + "\nscore + unknown",
                                          "score + {}[\"\\x1b[2J\\u2028\"]",
                                          "assert False, '" + safe + "'\nscore",
                                          "import " + safe,
                                          "score + float('" + safe + "')",
                                          "score + getattr(1, '" + safe + "')",
                                          "score + unknown # " + kHostile};
  for (const std::string& text : texts) {
    auto module = dsl::trace(text, {.name = kHostile});
    if (!module) checkReadable(module.error());
    checkReadable(refusalOf(dsl::trace("W = 1\nscore + W", {.name = kHostile, .defines = {{kHostile, kHostile}}})));
  }
  for (const std::string text : {"x = \"\xc0\x80\"", "x = \"\xed\xa0\x80\"", "x = \"\xff\""}) {
    checkReadable(refusalOf(dsl::trace(text)));
  }
}

TEST_CASE("names and conditions of a module are readable", "[dsl][diagnostics]") {
  auto module = take(dsl::trace("n: int\nassert n > 0, 'x\\x1b[2J\\n" + std::string("\xe2\x80\xa8") + "'\nscore + n",
                                {.name = kHostile}));
  CHECK(readable(module.sourceName) == module.sourceName);
  for (const ir::Output& output : module.outputs()) {
    if (!output.isCondition()) continue;
    CHECK(output.words == "x\\x1b[2J\\x0a\\u2028");
  }
  for (const char* text : {"source \"a\x1b", "what\x1b[2J \xff", "%0 = \xc2\x9b i32", "%0 = neg i32 %a\x1b"}) {
    checkReadable(refusalOf(ir::read(text, kHostile)));
  }
}
