// `attnc explain --html`, and what `attnc serve` answers to whom.
#include "command.h"
#include "show/html_report.h"
#include "show/served_page.h"

#include <catch2/catch.hpp>

#include <set>

using namespace attnc;
using namespace attnc::test;
using attnc::cli::JsonReport;
using Catch::Contains;

namespace {

size_t countOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// Returns the block of JSON as it stands in a page.
std::string dataOf(const std::string& page) {
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const size_t at = page.find(begin);
  REQUIRE(at != std::string::npos);
  const size_t first = at + begin.size();
  return page.substr(first, page.find("</script>", first) - first);
}

const std::string kHostile = "</script><script>alert(1)</script><!-- <script> ]]> & \" ' \\ \xe2\x80\xa8\xe2\x80\xa9 "
                             "@DATA@ @SCRIPT@ )attnc\" \x01";

} // namespace

TEST_CASE("foreign texts on the page are data, whatever they hold") {
  JsonReport data{{"title", kHostile}, {"text", kHostile}, {"live", false}};
  data["kernel"]["captures"] = JsonReport::array({{{"name", kHostile}, {"kind", kHostile}}});
  data[kHostile] = "as a key";
  const std::string page = cli::htmlPage(data), empty = cli::htmlPage(JsonReport::object());
  for (const char* markup : {"<script", "</script", "<!--", "@DATA@", "alert(1)"}) {
    INFO(markup);
    const size_t inData = countOf(dataOf(page), markup);
    CHECK(inData == (std::string(markup).find_first_of("<!") == std::string::npos ? 5 : 0));
    CHECK(countOf(page, markup) - inData == countOf(empty, markup));
  }
  for (char c : dataOf(page)) REQUIRE((c >= ' ' && c <= '~' && c != '<' && c != '>' && c != '&'));
  CHECK(JsonReport::parse(dataOf(page)) == data);
  // Bytes that are no UTF-8 are replaced.
  CHECK_THAT(dataOf(cli::htmlPage({{"text", "\xff</script>"}})), Contains("\\ufffd\\u003c/script\\u003e"));
}

TEST_CASE("the page makes elements by their names, and reaches for nothing outside") {
  const std::string script = std::string(cli::kPageJs) + cli::kPicturesJs + cli::kReportJs;
  for (const char* way : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(",
                          "http:", "https:", "import(", "@DATA@", "</"}) {
    INFO(way);
    CHECK(countOf(script + cli::kPageCss, way) == 0);
  }
  CHECK(countOf(cli::kPageCss, "url(") == 0);
  const std::string policy = cli::pagePolicy();
  CHECK_THAT(policy,
             Contains("default-src 'none'") && Contains("script-src 'sha256-") && Contains("style-src 'sha256-"));
  CHECK(countOf(policy, "unsafe") == 0);
  const std::string page = cli::htmlPage(JsonReport::object());
  CHECK_THAT(page, Contains("content=\"" + policy + "\""));
  CHECK(countOf(page, " src=") + countOf(page, " href=") + countOf(page, " onload=") == 0);
}

TEST_CASE("explain writes a page with the mod, its code and its mask") {
  const Folder folder;
  const std::string mod = folder / "<img src=x onerror=alert(1)>.py", page = folder / "page.html";
  test::writeFile(mod, "\"\"\"</script><script>alert(1)</script> \xe2\x80\xa8\"\"\"\nslopes: f32[H]\n"
                       "def score_mod(score, b, h, q_idx, kv_idx):\n    return score + slopes[h] * (kv_idx - q_idx)\n"
                       "def mask_mod(b, h, q_idx, kv_idx):\n    return q_idx >= kv_idx\n");
  const std::string command = "explain --no-cache --arch sm_90a --head-dim 64 --shape 1,2,2,512,512 '" + mod + "' ";
  Outcome outcome = test::attnc(command + "--html " + page);
  if (outcome.exitCode == 3 && outcome.err.find("nvrtc") != std::string::npos) {
    WARN("SKIPPED: " << outcome.err);
    return;
  }
  INFO(outcome.err);
  REQUIRE(outcome.exitCode == 0);
  CHECK(outcome.out.empty());
  const std::string text = test::readFile(page);
  CHECK(countOf(text, "<script") == 2);
  CHECK(countOf(text, "<img") == 0);
  const JsonReport data = JsonReport::parse(dataOf(text));
  CHECK(data["text"] == test::readFile(mod));
  CHECK(data["title"] == "<img src=x onerror=alert(1)>.py");
  CHECK_THAT(data["code"].get<std::string>(), Contains("struct Mod {") && Contains("#line 4 "));
  CHECK_THAT(data["ir"].get<std::string>(), Contains("output row_shift"));
  CHECK(data["kernel"]["maps"][0]["cells"] == JsonReport({"peee", "fpee", "ffpe", "fffp"}));
  CHECK(data["kernel"]["work"]["steps"] == JsonReport({1, 2, 3, 4})); // of 128 rows
  std::set<int> lines;
  for (const auto& place : data["kernel"]["places"]) lines.insert(place["line"].get<int>());
  CHECK(lines == std::set<int>{4, 6});

  CHECK(test::attnc(command + "--html '" + mod + "'").exitCode == 2); // would be lost
  CHECK(test::attnc(command + "--json --html " + page).exitCode == 2);
  CHECK(test::attnc(command + "--html " + (folder / "missing/page.html")).exitCode == 3);
}

TEST_CASE("serve answers who knows its address, and nobody else") {
  const auto token = cli::unguessable(), other = cli::unguessable();
  REQUIRE((token && other));
  CHECK(*token != *other);
  CHECK((token->size() == 32 && token->find_first_not_of("0123456789abcdef") == std::string::npos));
  cli::ServedPage page(*token);
  page.setPort(8080);
  page.publish({{"text", "first"}});
  page.publish({{"text", "second"}});
  const std::string root = "/" + *token;
  const std::string rootPage = root + "/", state = root + "/state";
  const auto ask = [&](std::string_view path, std::string_view host = "127.0.0.1:8080", std::string_view origin = "",
                       std::string_view method = "GET", std::string_view have = "") {
    return page.answer({method, path, host, origin, have});
  };
  CHECK(ask(rootPage).status == 200);
  CHECK_THAT(ask(rootPage).body, Contains("second"));
  CHECK(ask(rootPage, "localhost:8080", "http://localhost:8080").status == 200);
  CHECK(ask(state, "127.0.0.1:8080", "", "GET", "1").status == 200);
  CHECK(ask(state, "127.0.0.1:8080", "", "GET", "2").status == 204);
  CHECK(JsonReport::parse(ask(state).body) == JsonReport{{"text", "second"}, {"live", true}, {"revision", 2}});
  for (const char* host : {"", "127.0.0.1", "127.0.0.1:80", "attacker.example", "attacker.example:8080", "?"})
    CHECK(ask(rootPage, host).status == 403);
  for (const char* origin : {"null", "http://attacker.example", "https://127.0.0.1:8080", "http://127.0.0.1:80", "?"})
    CHECK(ask(rootPage, "127.0.0.1:8080", origin).status == 403);
  for (const char* method : {"POST", "PUT", "HEAD", "OPTIONS", "DELETE", "get"})
    CHECK(ask(rootPage, "127.0.0.1:8080", "", method).status == 405);
  for (const std::string& path :
       {std::string("/"), std::string(), root, "/" + *other + "/", root + "/../etc/passwd", root + "//",
        root + "/state/", root + "/mod.py", root.substr(0, 20) + "/", root + "0/"})
    CHECK(ask(path).status == 404);
}
