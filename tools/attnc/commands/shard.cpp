// `attnc shard`: shows how a problem is divided among GPUs, which keys travel, and what that is predicted to cost.
#include "commands/command.h"
#include "output_file.h"
#include "problem/collect_captures.h"
#include "problem/mask_problem.h"
#include "progress.h"
#include "show/picture.h"
#include "show/shard_picture.h"
#include "terminal.h"
#include "text.h"

#include "attnc/shard.h"
#include "support/try.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnc::cli {
namespace {

constexpr size_t kMostRanks = 16, kMostIntervals = 4; // that are told as text

struct ShardCommand : ProblemOptions {
  int world = 8;
  ShardOptions options;
  double teraflops = 0, gigabytes = 0;
};

std::string intervalsText(const std::vector<ShardInterval>& intervals) {
  std::string text;
  for (size_t i = 0; i < std::min(intervals.size(), kMostIntervals); ++i)
    text += fmt::format("{}{}:{}", i ? " " : "", intervals[i].begin, intervals[i].end);
  if (intervals.size() > kMostIntervals) text += fmt::format(" and {} more", intervals.size() - kMostIntervals);
  return text.empty() ? "none" : text;
}

std::string planSizeText(const ShardPlan& plan) {
  const std::string teams =
      plan.headGroups == 1 ? "" : fmt::format(" in teams of {} that divide the heads", plan.headGroups);
  return fmt::format("Q_LEN {} x KV_LEN {} on {} {}{}; layout {}, {} {}", plan.qStarts.back(), plan.kvStarts.back(),
                     plan.world, plan.world == 1 ? "rank" : "ranks", teams, shardLayoutName(plan.layout), plan.stages,
                     plan.stages == 1 ? "stage of transfers" : "stages of transfers");
}

std::string planText(const ShardPlan& plan, const ShardOptions& options) {
  const ShardMaskPlan& mask = plan.masks[0];
  const double pairs = std::max(1.0, mask.pairs);
  std::string text = fmt::format("\n{:>4}  {:>8}  {:>7}  {:>9}  {:>9}  {:>9}  {}\n", "rank", "rows", "pairs",
                                 "receives", "sends", "ms", "rows of q");
  for (size_t rank = 0; rank < std::min(plan.ranks.size(), kMostRanks); ++rank) {
    const ShardWork& work = mask.ranks[rank];
    text += fmt::format("{:>4}  {:>8}  {:>5.1f} %  {:>9}  {:>9}  {:>9.3f}  {}\n", rank, plan.ranks[rank].rowCount(),
                        100 * work.pairs / pairs, work.keysReceived, work.keysSent, 1e3 * work.seconds,
                        intervalsText(plan.ranks[rank].rows));
  }
  if (plan.ranks.size() > kMostRanks)
    text += fmt::format("{} more ranks: --json tells all\n", plan.ranks.size() - kMostRanks);
  text += fmt::format("\nbalance     the busiest rank has {:.3f} times the mean of pairs\n", mask.imbalance);
  text += fmt::format("transfers   {:.1f} MB {}, of live keys only\n", plan.bytesReceived / 1e6,
                      plan.headGroups == 1 ? "of keys and values in all" : "in all, with heads and their rows");
  text += fmt::format("efficiency  {:.3f} predicted, with {:.0f} TFLOP/s and {:.0f} GB/s a rank\n", plan.efficiency,
                      options.flops / 1e12, options.bandwidth / 1e9);
  if (mask.evaluatedBlocks)
    text +=
        fmt::format("blocks      {} were left open by intervals, and their scores evaluated\n", mask.evaluatedBlocks);
  return text;
}

JsonReport intervalsJson(const std::vector<ShardInterval>& intervals) {
  JsonReport json = JsonReport::array();
  for (const ShardInterval& interval : intervals) json.push_back({interval.begin, interval.end});
  return json;
}

std::string planJson(const ShardPlan& plan, const Mod& mod, const HostOperands& operands, const std::string& output) {
  const ShardMaskPlan& mask = plan.masks[0];
  JsonReport json{{"ok", true},
                  {"mod", mod.name()},
                  {"problem", problemJson(operands.problem)},
                  {"values", valuesJson(operands.captures)},
                  {"world", plan.world},
                  {"headGroups", plan.headGroups},
                  {"layout", shardLayoutName(plan.layout)},
                  {"stages", plan.stages},
                  {"pairs", mask.pairs},
                  {"imbalance", mask.imbalance},
                  {"bytesReceived", plan.bytesReceived},
                  {"efficiency", plan.efficiency},
                  {"evaluatedBlocks", mask.evaluatedBlocks},
                  {"ranks", JsonReport::array()}};
  for (size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    const ShardWork& work = mask.ranks[rank];
    JsonReport one{{"rows", intervalsJson(plan.ranks[rank].rows)},
                   {"keys", intervalsJson(plan.ranks[rank].keys)},
                   {"pairs", work.pairs},
                   {"keysReceived", work.keysReceived},
                   {"keysSent", work.keysSent},
                   {"seconds", work.seconds},
                   {"pieces", JsonReport::array()}};
    for (const ShardPiece& piece : work.pieces)
      one["pieces"].push_back(
          JsonReport{{"stage", piece.stage}, {"from", piece.from}, {"keys", {piece.keys.begin, piece.keys.end}}});
    json["ranks"].push_back(std::move(one));
  }
  if (!output.empty()) json["output"] = output;
  return jsonText(json);
}

Status drawPlan(const ShardPlan& plan, const Mod& mod, const HostOperands& operands, const ShardCommand& command) {
  const BlockMaskShape shape = smallestMask(mod, operands.problem, command.options.block, command.options.block);
  ATTNC_TRY_AS(maps, mapBlocks(mod, operands.captures, operands.problem, shape));
  if (maps->empty()) return Error::environment("the problem has no scores", "give it some: --shape");
  std::string title = titleOf(mod, operands.captures);
  if (maps->size() > 1) title += "; the mask of the first head";
  const std::vector<std::string> headings{
      title, planSizeText(plan),
      fmt::format("strong: keys of the rank itself; light: keys that travel; efficiency {:.3f}", plan.efficiency)};
  return writeWholeFile(command.output, {svgOf(shardPicture(plan, maps->front(), headings), title)});
}

Status runShard(ShardCommand& command) {
  if (command.options.headDimV == 0) command.options.headDimV = command.options.headDim;
  refuseUnlessSvg(command.output);
  if (command.json && command.output == "-")
    throw wrongUsage("--json", "stdout would carry a picture and its facts", "give the picture a file: -o shards.svg");
  refuseOntoInput("-o", command.output, {command.mod.path, command.input});
  if (command.teraflops > 0) command.options.flops = command.teraflops * 1e12;
  if (command.gigabytes > 0) command.options.bandwidth = command.gigabytes * 1e9;
  ATTNC_TRY_AS(loaded, loadMod(command));
  const Mod& mod = *loaded;
  ATTNC_TRY_AS(operands, findMaskProblem(mod, command, Elements::OfMask, /*withScores=*/false));
  std::optional<Progress> progress(std::in_place, "looking at the mask");
  ATTNC_TRY_AS(plan, ShardPlan::make({{&mod, &operands->captures}}, operands->problem, command.world, command.options));
  progress.reset();
  if (!command.output.empty()) ATTNC_TRY(drawPlan(*plan, mod, *operands, command));
  if (command.json) return printResult(planJson(*plan, mod, *operands, command.output));
  if (!command.output.empty()) return {};
  return printResult(titleOf(mod, operands->captures) + "\n" + planSizeText(*plan) + "\n" +
                     planText(*plan, command.options));
}

ShardLayout parseLayout(const std::string& text) {
  for (const ShardLayout layout :
       {ShardLayout::Auto, ShardLayout::Contiguous, ShardLayout::ZigZag, ShardLayout::Greedy})
    if (text == shardLayoutName(layout)) return layout;
  throw wrongUsage("--layout", inQuotes(text) + " is none of auto, contiguous, zigzag, greedy",
                   "--layout auto chooses by prediction");
}

} // namespace

