// `attnc mask`: shows the block map of a mask, in the terminal or as a picture.
#include "commands/command.h"
#include "output_file.h"
#include "problem/collect_captures.h"
#include "problem/mask_problem.h"
#include "progress.h"
#include "show/mask_map.h"
#include "show/mask_picture.h"
#include "show/mask_text.h"
#include "show/picture.h"
#include "show/query_map.h"
#include "show/score_map.h"
#include "show/score_picture.h"
#include "show/score_text.h"
#include "terminal.h"
#include "text.h"

#include "support/try.h"

#include <fmt/format.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>

#include <cmath>
#include <optional>

namespace attnc::cli {
namespace {

/// More blocks would take minutes and gigabytes.
constexpr int64_t kMostBlocks = int64_t(1) << 27;
constexpr size_t kMostTextMaps = 4;
constexpr size_t kMostScoreMaps = 4096; // evaluated, that is
constexpr int64_t kMostInBox = 256;     // tokens
constexpr double kCurveRange = 100;
constexpr int kCurvePoints = 201;

struct MaskOptions : ProblemOptions {
  int qBlock = 128, kvBlock = 128;
  std::optional<int64_t> batch, head;
  std::optional<std::pair<int64_t, int64_t>> rows, columns; // half open
  std::vector<std::vector<int64_t>> queries;                // coordinates, or one position
  std::vector<int64_t> box;                                 // extents of boxes of queries
  bool showsScores = false;
  std::optional<double> score; ///< what score_mod is given
};

/// Parses "A:B", half open; either may be missing.
std::pair<int64_t, int64_t> parseRange(const char* option, const std::string& text) {
  const auto fail = [&] {
    return wrongUsage(option, inQuotes(text) + " is no range FIRST:END",
                      std::string("e.g. ") + option + " 0:256; END is not part of it");
  };
  const size_t colon = text.find(':');
  if (colon == std::string::npos) throw fail();
  const std::string first = text.substr(0, colon), end = text.substr(colon + 1);
  std::pair<int64_t, int64_t> range{0, INT64_MAX};
  if (!first.empty() && !parseInteger(first, range.first)) throw fail();
  if (!end.empty() && !parseInteger(end, range.second)) throw fail();
  if (range.first < 0 || range.first >= range.second) throw fail();
  return range;
}

/// Clamps a range to a length.
std::pair<int64_t, int64_t> within(const char* option, const std::optional<std::pair<int64_t, int64_t>>& range,
                                   int64_t length) {
  if (!range) return {0, length};
  if (range->first >= length)
    throw wrongUsage(option, fmt::format("{} lies behind the end, which is {}", range->first, length),
                     fmt::format("begin before it, {} 0:{}, or take a longer --shape", option, length));
  return {range->first, std::min(range->second, length)};
}

/// Returns the part of the scores to show.
MaskRegion regionOf(const MaskOptions& options, const ProblemShape& problem) {
  const auto [qBegin, qEnd] = within("--rows", options.rows, problem.qLen);
  const auto [kvBegin, kvEnd] = within("--columns", options.columns, problem.kvLen);
  return {qBegin, qEnd, kvBegin, kvEnd};
}

/// Returns the heads to show: the chosen ones, or all `batch` x `heads` that may differ.
Heads headsShown(const MaskOptions& options, int64_t batch, int64_t heads, const ProblemShape& problem) {
  const auto check = [](const char* option, std::optional<int64_t> chosen, int64_t count) {
    if (chosen && *chosen >= count)
      throw wrongUsage(option, fmt::format("{} is not there: the problem has {}", *chosen, count),
                       fmt::format("count from 0, {} 0, or take a larger --shape", option));
  };
  check("--batch", options.batch, problem.batch);
  check("--head", options.head, problem.qHeads);
  Heads shown;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h)
      if ((!options.batch || batch == 1 || b == *options.batch) && (!options.head || heads == 1 || h == *options.head))
        shown.emplace_back(b, h);
  return shown;
}

/// Returns the title of a mask, which names only values that the mask reads.
std::string maskTitle(const Mod& mod, const Captures& captures) {
  const std::set<std::string> needed = capturesOfMask(mod);
  Captures shown;
  for (const auto& [name, value] : captures.all())
    if (needed.count(name)) std::visit([&, &name = name](auto known) { shown.set(name, known); }, value);
  return titleOf(mod, shown) + (mod.hasMaskMod() ? "" : " (the mod masks nothing)");
}

std::string lengthsText(const ProblemShape& problem) {
  return fmt::format("Q_LEN {} x KV_LEN {}", problem.qLen, problem.kvLen);
}

/// Returns "; shown are rows 0 to 9 and columns 0 to 9" if that is a part.
std::string partText(const MaskRegion& region, const ProblemShape& problem) {
  if (region.qEnd - region.qBegin == problem.qLen && region.kvEnd - region.kvBegin == problem.kvLen) return "";
  return fmt::format("; shown are rows {} to {} and columns {} to {}", region.qBegin, region.qEnd - 1, region.kvBegin,
                     region.kvEnd - 1);
}

std::string maskSizeText(const BlockMaskShape& shape, const ProblemShape& problem) {
  const std::string scope = scopeText(shape, problem);
  return fmt::format("{}, {} x {} blocks of {} x {}{}", lengthsText(problem), shape.qBlocks(), shape.kvBlocks(),
                     shape.qBlock, shape.kvBlock, scope.empty() ? "" : "; " + scope);
}

Status checkSize(const BlockMaskShape& shape) {
  const double blocks = double(shape.batch) * double(shape.heads) * double(shape.qBlocks()) * double(shape.kvBlocks());
  if (blocks <= double(kMostBlocks)) return {};
  return Error::environment(
      fmt::format("the mask has {:.3g} blocks, of which a map shows at most {}", blocks, kMostBlocks),
      "choose a smaller --shape, or --block 256; `attnc explain` counts without a map");
}

/// Draws the keys that single queries see, in space.
Status drawQueries(const Mod& mod, const MaskOptions& options) {
  ATTNC_TRY_AS(operands, findMaskProblem(mod, options, Elements::OfMask, /*withScores=*/false));
  const ProblemShape& problem = operands->problem;
  if (problem.batch == 0 || problem.qHeads == 0 || problem.qLen == 0)
    return Error::environment("the problem has no queries", "give it some: --shape");
  const BlockMaskShape shape = smallestMask(mod, problem, options.qBlock, options.kvBlock);
  const auto [b, h] = headsShown(options, shape.batch, shape.heads, problem).front();
  ATTNC_TRY_AS(maps, queryMaps(mod, operands->captures, problem, options.queries, b, h, options.box));
  std::string title = maskTitle(mod, operands->captures);
  if (shape.heads > 1) title += fmt::format("; head {}", h);
  if (shape.batch > 1) title += fmt::format("; batch entry {}", b);
  if (options.output.empty()) {
    const int64_t columns = maps->front().extents[2], room = terminalCells().columns;
    if (columns > room)
      return Error::environment(fmt::format("the grid is {} keys wide, of which {} have room", columns, room),
                                "-o FILE.svg draws it");
    return printResult(title + "\n" + queryText(*maps));
  }
  return writeWholeFile(options.output, {svgOf(queryPicture(*maps, {title}), title)});
}

/// Tells of a mask for programs: its blocks in the region, and which heads of it look the same. If a picture was
/// written, its file.
std::string maskJson(const Mod& mod, const HostOperands& operands, const BlockRuns& mask, const MaskRegion& region,
                     const BlockCounts& counts, const std::vector<LikeHeads>& groups, const std::string& output) {
  const BlockMaskShape& shape = mask.shape();
  JsonReport json{{"ok", true},
                  {"mod", mod.name()},
                  {"problem", problemJson(operands.problem)},
                  {"values", valuesJson(operands.captures)},
                  {"block", {shape.qBlock, shape.kvBlock}},
                  {"batch", shape.batch},
                  {"heads", shape.heads},
                  {"qBlocks", shape.qBlocks()},
                  {"kvBlocks", shape.kvBlocks()},
                  {"rows", {region.qBegin, region.qEnd}},
                  {"columns", {region.kvBegin, region.kvEnd}},
                  {"blocks", counts.all},
                  {"full", counts.full},
                  {"partial", counts.live - counts.full},
                  {"empty", counts.all - counts.live},
                  {"evaluated", mask.evaluatedBlocks()},
                  {"likeHeads", JsonReport::array()}};
  for (const LikeHeads& group : groups) json["likeHeads"].push_back(group.heads);
  if (!output.empty()) json["output"] = output;
  return jsonText(json);
}

Status draw(const Mod& mod, const MaskOptions& options) {
  ATTNC_TRY_AS(operands, findMaskProblem(mod, options, Elements::OfMask, /*withScores=*/false));
  const ProblemShape& problem = operands->problem;
  const BlockMaskShape shape = smallestMask(mod, problem, options.qBlock, options.kvBlock);
  const Heads heads = headsShown(options, shape.batch, shape.heads, problem);
  const MaskRegion region = regionOf(options, problem);
  ATTNC_TRY(checkSize(shape));
  std::optional<Progress> progress(std::in_place, "looking at the mask");
  ATTNC_TRY_AS(mask, BlockRuns::build(mod, operands->captures, problem, shape));
  ATTNC_TRY_AS(reader, MaskReader::create(mod, operands->captures, problem));
  const bool asText = options.output.empty() && !options.json;
  const CellLimits limits = asText ? terminalCells() : pictureCells();
  const std::vector<LikeHeads> groups = alike(heads, asText ? kMostTextMaps : kMostPanels, [&](int64_t b, int64_t h) {
    return mapOf(*mask, *reader, b, h, region, limits);
  });
  const BlockCounts counts = countBlocks(*mask, heads, region);
  progress.reset();
  const std::string title = maskTitle(mod, operands->captures);
  std::string size = maskSizeText(shape, problem);
  if (std::string part = partText(region, problem); !part.empty()) size += part + ", and only these are counted";
  if (asText)
    return printResult(title + "\n" + size + "\n\n" +
                       mapInColor(mapText(groups, shape) + "\n" + sharesText(groups.front().map, counts)));
  if (!options.output.empty())
    ATTNC_TRY(writeWholeFile(options.output,
                             {svgOf(maskPicture(shape, groups, counts, {title, size}), title + "; " + size)}));
  return options.json ? printResult(maskJson(mod, *operands, *mask, region, counts, groups, options.output)) : Status();
}

/// Draws what score_mod makes of scores that it tells apart by nothing else.
Status drawCurve(const MaskReader& reader, const MaskOptions& options, const std::string& title) {
  const auto curve = scoreCurve(reader, options.score ? std::abs(*options.score) : kCurveRange, kCurvePoints);
  if (options.output.empty()) return printResult(title + "\n\n" + curveText(curve));
  return writeWholeFile(options.output, {svgOf(curvePicture(curve, {title}), title)});
}

/// Draws what score_mod makes of one score at all positions; without one, what prob_mod makes of a weight; without
/// both, the sinks of rows.
Status drawScores(const Mod& mod, const MaskOptions& options) {
  const Mapped mapped = mod.hasScoreMod() ? Mapped::Scores : mod.hasProbMod() ? Mapped::Weights : Mapped::Sinks;
  if (mapped == Mapped::Sinks && !mod.hasSinkMod())
    return Error::environment("the mod has no score_mod: scores stay as they are",
                              "without --scores its mask is drawn");
  ATTNC_TRY_AS(operands, findMaskProblem(mod, options, Elements::All, /*withScores=*/false));
  const ProblemShape& problem = operands->problem;
  const std::string title = titleOf(mod, operands->captures);
  ATTNC_TRY_AS(reader, MaskReader::create(mod, operands->captures, problem));
  const ScoreFacts facts = scoreFactsOf(mod);
  if (facts.readsScore && !facts.readsPlace && mapped == Mapped::Scores) return drawCurve(*reader, options, title);
  if (problem.batch == 0 || problem.qHeads == 0 || problem.qLen == 0 || problem.kvLen == 0)
    return Error::environment("the problem has no scores", "give it some: --shape");
  const Heads heads = headsShown(options, problem.batch, problem.qHeads, problem);
  if (heads.size() > kMostScoreMaps)
    return Error::environment(
        fmt::format("there are scores of {} heads to look at, of at most {}", heads.size(), kMostScoreMaps),
        "choose some: --batch and --head");
  const MaskRegion region = regionOf(options, problem);
  const auto score = float(options.score.value_or(mapped == Mapped::Weights ? 1 : 0));
  const bool asText = options.output.empty();
  std::optional<Progress> progress(std::in_place, "looking at the scores");
  const CellLimits limits = asText ? terminalCells() : scorePictureCells();
  const std::vector<LikeScores> groups = alike(heads, asText ? kMostTextMaps : kMostPanels, [&](int64_t b, int64_t h) {
    return scoreMapOf(*reader, b, h, region, limits, score, mapped);
  });
  progress.reset();
  const ScoreScale scale(groups, score);
  const BlockMaskShape shape{.batch = problem.batch, .heads = problem.qHeads};
  std::string size = fmt::format("{}{}; ", lengthsText(problem), partText(region, problem));
  size += mapped == Mapped::Sinks
              ? "the sinks of rows"
              : fmt::format("every {} was {}", mapped == Mapped::Weights ? "weight" : "score", numberText(score));
  if (groups.size() == 1 && heads.size() > 1) size += "; the same in all heads";
  if (asText) return printResult(title + "\n" + size + "\n\n" + scoreText(groups, scale, shape));
  return writeWholeFile(options.output, {svgOf(scorePicture(groups, scale, shape, {title, size},
                                                            mapped == Mapped::Sinks     ? "sink of the row"
                                                            : mapped == Mapped::Weights ? "weight after prob_mod"
                                                                                        : "score after score_mod"),
                                               title + "; " + size)});
}

Status runMask(MaskOptions& options) {
  refuseUnlessSvg(options.output);
  if (options.json && options.output == "-")
    throw wrongUsage("--json", "stdout would carry a picture and its facts", "give the picture a file: -o mask.svg");
  refuseOntoInput("-o", options.output, {options.mod.path, options.input});
  ATTNC_TRY_AS(mod, loadMod(options));
  if (!options.box.empty() && options.queries.empty())
    throw wrongUsage("--box", "it is for --query", "add the query that the box holds: --query 2,3");
  if (options.score && !options.showsScores) throw wrongUsage("--score", "it is for --scores", "add --scores");
  if (options.showsScores) return drawScores(*mod, options);
  return options.queries.empty() ? draw(*mod, options) : drawQueries(*mod, options);
}

/// Parses whole numbers with `between` between them, three at the most. Empty if the text is anything else.
std::vector<int64_t> parseNumbers(const std::string& text, char between) {
  llvm::SmallVector<llvm::StringRef, 3> parts;
  llvm::StringRef(text).split(parts, between);
  std::vector<int64_t> numbers;
  for (llvm::StringRef part : parts)
    if (!parseInteger(part, numbers.emplace_back()) || numbers.size() > 3) return {};
  return numbers;
}

/// Parses "3,4": coordinates, or one position.
std::vector<int64_t> parseQuery(const std::string& text) {
  const std::vector<int64_t> numbers = parseNumbers(text, ',');
  if (!numbers.empty()) return numbers;
  throw wrongUsage("--query", inQuotes(text) + " is neither a position nor coordinates",
                   "a position, --query 12, or coordinates on the grid, --query 3,4");
}

/// Parses "8x8", or "2x8x8".
std::vector<int64_t> parseBox(const std::string& text) {
  const std::vector<int64_t> extents = parseNumbers(text, 'x');
  int64_t tokens = extents.empty() ? 0 : 1;
  for (int64_t extent : extents) tokens = extent > 0 && extent <= kMostInBox ? tokens * extent : 0;
  if (tokens > 0 && tokens <= kMostInBox) return extents;
  throw wrongUsage("--box", inQuotes(text) + " is no box of up to 256 tokens", "give its extents: 8x8 or 2x8x8");
}

/// Parses "128", or "64,256": rows and columns.
void parseBlock(MaskOptions& options, const std::string& text) {
  const bool isOne = text.find(',') == std::string::npos;
  const std::vector<int64_t> sides = parseExtents("--block", text, isOne ? "N" : "Q,KV");
  for (int64_t side : sides)
    if (side != 64 && side != 128 && side != 256)
      throw wrongUsage("--block", inQuotes(text) + " is no block", "sides are 64, 128 or 256: --block 128,64");
  options.qBlock = int(sides.front());
  options.kvBlock = int(sides.back());
}

} // namespace

