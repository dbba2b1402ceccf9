#include "claims.h"

#include "commands.h"
#include "show/json_report.h"
#include "terminal.h"

#include "attnc/prove.h"
#include "support/try.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <regex>

namespace attnc::cli {
namespace {

struct Asked {
  std::string text;
  Claim claim;
  Proof proof;
};

bool isBlank(const std::string& text) { return text.find_first_not_of(" \t\n") == std::string::npos; }

/// Reads an expression as a mask_mod of the mod's text: with its constants, functions and captures.
Expected<Mod> propertyOf(const Mod& mod, const ModOptions& options, const char* option, const std::string& text) {
  if (isBlank(text)) throw CLI::ValidationError(option, "it takes an expression, such as \"kv_idx <= q_idx\"");
  ParseOptions parse{.name = option, .mods = {"lambda b, h, q_idx, kv_idx: (" + text + "\n)"}};
  parse.captures = options.captures, parse.available = mod.captures();
  for (const std::string& define : options.defines) {
    const size_t equals = define.find('=');
    parse.defines[define.substr(0, equals)] = define.substr(equals + 1);
  }
  auto property = Mod::parse(options.path.empty() ? "" : mod.text(), parse);
  if (property) return property;
  Error error = property.error(); // the front end knows expressions as those of --mod
  constexpr std::string_view kMods = "<--mod>";
  for (size_t at = 0; (at = error.message.find(kMods, at)) != std::string::npos; at += kMods.size())
    error.message.replace(at, kMods.size(), fmt::format("<{}>", option));
  return error;
}

/// Reads assumptions between semicolons: expressions, or "NAME does not decrease".
Status readAssumptions(const Mod& mod, const ModOptions& options, const std::vector<std::string>& texts,
                       ProofOptions& proofs) {
  static const std::regex kSorted(R"(\s*(\w+) does not decrease\s*)");
  for (const std::string& text : texts) {
    size_t begin = 0;
    while (begin <= text.size()) {
      const size_t end = std::min(text.find(';', begin), text.size());
      const std::string one = text.substr(begin, end - begin);
      begin = end + 1;
      std::smatch match;
      if (std::regex_match(one, match, kSorted)) {
        const bool isKnown = std::any_of(mod.captures().begin(), mod.captures().end(), [&](const CaptureInfo& capture) {
          return capture.name == match[1] && !capture.extent.empty();
        });
        if (!isKnown)
          throw CLI::ValidationError("--assume",
                                     fmt::format("the mod captures no tensor `{}` with an axis", match[1].str()));
        proofs.nondecreasing.push_back(match[1]);
      } else if (!isBlank(one)) {
        ATTNC_TRY_AS(assumption, propertyOf(mod, options, "--assume", one));
        proofs.assumptions.push_back(*std::move(assumption));
      }
    }
  }
  return {};
}

std::string captureText(const ExampleCapture& capture) {
  const std::string index = capture.index.empty() ? "" : fmt::format("[{}]", fmt::join(capture.index, ", "));
  return fmt::format("{}{} = {}", capture.name, index, capture.value);
}

const char* nameOf(Proof::Answer answer) {
  switch (answer) {
  case Proof::Answer::Proved: return "proved";
  case Proof::Answer::Refuted: return "refuted";
  case Proof::Answer::Undecided: return "undecided";
  }
  return "";
}

std::string textOf(const Asked& asked) {
  const Proof& proof = asked.proof;
  std::string text = fmt::format("{:12}{}", nameOf(proof.answer), asked.text);
  if (!proof.by.empty()) text += fmt::format(", by {}", proof.by);
  text += '\n';
  const auto add = [&](const std::string& line) { text += fmt::format("{:12}{}\n", "", line); };
  if (!proof.why.empty()) add(proof.why);
  if (proof.answer != Proof::Answer::Refuted) return text;
  const ProblemShape& p = proof.problem;
  std::string extents =
      fmt::format("B {}, H {}, HKV {}, Q_LEN {}, KV_LEN {}", p.batch, p.qHeads, p.kvHeads, p.qLen, p.kvLen);
  for (const auto& [name, extent] : proof.extents) extents += fmt::format(", {} {}", name, extent);
  const bool isRow = asked.claim.kind == Claim::Kind::EveryRowLives;
  add(fmt::format("{}: b {}, h {}, q_idx {}{}", extents, proof.b, proof.h, proof.qIdx,
                  isRow ? "" : fmt::format(", kv_idx {}", proof.kvIdx)));
  std::vector<std::string> captures;
  for (const ExampleCapture& capture : proof.captures) captures.push_back(captureText(capture));
  if (!captures.empty()) add(fmt::format("{}", fmt::join(captures, ", ")));
  for (size_t begin = 0; begin < proof.picture.size();) {
    const size_t end = proof.picture.find('\n', begin);
    add(proof.picture.substr(begin, end - begin));
    begin = end + 1;
  }
  return text;
}

nlohmann::ordered_json jsonOf(const Asked& asked) {
  const Proof& proof = asked.proof;
  nlohmann::ordered_json json = {{"claim", asked.text}, {"answer", nameOf(proof.answer)}, {"by", proof.by}};
  if (!proof.why.empty()) json["why"] = proof.why;
  if (proof.answer != Proof::Answer::Refuted) return json;
  const ProblemShape& p = proof.problem;
  nlohmann::ordered_json extents = {
      {"B", p.batch}, {"H", p.qHeads}, {"HKV", p.kvHeads}, {"Q_LEN", p.qLen}, {"KV_LEN", p.kvLen}};
  for (const auto& [name, extent] : proof.extents) extents[name] = extent;
  nlohmann::ordered_json captures = nlohmann::ordered_json::array();
  for (const ExampleCapture& capture : proof.captures)
    captures.push_back({{"name", capture.name}, {"index", capture.index}, {"value", capture.value}});
  json["example"] = {{"extents", extents},      {"b", proof.b},          {"h", proof.h},
                     {"q_idx", proof.qIdx},     {"kv_idx", proof.kvIdx}, {"captures", captures},
                     {"picture", proof.picture}};
  return json;
}

} // namespace

void ClaimOptions::addTo(CLI::App& command) {
  command.add_option("--prove", holds, "An expression that is true for each live score; may be repeated")
      ->type_name("EXPR")
      ->allow_extra_args(false);
  command.add_option("--never", never, "An expression that is false for each live score; may be repeated")
      ->type_name("EXPR")
      ->allow_extra_args(false);
  command.add_flag("--every-row-lives", rowsLive, "Each row of q has a live score");
  command
      .add_option(
          "--same-as", sameAs,
          "A file with a mod of the same mask and the same scores. It is read\nwith the same --mod and --capture")
      ->type_name("FILE");
  command
      .add_option("--assume", assumptions,
                  "What holds for captures and extents, between semicolons:\nexpressions, or 'NAME does not decrease'")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  command.add_option("--seconds", seconds, "Time for each claim")->check(CLI::PositiveNumber)->capture_default_str();
}

void ClaimOptions::check() const {
  if (!assumptions.empty() && !areAny())
    throw CLI::ValidationError("--assume", "it needs a claim: --prove, --never, --every-row-lives or --same-as");
}

int ClaimOptions::run(const Mod& mod, const ModOptions& options, bool json) const {
  ProofOptions how{.seconds = seconds};
  if (Status read = readAssumptions(mod, options, assumptions, how); !read) return reportEither(read.error(), json);
  std::vector<Asked> all;
  const auto addProperty = [&](Claim::Kind kind, const char* option, const std::string& text) -> Status {
    ATTNC_TRY_AS(property, propertyOf(mod, options, option, text));
    all.push_back({(kind == Claim::Kind::Never ? "never " : "") + text, {kind, *std::move(property)}, {}});
    return {};
  };
  for (const std::string& text : holds)
    if (Status added = addProperty(Claim::Kind::Holds, "--prove", text); !added)
      return reportEither(added.error(), json);
  for (const std::string& text : never)
    if (Status added = addProperty(Claim::Kind::Never, "--never", text); !added)
      return reportEither(added.error(), json);
  if (rowsLive) all.push_back({"every row lives", {Claim::Kind::EveryRowLives, {}}, {}});
  if (!sameAs.empty()) {
    ParseOptions parse{.mods = options.mods, .captures = options.captures};
    auto other = Mod::load(sameAs, std::move(parse));
    if (!other) return reportEither(other.error(), json);
    const Claim::Kind kind = mod.hasScoreMod() || other->hasScoreMod() ? Claim::Kind::Same : Claim::Kind::SameMask;
    all.push_back({"same as " + sameAs, {kind, *std::move(other)}, {}});
  }
  int code = kDone;
  std::string text = fmt::format("{}\n", mod.name());
  nlohmann::ordered_json claims = nlohmann::ordered_json::array();
  for (Asked& asked : all) {
    auto proof = prove(mod, asked.claim, how);
    if (!proof) return reportEither(proof.error(), json);
    asked.proof = *std::move(proof);
    if (asked.proof.answer == Proof::Answer::Refuted) code = kModWrong;
    if (asked.proof.answer == Proof::Answer::Undecided && code == kDone) code = kEnvironmentWrong;
    text += textOf(asked);
    claims.push_back(jsonOf(asked));
  }
  const nlohmann::ordered_json object = {{"mod", mod.name()}, {"claims", claims}};
  auto status = printResult(json ? object.dump(2) + "\n" : text);
  return status ? code : report(status.error());
}

} // namespace attnc::cli
