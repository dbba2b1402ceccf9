// CPython runs each mod of the library and each mod of tests/dsl/features; the traced IR must give the same values.
#include "dsl/tracing.h"

#include <llvm/Support/FileSystem.h>
#include <llvm/Support/JSON.h>
#include <llvm/Support/Program.h>

#include <catch2/catch.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>

using namespace attnc;
using namespace attnc::testing;
namespace json = llvm::json;

namespace {

struct Coordinate {
  double score;
  int64_t b, h, q, kv;
};

std::vector<Coordinate> coordinates() {
  constexpr double kLarge[] = {0x1p10, 0x1p27}; // larger ones fit no i32
  std::mt19937 random(7);
  std::vector<Coordinate> result;
  for (int i = 0; i < 150; ++i)
    result.push_back({(int(random() % 4001) - 2000) / 256.0 * (i % 10 == 9 ? kLarge[i / 10 % 2] : 1), int(random() % 2),
                      int(random() % 4), int(random() % 24), int(random() % 40)});
  return result;
}

json::Object request(const Running& running, const std::string& text,
                     const std::map<std::string, std::string>& defines) {
  json::Object dims, captures, overrides;
  for (auto& [name, size] : running.dims) dims[name] = size;
  for (auto& [name, value] : defines) overrides[name] = value;
  for (const ir::ScalarCapture& scalar : running.module.scalars) {
    double value = running.scalars.at(scalar.name);
    json::Value encoded = scalar.type == ir::Type::Bool  ? json::Value(value != 0)
                          : scalar.type == ir::Type::F32 ? json::Value(value)
                                                         : json::Value(int64_t(value));
    captures[scalar.name] = json::Object{{"value", std::move(encoded)}};
  }
  for (const ir::TensorCapture& tensor : running.module.tensors) {
    json::Array shape, data;
    for (const ir::Extent& extent : tensor.shape)
      shape.push_back(extent.isNamed ? running.dims.at(running.module.dims[size_t(extent.value)]) : extent.value);
    ir::Type type = ir::loadedType(tensor.dtype);
    for (double value : running.elements.at(tensor.name))
      data.push_back(type == ir::Type::Bool  ? json::Value(value != 0)
                     : type == ir::Type::F32 ? json::Value(value)
                                             : json::Value(int64_t(value)));
    captures[tensor.name] = json::Object{{"shape", std::move(shape)}, {"data", std::move(data)}};
  }
  json::Array coords;
  for (const Coordinate& at : coordinates()) coords.push_back(json::Array{at.score, at.b, at.h, at.q, at.kv});
  return json::Object{{"text", text},
                      {"defines", std::move(overrides)},
                      {"dims", std::move(dims)},
                      {"captures", std::move(captures)},
                      {"coords", std::move(coords)}};
}

/// Runs oracle.py on a request; its answer.
json::Object ask(json::Object request) {
  llvm::SmallString<128> in, out;
  REQUIRE_FALSE(llvm::sys::fs::createTemporaryFile("attnc-oracle", "json", in));
  REQUIRE_FALSE(llvm::sys::fs::createTemporaryFile("attnc-oracle", "out", out));
  std::string text;
  llvm::raw_string_ostream(text) << json::Value(std::move(request));
  std::ofstream(in.c_str()) << text;
  auto python = llvm::sys::findProgramByName("python3");
  REQUIRE(python);
  std::string script = std::string(ATTNC_SOURCE_DIR) + "/tests/dsl/oracle.py";
  int status = llvm::sys::ExecuteAndWait(*python, {*python, script, in.str()}, /*Env=*/{}, {{}, out.str(), {}});
  std::string answer = readFile(out.c_str());
  llvm::sys::fs::remove(in);
  llvm::sys::fs::remove(out);
  REQUIRE(status == 0);
  auto parsed = json::parse(answer);
  REQUIRE(bool(parsed));
  return *parsed->getAsObject();
}

double number(const json::Value& value) {
  if (auto text = value.getAsString()) return std::strtod(text->str().c_str(), nullptr);
  if (auto flag = value.getAsBoolean()) return *flag;
  return *value.getAsNumber();
}

bool agree(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  // Both sides are f32, operation by operation; but what torch has as one function may be several here or there.
  return a == b || std::abs(a - b) <= 3e-7 * std::max({1.0, std::abs(a), std::abs(b)});
}

void compare(const std::string& text, const std::map<std::string, std::string>& defines = {}) {
  Running running(traced(text, defines));
  json::Object answer = ask(request(running, text, defines));
  std::vector<Coordinate> coords = coordinates();
  const json::Object& outputs = *answer.getObject("outputs");
  REQUIRE((answer.getArray("score") || answer.getArray("mask") || answer.getArray("prob") || answer.getArray("sink") ||
           !outputs.empty()));
  const std::vector<ir::Reduction> reductions = ir::reductionsOf(running.module);
  REQUIRE(reductions.size() == outputs.size());
  CHECK(bool(answer.getArray("score")) == running.module.output(ir::kScore).has_value());
  CHECK(bool(answer.getArray("mask")) == running.module.output(ir::kMask).has_value());
  CHECK(bool(answer.getArray("prob")) ==
        (running.module.output(ir::kProbFactor) || running.module.output(ir::kProbWeight)));
  CHECK(bool(answer.getArray("sink")) == running.module.output(ir::kSink).has_value());
  for (size_t i = 0; i < coords.size(); ++i) {
    auto [score, b, h, q, kv] = coords[i];
    INFO("score " << score << " b " << b << " h " << h << " q_idx " << q << " kv_idx " << kv);
    if (const json::Array* expected = answer.getArray("score")) {
      double got = running.score(score, b, h, q, kv), want = number((*expected)[i]);
      INFO("attnc " << got << ", CPython " << want);
      REQUIRE(agree(got, want));
    }
    if (const json::Array* expected = answer.getArray("mask"))
      REQUIRE(running.mask(b, h, q, kv) == (number((*expected)[i]) != 0));
    if (const json::Array* expected = answer.getArray("prob"))
      REQUIRE(agree(running.prob(score, b, h, q, kv), number((*expected)[i])));
    if (const json::Array* expected = answer.getArray("sink"))
      REQUIRE(agree(running.sink(b, h, q), number((*expected)[i])));
    for (const ir::Reduction& each : reductions)
      REQUIRE(agree(running.reduced(each, score, b, h, q, kv), number((*outputs.getArray(each.name))[i])));
  }
}

std::vector<std::filesystem::path> mods(const char* folder) {
  std::vector<std::filesystem::path> paths;
  for (auto& entry : std::filesystem::directory_iterator(std::string(ATTNC_SOURCE_DIR) + folder))
    if (entry.path().extension() == ".py") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// Random expressions over what both sides compute exactly: constants are exact in f32, ints stay small.
class Expressions {
public:
  explicit Expressions(unsigned seed) : random(seed) {}

  std::string integer(int depth) {
    if (depth == 0)
      return pick({"q_idx", "kv_idx", "h", "b", "n", "ids[q_idx]", "wide[h]", std::to_string(int(random() % 15) - 7)});
    std::string x = integer(depth - 1), y = integer(depth - 1), small = std::to_string(1 + random() % 6);
    return pick({"(" + x + " + " + y + ")", "(" + x + " - " + y + ")", "(" + x + " * " + small + ")", "(-" + x + ")",
                 "(" + x + " // (abs(" + y + ") + 1))", "(" + x + " % " + small + ")", "(" + x + " // -" + small + ")",
                 "(" + x + " % (-1 - abs(" + y + ")))", "(" + x + " & " + y + ")", "(" + x + " | " + small + ")",
                 "(" + x + " ^ " + y + ")", "(" + x + " >> " + small + ")", "(~" + x + ")", "min(" + x + ", " + y + ")",
                 "torch.maximum(" + x + ", " + y + ")", "torch.where(" + logical(depth - 1) + ", " + x + ", " + y + ")",
                 "(" + logical(depth - 1) + " * " + small + ")", "ids[" + x + " % 40]",
                 "torch.clamp(" + x + ", -9, 9)"});
  }

  std::string logical(int depth) {
    if (depth == 0) return pick({"q_idx >= kv_idx", "on", "h == 2", "flags[b]", "score > 0.5", "True"}, true);
    std::string p = logical(depth - 1), q = logical(depth - 1), x = integer(depth - 1), y = integer(depth - 1),
                f = real(depth - 1);
    return pick({"(" + p + " & " + q + ")", "(" + p + " | ~" + q + ")", "(" + p + " ^ " + q + ")",
                 "(" + x + " < " + y + ")", "(" + x + " != " + y + ")", "(-3 <= " + x + " < 9)",
                 "(" + f + " >= " + x + ")", "(not " + x + ")", "(" + p + " and " + q + ")", "(" + p + " or " + q + ")",
                 "(" + x + " in (1, 2, " + y + "))", "bool(" + x + ")"});
  }

  std::string real(int depth) {
    if (depth == 0) return pick({"score", "x", "bias[h, 2]", "0.375", "-1.5", "temperature"});
    std::string f = real(depth - 1), g = real(depth - 1), x = integer(depth - 1);
    return pick({"(" + f + " + " + g + ")", "(" + f + " - " + x + ")", "(" + f + " * 0.5)", "(" + f + " / 4)",
                 "(" + x + " / 8)", "torch.floor(" + f + ")", "(" + f + " // 2)", "(" + f + " % 1.5)", "abs(" + f + ")",
                 "torch.tanh(" + f + ")", "torch.where(" + logical(depth - 1) + ", " + f + ", " + x + ")",
                 "max(" + f + ", " + x + ")", "(" + x + " + 0.25)", "torch.round(" + f + ")",
                 "float(" + logical(depth - 1) + ")", "random(" + x + ", b, h, q_idx, kv_idx)", "int(" + f + ")",
                 "(" + f + ") * (" + x + ")"});
  }

private:
  std::string pick(std::vector<std::string> choices, bool inBrackets = false) {
    std::string choice = choices[random() % choices.size()];
    return inBrackets ? "(" + choice + ")" : choice;
  }

  std::mt19937 random;
};

} // namespace

TEST_CASE("random expressions give what CPython gives", "[dsl][oracle]") {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    Expressions expressions(seed);
    std::string text =
        "import torch\nn: int\nx: float\non: bool\nids: i32[KV_LEN]\nwide: i64[H]\nflags: bool[B]\n"
        "bias: f32[H, 3]\ntemperature: f32\n\ndef score_mod(score, b, h, q_idx, kv_idx):\n  total = 0.0\n";
    for (int i = 0; i < 12; ++i) text += "  total = total / 2 + " + expressions.real(1 + i % 4) + "\n";
    text += "  return total\n\ndef mask_mod(b, h, q_idx, kv_idx):\n  score = x\n  return bool(" +
            expressions.logical(3) + ") | " + expressions.logical(2) + "\n";
    INFO(text);
    compare(text);
  }
}

