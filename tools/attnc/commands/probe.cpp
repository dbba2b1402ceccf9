// `attnc probe`: follows one score through a mod.
#include "commands/command.h"
#include "problem/mask_problem.h"
#include "text.h"

#include "attnc/explain.h"
#include "support/element.h"
#include "support/readable.h"
#include "support/try.h"

#include <fmt/format.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>

#include <cmath>
#include <optional>

namespace attnc::cli {
namespace {

struct ProbeOptions : ProblemOptions {
  std::vector<int64_t> at; // b, h, q_idx, kv_idx
  std::optional<double> score;
};

void checkPlace(const ProbeOptions& options, const ProblemShape& problem) {
  const std::pair<const char*, int64_t> axes[]{
      {"B", problem.batch}, {"H", problem.qHeads}, {"Q_LEN", problem.qLen}, {"KV_LEN", problem.kvLen}};
  constexpr const char* kNames[]{"b", "h", "q_idx", "kv_idx"};
  for (size_t axis = 0; axis < 4; ++axis)
    if (options.at[axis] >= axes[axis].second)
      throw wrongUsage("--at",
                       fmt::format("{} {} is not there: {} is {}", kNames[axis], options.at[axis], axes[axis].first,
                                   axes[axis].second),
                       "places count from 0: --at 0,0,0,0 is the first score; --shape gives a larger problem");
}

/// The input of score_mod, and the line that says where it comes from.
struct GivenScore {
  float value = 0;
  std::string text;
};

/// Returns scale * q . k of the file, in double precision as in the reference.
Expected<GivenScore> dotProduct(const HostOperands& operands, const ProbeOptions& options) {
  const HostTensor &q = operands.q, &k = operands.k;
  if (q.shape[0] != operands.problem.batch || q.shape[1] != operands.problem.qHeads ||
      q.shape[2] != operands.problem.qLen || k.shape[2] != operands.problem.kvLen)
    return Error::environment("--shape is not that of the file's q and k",
                              "leave it out, or give the score with --score");
  const int64_t dim = q.shape[3], kvHead = options.at[1] / (operands.problem.qHeads / operands.problem.kvHeads);
  const int64_t qRow = (options.at[0] * q.shape[1] + options.at[1]) * q.shape[2] + options.at[2];
  const int64_t kRow = (options.at[0] * k.shape[1] + kvHead) * k.shape[2] + options.at[3];
  double sum = 0;
  for (int64_t d = 0; d < dim; ++d)
    sum += double(readElement(q.bytes.data(), q.dtype, qRow * dim + d).real) *
           double(readElement(k.bytes.data(), k.dtype, kRow * dim + d).real);
  const double scale = options.scale ? *options.scale : 1 / std::sqrt(double(dim));
  GivenScore score{float(scale * sum), ""};
  score.text = fmt::format("score     {}   {:g} * ({:g}): scale * q[{}, {}, {}] . k[{}, {}, {}]\n", score.value, scale,
                           sum, options.at[0], options.at[1], options.at[2], options.at[0], kvHead, options.at[3]);
  return score;
}

Expected<GivenScore> givenScore(const Mod& mod, const HostOperands& operands, const ProbeOptions& options) {
  if (options.score) return GivenScore{float(*options.score), fmt::format("score     {}\n", float(*options.score))};
  if (!operands.q.shape.empty() && !operands.k.shape.empty()) return dotProduct(operands, options);
  if (scoreFactsOf(mod).readsScore)
    throw wrongUsage("--score", "score_mod reads the score, and none is given",
                     "give one, --score 1.5, or q and k in a file, --in qkv.safetensors");
  return GivenScore{};
}

/// Returns each line of the text that the function needs, and under it the values that it computes, in order of
/// computation. If `text` is empty, only values are shown.
std::string functionText(const char* name, const ProbedFunction& function, const std::string& text) {
  constexpr size_t kExpressionWidth = 44;
  llvm::SmallVector<llvm::StringRef, 64> lines;
  llvm::StringRef(text).split(lines, '\n');
  std::string result = fmt::format("\n{}\n", name);
  int last = 0;
  for (const ProbedValue& value : function.values) {
    if (value.line && value.line != last && size_t(value.line) <= lines.size() && !text.empty())
      result += fmt::format("{:>4} | {}\n", value.line, readable(lines[size_t(value.line - 1)].rtrim()));
    last = value.line;
    result += fmt::format("{:>8}{:<{}} = {}{}{}\n", "", value.expression, kExpressionWidth, value.value,
                          value.read.empty() ? "" : "   ", value.read);
  }
  return result + fmt::format("  gives {}\n", function.result);
}

std::string resultText(const Probe& probed, bool hasScore) {
  if (probed.isLive) return fmt::format("result    lives{}\n", hasScore ? ", score " + probed.score : "");
  const bool byMaskMod = probed.maskMod && probed.maskMod->result == "False";
  return fmt::format("result    masked: {}; the score takes no part\n",
                     byMaskMod ? "mask_mod gives False" : "score_mod gives -inf");
}

JsonReport functionJson(const ProbedFunction& function) {
  JsonReport values = JsonReport::array();
  for (const ProbedValue& value : function.values) {
    JsonReport one{{"expression", value.expression}, {"value", value.value}};
    if (value.line) one["line"] = value.line;
    if (!value.read.empty()) one["read"] = value.read;
    values.push_back(std::move(one));
  }
  return {{"values", std::move(values)}, {"result", function.result}};
}

/// Tells of a score for programs. Results of operations are text, as Python prints them.
std::string probeJson(const Mod& mod, const HostOperands& operands, const ScorePlace& place, bool hasScore,
                      const Probe& probed) {
  JsonReport json{{"ok", true},
                  {"mod", mod.name()},
                  {"problem", problemJson(operands.problem)},
                  {"values", valuesJson(operands.captures)},
                  {"at", {{"b", place.b}, {"h", place.h}, {"q_idx", place.q}, {"kv_idx", place.kv}}}};
  if (hasScore) json["given"] = place.score;
  if (probed.scoreMod) json["scoreMod"] = functionJson(*probed.scoreMod);
  if (probed.maskMod) json["maskMod"] = functionJson(*probed.maskMod);
  if (probed.probMod) json["probMod"] = functionJson(*probed.probMod);
  if (probed.sinkMod) json["sinkMod"] = functionJson(*probed.sinkMod);
  json["isLive"] = probed.isLive;
  if (probed.isLive && (probed.scoreMod || hasScore)) json["score"] = probed.score;
  return jsonText(json);
}

Status runProbe(ProbeOptions& options) {
  ATTNC_TRY_AS(loaded, loadMod(options));
  const Mod& mod = *loaded;
  ATTNC_TRY_AS(operands, findMaskProblem(mod, options, Elements::All, /*withScores=*/!options.score));
  checkPlace(options, operands->problem);
  ATTNC_TRY_AS(given, givenScore(mod, *operands, options));
  const ScorePlace place{options.at[0], options.at[1], options.at[2], options.at[3], given->value};
  ATTNC_TRY_AS(probed, attnc::probe(mod, operands->captures, operands->problem, place));

  if (options.json) return printResult(probeJson(mod, *operands, place, !given->text.empty(), *probed));
  std::string text =
      fmt::format("{} at b = {}, h = {}, q_idx = {}, kv_idx = {}\n", mod.name(), place.b, place.h, place.q, place.kv);
  if (std::string values = valuesText(operands->captures); !values.empty()) text += "values    " + values + "\n";
  text += given->text;
  if (probed->scoreMod)
    text += functionText(mod.hasWeightMod() ? "weight_mod" : "score_mod", *probed->scoreMod, mod.text());
  if (probed->maskMod) text += functionText("mask_mod", *probed->maskMod, mod.text());
  if (probed->sinkMod) text += functionText("sink_mod, of the row", *probed->sinkMod, mod.text());
  if (probed->probMod) text += functionText("prob_mod, of a weight of 1", *probed->probMod, mod.text());
  return printResult(text + "\n" + resultText(*probed, probed->scoreMod || !given->text.empty()));
}

} // namespace

void addProbe(CLI::App& app, int& exitCode) {
  auto [command, options] =
      addCommand<ProbeOptions>(app, exitCode, "probe", "Follow one score through a mod, value by value", runProbe);
  addMaskProblem(command, options);
  addParsed(
      command, "--at",
      [&at = options.at](const std::string& text) { at = parseExtents("--at", text, "b,h,q_idx,kv_idx"); },
      "b,h,q_idx,kv_idx", "Which score")
      ->required();
  command.add_option("--score", options.score, "What score_mod is given; else scale * q . k of the file's q and k");
  command.add_option("--scale", options.scale, "Factor of q k^T; default 1 / sqrt(D)")->check(checkScale);
  command.add_flag("--json", options.json, "One JSON object instead, for programs");
  command.footer(
      R"(Shows each line of the mod that the score needs, and what its operations give, in f32 and int32 as kernels
compute; which elements of captured tensors are read, and whether an index lies outside and is clamped; what
score_mod and mask_mod return. Where an expression is long, values stand for its inner parts.

Examples:
  attnc probe sliding_window.py --set window=1000 --at 0,0,1500,200
  attnc probe alibi.py --in qkv.safetensors --at 0,3,17,4
  attnc probe softcap.py --set cap=30 --at 0,0,9,5 --score 41.5)");
}

} // namespace attnc::cli
