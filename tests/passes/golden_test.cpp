// Golden files: tests/passes/golden/<pass>/<behaviour>.ir holds a sentence, the module before, `; =>`, and the module
// after the pass and dce. There `; lines 3 to 7` stands for these lines of the file. ATTNC_UPDATE_GOLDEN=1 rewrites the
// second half. A first line `; pin NAME=VALUE ...` sets pins, `; sequences lengths tensor` the form of sequences.
#include "helpers/same_meaning.h"
#include "ir/printer.h"
#include "ir/reader.h"
#include "passes/pass.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

using namespace attnc;
using namespace attnc::passes;
namespace fs = std::filesystem;

namespace {

const fs::path kGolden = fs::path(ATTNC_SOURCE_DIR) / "tests/passes/golden";
constexpr std::string_view kArrow = "; =>\n";

std::string contents(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::vector<std::string> linesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// Returns `text` with `; lines 3 to 7` in place of at least three lines that are lines 3 to 7 of `known`.
std::string abbreviated(const std::string& text, const std::string& known) {
  const std::vector<std::string> own = linesOf(text), all = linesOf(known);
  std::string result;
  for (size_t i = 0, step = 1; i < own.size(); i += step) {
    size_t at = 0;
    step = 1;
    for (size_t k = 0; k < all.size(); ++k) {
      size_t same = 0;
      while (i + same < own.size() && k + same < all.size() && own[i + same] == all[k + same]) ++same;
      if (same > std::max<size_t>(step, 2)) step = same, at = k;
    }
    result += step == 1 ? own[i] + "\n" : fmt::format("; lines {} to {}\n", at + 1, at + step);
  }
  return result;
}

Pins pinsOf(const std::string& text) {
  std::istringstream words(text.substr(0, text.find('\n')));
  std::string word;
  Pins pins;
  words >> word >> word;
  if (word != "pin") return pins;
  while (words >> word) pins[word.substr(0, word.find('='))] = std::stoll(word.substr(word.find('=') + 1));
  return pins;
}

SequenceForm sequencesOf(const std::string& text) {
  const std::string line = text.substr(0, text.find('\n'));
  const auto says = [&](const char* word) { return line.find(word) != std::string::npos; };
  if (!says("; sequences")) return {};
  return {says("; sequences lengths"),
          says(" tensor")         ? QueryOffsets::Tensor
          : says(" from lengths") ? QueryOffsets::FromLengths
                                  : QueryOffsets::None,
          says(" ragged"), says(" in pages")};
}

/// Holds files without captures to the interpreter at the largest extents, where sums come closest to wrapping around.
/// What passes take out of the score has tests of its own.
void checkMeaning(const Pass& pass, const ir::Module& before, const ir::Module& after) {
  if (pass.name == "derive-scale" || pass.name == "derive-row-shift" || pass.name == "sequences") return;
  if (!before.tensors.empty() || !before.scalars.empty()) return;
  auto sameness = pass.name == "lift-masks" ? test::Sameness::Attention : test::Sameness::Exact;
  test::requireSameMeaning(before, after, {}, {.qLen = ir::kMaxExtent, .kvLen = ir::kMaxExtent}, 200, sameness);
}

void checkFile(const Pass& pass, const fs::path& path) {
  std::string text = contents(path);
  size_t arrow = text.find(kArrow);
  INFO(path.string());
  REQUIRE(arrow != std::string::npos);
  auto module = take(ir::read(text.substr(0, arrow), path.string()));
  PassContext context{pinsOf(text), sequencesOf(text)};
  ir::Module before = module;
  REQUIRE(pass.run(module, context));
  checkMeaning(pass, before, module);
  REQUIRE(findPass("dce")->run(module, {}));
  std::string result = ir::print(module);
  const std::string shown = abbreviated(result, text.substr(0, arrow));
  if (std::getenv("ATTNC_UPDATE_GOLDEN"))
    std::ofstream(path, std::ios::binary) << text.substr(0, arrow) << kArrow << shown;
  else
    CHECK(text.substr(arrow + kArrow.size()) == shown);
  REQUIRE(pass.run(module, context));
  REQUIRE(findPass("dce")->run(module, {}));
  CHECK(ir::print(module) == result); // a pass has nothing left to do on what it made
}

} // namespace

TEST_CASE("each golden file shows what its pass does, and that it does so once") {
  for (const fs::directory_entry& folder : fs::directory_iterator(kGolden)) {
    const Pass* pass = findPass(folder.path().filename().string());
    INFO(folder.path().string());
    REQUIRE(pass);
    for (const fs::directory_entry& file : fs::directory_iterator(folder)) checkFile(*pass, file.path());
  }
}

TEST_CASE("each pass has golden files") {
#define PASS(function, name, summary) CHECK(fs::exists(kGolden / name));
#include "passes/passes.def"
}