void addShard(CLI::App& parent, int& exitCode) {
  auto [app, command] = addCommand<ShardCommand>(
      parent, exitCode, "shard", "Divide a problem among GPUs: who owns what, and which keys travel", runShard);
  addMaskProblem(app, command);
  addOption(app, "--world", command.world, "N", "Number of ranks, one GPU each: 1 to 65536")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536).description(""));
  addParsed(
      app, "--layout", [&layout = command.options.layout](const std::string& text) { layout = parseLayout(text); },
      "NAME", "How rows are dealt: contiguous, zigzag, greedy, or auto, the default: the best by prediction");
  addOption(app, "--head-groups", command.options.headGroups, "N",
            "Groups of heads: as many neighbouring ranks divide the heads of their rows among themselves")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536).description(""));
  addOption(app, "--stages", command.options.stages, "N",
            "Most stages of transfers, 1 to 32. Default: chosen by prediction")
      ->check(CLI::Range(1, 32).description(""));
  addOption(app, "--head-dim", command.options.headDim, "N", "Columns of q, k and v")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 16).description(""))
      ->each([&headDimV = command.options.headDimV](const std::string&) { headDimV = 0; });
  app.add_flag("--backward", command.options.backward, "Predict a backward pass: gradients of keys travel back");
  addOption(app, "--flops", command.teraflops, "NUMBER", "TFLOP/s of a rank on live blocks. Default: 650")
      ->check(CLI::PositiveNumber);
  addOption(app, "--bandwidth", command.gigabytes, "NUMBER",
            "GB/s that a rank receives while it sends as many. Default: 350")
      ->check(CLI::PositiveNumber);
  addFile(app, "-o,--output", command.output,
          "A picture instead, an SVG: who computes what, and whose keys travel. -: stdout");
  app.add_flag("--json", command.json,
               "For programs: the whole plan, every piece of keys with its stage and its owner");
  app.footer(
      R"(Each rank owns rows of q, k and v, and computes all scores of its rows. Live keys and values of other ranks
travel to it, in stages: the attention of a stage hides the transfer of the next. The plan comes from the mask's
intervals, at any length. It needs no GPU, and moves nothing.
Predictions assume that ranks receive and send at the same time, and that two stages have buffers.

Examples:
  attnc shard causal.py --world 8 --shape 1,64,8,65536,65536
  attnc shard document.py --in batch.safetensors --world 16 -o shards.svg
  attnc shard sliding_window.py --set window=1023 --world 8 --shape 1,64,8,1000000,1000000 --json)");
}

} // namespace attnc::cli
