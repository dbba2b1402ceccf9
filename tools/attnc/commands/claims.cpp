#include "commands/claims.h"

#include "commands/command.h"
#include "terminal.h"
#include "text.h"

#include "attnc/prove.h"
#include "support/try.h"

#include <fmt/format.h>

#include <tuple>

namespace attnc::cli {
namespace {

constexpr const char* kNeedsClaim = "it needs a claim: --prove, --never, --every-row-lives or --same-as";

struct Asked {
  std::string text;
  Claim claim;
  Proof proof;
};

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
  std::string extents = extentsText(proof.problem);
  for (const auto& [name, extent] : proof.extents) extents += fmt::format(", {} {}", name, extent);
  if (proof.kvLength) extents += fmt::format(", kv_length {}", *proof.kvLength);
  if (proof.qOffset) extents += fmt::format(", q_offset {}", *proof.qOffset);
  const bool isRow = asked.claim.kind == Claim::Kind::EveryRowLives;
  add(fmt::format("{}: b {}, h {}, q_idx {}{}", extents, proof.b, proof.h, proof.qIdx,
                  isRow ? "" : fmt::format(", kv_idx {}", proof.kvIdx)));
  std::vector<std::string> captures;
  for (const ExampleCapture& capture : proof.captures) captures.push_back(captureText(capture));
  if (!captures.empty()) add(fmt::format("{}", fmt::join(captures, ", ")));
  for (const TextLine& line : proof.deciding) add(fmt::format("line {}: {}", line.number, line.text));
  if (proof.pictureQIdx != proof.qOffset.value_or(0) || proof.pictureKvIdx)
    add(fmt::format("from q_idx {}, kv_idx {}:", proof.pictureQIdx, proof.pictureKvIdx));
  if (!proof.picture.empty())
    for (const std::string& line : CLI::detail::split(proof.picture, '\n')) add(line);
  return text;
}

/// Throws what is wrong with the text of an option, which is no verdict on the mod. Returns errors of attnc.
Error refused(const char* option, Error error) {
  if (error.blame != Blame::Internal) throw wrongUsage(option, CLI::detail::rtrim(error.message), error.remedy);
  return error;
}

JsonReport jsonOf(const Asked& asked) {
  JsonReport json = {{"claim", asked.text}};
  json.update(JsonReport::parse(toJson(asked.proof)));
  return json;
}

} // namespace

void ClaimOptions::addTo(CLI::App& command) {
  addRepeated(command, "--prove", holds, "EXPR", "An expression that is true for each live score; may be repeated");
  addRepeated(command, "--never", never, "EXPR", "An expression that is false for each live score; may be repeated");
  command.add_flag("--every-row-lives", rowsLive, "Each row of q has a live score");
  addFile(command, "--same-as", sameAs,
          "A file with a mod of the same mask and the same scores. It is read\nwith the same --mod and --capture");
  addRepeated(command, "--assume", assumptions, "TEXT",
              "What holds for captures and extents, between semicolons:\nexpressions, or 'NAME does not decrease'");
  command.add_flag("--kv-lengths", sequences.kvLengths,
                   "The claims are about launches with a KV length for each sequence, as with a cache");
  addChoice(command, "--q-offset", sequences.qOffset, "FROM", {"none", "lengths", "tensor"},
            "Where queries stand in these launches. none: from 0 on; lengths: the last query at the last\nkey (default "
            "with --kv-lengths); tensor: anywhere at keys");
  command.add_option("--seconds", seconds, "Time for each claim")->check(CLI::PositiveNumber)->capture_default_str();
}

void ClaimOptions::check() const {
  if (!assumptions.empty() && !areAny()) throw CLI::ValidationError("--assume", kNeedsClaim);
  if (sequences.kvLengths && !areAny()) throw CLI::ValidationError("--kv-lengths", kNeedsClaim);
  if (!sequences.qOffset.empty() && !areAny()) throw CLI::ValidationError("--q-offset", kNeedsClaim);
}

Status ClaimOptions::run(const Mod& mod, const ModOptions& options, Verdicts& verdicts) const {
  ProofOptions how{.seconds = seconds, .kvLengths = sequences.kvLengths, .offsets = sequences.offsets()};
  for (const std::string& text : assumptions)
    if (Status added = addAssumptions(mod, text, how, "<--assume>"); !added)
      return refused("--assume", std::move(added).error());
  std::vector<Asked> all;
  for (const auto& [kind, option, texts] :
       {std::tuple(Claim::Kind::Holds, "--prove", &holds), {Claim::Kind::Never, "--never", &never}})
    for (const std::string& text : *texts) {
      auto property = propertyOf(mod, text, fmt::format("<{}>", option));
      if (!property) return refused(option, std::move(property).error());
      all.push_back({(kind == Claim::Kind::Never ? "never " : "") + text, {kind, *std::move(property)}, {}});
    }
  if (rowsLive) all.push_back({"every row lives", {Claim::Kind::EveryRowLives, {}}, {}});
  if (!sameAs.empty()) {
    ParseOptions parse{.mods = options.mods, .captures = options.captures};
    ATTNC_TRY_AS(other, Mod::load(sameAs, std::move(parse)));
    const auto isMask = [](const Mod& one) { return !one.hasScoreMod() && !one.hasProbMod() && !one.hasSinkMod(); };
    const Claim::Kind kind = isMask(mod) && isMask(*other) ? Claim::Kind::SameMask : Claim::Kind::Same;
    all.push_back({"same as " + sameAs, {kind, *std::move(other)}, {}});
  }
  JsonReport claims = JsonReport::array();
  for (Asked& asked : all) {
    ATTNC_TRY_AS(proof, prove(mod, asked.claim, how));
    asked.proof = *std::move(proof);
    if (asked.proof.answer == Proof::Answer::Refuted) verdicts.add(kModWrong);
    if (asked.proof.answer == Proof::Answer::Undecided) verdicts.add(kEnvironmentWrong);
    verdicts.text += textOf(asked);
    claims.push_back(jsonOf(asked));
  }
  verdicts.json["claims"] = std::move(claims);
  return {};
}

} // namespace attnc::cli