void addMask(CLI::App& app, int& exitCode) {
  auto [command, options] =
      addCommand<MaskOptions>(app, exitCode, "mask", "Draw the mask of a mod: which blocks are computed", runMask);
  addMaskProblem(command, options);
  addFile(command, "-o,--output", options.output, "A picture instead, an SVG; appears whole or not at all. -: stdout");
  addParsed(
      command, "--block", [&into = options](const std::string& text) { parseBlock(into, text); }, "N|Q,KV",
      "Rows and columns of a block: 64, 128 or 256, default 128; or two of them");
  addOption(command, "-b,--batch", options.batch, "N", "Only this batch entry")->check(CLI::NonNegativeNumber);
  addOption(command, "--head", options.head, "N", "Only this head")->check(CLI::NonNegativeNumber);
  addParsed(
      command, "--rows", [&rows = options.rows](const std::string& text) { rows = parseRange("--rows", text); },
      "FIRST:END", "Only a part of the scores: these rows (q_idx)");
  addParsed(
      command, "--columns",
      [&columns = options.columns](const std::string& text) { columns = parseRange("--columns", text); }, "FIRST:END",
      "And these columns (kv_idx)");
  command
      .add_option_function<std::vector<std::string>>(
          "--query",
          [&queries = options.queries](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) queries.push_back(parseQuery(text));
          },
          "Of a mod with a grid: the keys that this query sees, laid out in space. Its coordinates, or its position")
      ->type_name("Y,X|N")
      ->excludes("--rows")
      ->excludes("--columns")
      ->excludes("--block");
  addParsed(
      command, "--box", [&box = options.box](const std::string& text) { box = parseBox(text); }, "YxX",
      "With --query: the box of queries around it that a kernel computes at a time, and all keys that these see.\nIts "
      "extents, as in the tile that `attnc explain` tells: 8x8");
  command
      .add_flag(
          "--scores", options.showsScores,
          "What score_mod makes of scores, instead of the mask: a map of one score at all positions, or a curve\nif "
          "score_mod reads only the score. Of a mod with only a prob_mod: what it makes of weights; of one with only a "
          "sink_mod: the sinks of rows")
      ->excludes("--query")
      ->excludes("--block");
  addOption(command, "--score", options.score, "X",
            "With --scores: what each score was, default 0; for a curve its range, default 100; for weights 1");
  command.add_flag("--json", options.json, "For programs: the blocks, and which heads look the same; no map")
      ->excludes("--query")
      ->excludes("--scores");
  command.footer(
      R"(Each block of the score matrix is full (every score lives), partial (mask_mod decides score by score) or empty
(skipped): this is what kernels are told. Where few scores are shown, partial blocks are drawn score by score:
some 560 rows and columns in a terminal of 80 columns, 512 in a picture. Heads and batch entries that look the same
are drawn once.

Examples:
  attnc mask sliding_window.py --set window=1000
  attnc mask sliding_window.py --set window=5 --shape 24
  attnc mask document.py --in batch.safetensors -o documents.svg
  attnc mask sliding_window.py --set window=1000 --rows 896:1152 --columns 0:256 -o corner.svg
  attnc mask alibi.py --shape 1,8,8,512,512 --scores -o alibi.svg
  attnc mask neighborhood2d.py -D HEIGHT=24 -D WIDTH=32 --shape 768 --query 12,15 --query 0,31 -o corner.svg)");
}

} // namespace attnc::cli