TEST_CASE("every mod of the library gives what CPython gives", "[dsl][oracle]") {
  // Small images and short distances, so that the random coordinates meet the borders.
  const std::map<std::string, std::map<std::string, std::string>> defines = {
      {"axial", {{"WIDTH", "6"}}},
      {"block_diffusion", {{"BLOCK", "2"}}},
      {"chunked", {{"CHUNK", "7"}}},
      {"criss_cross", {{"HEIGHT", "7"}, {"WIDTH", "6"}}},
      {"fixed_sparse", {{"STRIDE", "7"}, {"SUMMARY", "2"}}},
      {"frame_causal", {{"FRAME", "5"}}},
      {"interleaved_images", {{"TOKENS", "6"}}},
      {"longnet", {{"SEGMENT", "12"}, {"DILATION", "2"}}},
      {"joint_image", {{"HEIGHT", "5"}, {"WIDTH", "6"}, {"TEXT", "4"}, {"WINDOW", "3"}}},
      {"morton_neighborhood2d", {{"SIZE", "8"}, {"WINDOW", "(3, 5)"}}},
      {"neighborhood2d", {{"WIDTH", "6"}, {"HEIGHT", "7"}, {"WINDOW", "(3, 5)"}}},
      {"neighborhood3d",
       {{"FRAMES", "3"}, {"HEIGHT", "4"}, {"WIDTH", "5"}, {"WINDOW", "(2, 3, 2)"}, {"DILATION", "(1, 1, 2)"}}},
      {"relative_bias", {{"MAX_DISTANCE", "9"}}},
      {"shifted_window", {{"HEIGHT", "6"}, {"WIDTH", "10"}, {"WINDOW", "3"}, {"SHIFT", "1"}}},
      {"sliding_tile", {{"TILE_TOKENS", "2"}, {"TILES", "(2, 3, 4)"}, {"WINDOW", "(1, 3, 3)"}}},
      {"sparse_video", {{"FRAMES", "3"}, {"HEIGHT", "3"}, {"WIDTH", "4"}, {"TEXT", "5"}, {"NEAR_PIXELS", "1"}}},
      {"streaming_chunks", {{"CHUNK", "3"}}},
      {"strided", {{"STRIDE", "6"}}},
      {"t5_bias", {{"NUM_BUCKETS", "8"}, {"MAX_DISTANCE", "20"}}},
      {"tiled_neighborhood2d", {{"WIDTH", "8"}, {"HEIGHT", "8"}, {"TILE", "2"}, {"WINDOW", "(3, 5)"}}},
      {"top_k_blocks", {{"BLOCK", "4"}}}};
  auto paths = mods("/dsl/mods");
  REQUIRE(paths.size() >= 40);
  for (const auto& path : paths) {
    DYNAMIC_SECTION(path.stem().string()) {
      std::string text = readFile(path);
      auto found = defines.find(path.stem().string());
      std::map<std::string, std::string> chosen;
      if (found != defines.end()) chosen = found->second;
      compare(text, chosen);
      for (auto [flag, other] :
           {std::pair("\nCAUSAL = True", "False"), {"\nCAUSAL = False", "True"}, {"\nBIDIRECTIONAL = True", "False"}}) {
        if (text.find(flag) == std::string::npos) continue;
        const std::string name(flag + 1, std::string(flag).find(' ') - 1);
        chosen[name] = other;
        compare(text, chosen);
      }
    }
  }
}

TEST_CASE("every construct of the language gives what CPython gives", "[dsl][oracle]") {
  auto paths = mods("/tests/dsl/features");
  REQUIRE(paths.size() >= 10);
  for (const auto& path : paths) {
    DYNAMIC_SECTION(path.stem().string()) { compare(readFile(path)); }
  }
}
