// The text that IR becomes: golden/<name>.ir -> golden/<name>.cuh, of scaled_<name> with the factors of the score
// apart, of shifted_<name> with the terms of rows apart. identity.cuh has the whole text, the others only what differs
// from it. ATTNC_UPDATE_GOLDEN=1 rewrites the .cuh files.
#include "codegen/config_source.h"
#include "codegen/emit.h"
#include "codegen/host_mods.h"
#include "codegen/mod_source.h"
#include "helpers/take.h"
#include "ir/reader.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace attnc {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> goldenInputs() {
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(ATTNC_SOURCE_DIR "/tests/codegen/golden"))
    if (entry.path().extension() == ".ir") paths.push_back(entry.path());
  return paths;
}

std::string emit(const fs::path& input) {
  auto module = take(ir::read(test::readFile(input.string()), input.filename().string()));
  auto isNamed = [&](const char* prefix) { return input.stem().string().rfind(prefix, 0) == 0; };
  return test::emitMod(module, {.scale = isNamed("scaled_"), .rowShift = isNamed("shifted_")}).text;
}

/// Returns the parts of a text, in order: functions, comments and what blank lines divide.
std::vector<std::string> partsOf(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream lines(text);
  for (std::string line, last; std::getline(lines, line); last = line) {
    const bool endsMod = line == "};" && last == "  }";
    const bool begins = line.empty() || endsMod || line.rfind("  ATTNC_DEVICE ", 0) == 0 || line.rfind("  // ", 0) == 0;
    if (parts.empty() || begins) parts.emplace_back();
    parts.back() += line + "\n";
  }
  return parts;
}

/// Returns the parts of a text that `common` lacks.
std::string ownParts(const std::string& text, const std::string& common) {
  const std::vector<std::string> known = partsOf(common);
  std::string own;
  for (const std::string& part : partsOf(text))
    if (std::find(known.begin(), known.end(), part) == known.end()) own += part;
  return own;
}

/// Checks that a text has the functions of `common`, in its words or in others.
void checkFunctions(const std::string& text, const std::string& common) {
  for (const std::string& part : partsOf(common)) {
    INFO(part);
    if (part.rfind("  ATTNC_DEVICE ", 0) == 0) CHECK(text.find(part.substr(0, part.find('\n'))) != std::string::npos);
  }
}

bool hasWideLine(const std::string& text) {
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find('\n', begin), text.size());
    if (end - begin > 140) return true;
    begin = end + 1;
  }
  return false;
}

} // namespace

TEST_CASE("generated text is what the golden files say", "[codegen]") {
  std::vector<fs::path> inputs = goldenInputs();
  REQUIRE(inputs.size() >= 8);
  const std::string identity = emit(ATTNC_SOURCE_DIR "/tests/codegen/golden/identity.ir");
  for (const fs::path& input : inputs) {
    INFO(input);
    fs::path golden = fs::path(input).replace_extension(".cuh");
    const std::string whole = emit(input);
    const std::string text = input.stem() == "identity" ? whole : ownParts(whole, identity);
    if (std::getenv("ATTNC_UPDATE_GOLDEN")) std::ofstream(golden, std::ios::binary) << text;
    CHECK(text == test::readFile(golden.string()));
    checkFunctions(whole, identity);
    CHECK_FALSE(hasWideLine(whole));
  }
}

TEST_CASE("a mod that does nothing has the text of a kernel without mods", "[codegen]") {
  ir::Module module;
  codegen::ModSource none = test::emitMod(module);
  CHECK(none.slots.empty());
  CHECK(none.text == emit(ATTNC_SOURCE_DIR "/tests/codegen/golden/identity.ir"));
  CHECK(none.text.find("using Exponents = ProductExponents;") != std::string::npos);
  CHECK(none.text.find("kHasMaskMod = false") != std::string::npos);
}

TEST_CASE("the configuration names every constant of the identity configuration", "[codegen]") {
  std::string text = codegen::emitConfig(
      {.dtype = DType::F16,
       .headDimQk = 96,
       .headDimV = 64,
       .blockM = 64,
       .blockN = 32,
       .warps = 8,
       .blockSparse = true,
       .tf32 = true,
       .sharedBytes = 4096,
       .kvStages = 3,
       .narrowHeadDim = 96,
       .fp8 = false,
       .rowScales = false,
       .constants = codegen::constantText("kFp8Kv", false) + codegen::constantText("kEmbeds", true)});
  std::string identity = test::readFile(ATTNC_SOURCE_DIR "/templates/mod/identity/attnc_config.cuh");
  for (size_t at = 0; (at = identity.find("constexpr ", at)) != std::string::npos; ++at) {
    std::string declaration = identity.substr(at, identity.find(" = ", at) - at + 3);
    INFO(declaration);
    CHECK(text.find(declaration) != std::string::npos);
  }
  CHECK(text.find("using Element = F16;\nconstexpr int kHeadDimQk = 96;\nconstexpr int kHeadDimV = 64;\n") !=
        std::string::npos);
  CHECK(text.find("constexpr bool kBlockSparse = true;\n") != std::string::npos);
  CHECK(text.find("constexpr int kSharedBytes = 4096;\n") != std::string::npos);
  CHECK(text.find("constexpr int kStages = 3;\n") != std::string::npos);
  CHECK(text.find("kQStages") == std::string::npos);
}

} // namespace attnc
