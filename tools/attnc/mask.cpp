// `attnc mask`: shows the block map of a mask, in the terminal or as a picture.
#include "collect_captures.h"
#include "commands.h"
#include "json_report.h"
#include "mask_map.h"
#include "mask_picture.h"
#include "mask_text.h"
#include "output_file.h"
#include "picture.h"
#include "problem_options.h"
#include "progress.h"
#include "query_map.h"
#include "terminal.h"
#include "text.h"

#include "support/try.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>

namespace attnc::cli {
namespace {

/// More blocks would take minutes and gigabytes.
constexpr int64_t kMostBlocks = int64_t(1) << 27;
constexpr size_t kMostTextMaps = 4;

struct MaskOptions {
  ProblemOptions problem;
  int qBlock = 128, kvBlock = 128;
  std::optional<int64_t> batch, head;
  std::optional<std::pair<int64_t, int64_t>> rows, columns; // half open
  std::vector<std::vector<int64_t>> queries;                // coordinates, or one position
  std::string output;                                       ///< empty: a map as text; -: stdout
  bool json = false;
};

/// Parses "A:B", half open; either may be missing.
std::pair<int64_t, int64_t> parseRange(const char* option, const std::string& text) {
  const auto fail = [&] { return CLI::ValidationError(option, inQuotes(text) + " is no range FIRST:END"); };
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
    throw CLI::ValidationError(option, fmt::format("{} lies behind the end, which is {}", range->first, length));
  return {range->first, std::min(range->second, length)};
}

/// Returns the heads of the mask to show: the chosen ones, or all that may differ.
std::vector<std::pair<int64_t, int64_t>> headsShown(const MaskOptions& options, const BlockMaskShape& shape,
                                                    const ProblemShape& problem) {
  const auto check = [](const char* option, std::optional<int64_t> chosen, int64_t count) {
    if (chosen && *chosen >= count)
      throw CLI::ValidationError(option, fmt::format("{} is not there: the problem has {}", *chosen, count));
  };
  check("--batch", options.batch, problem.batch);
  check("--head", options.head, problem.qHeads);
  std::vector<std::pair<int64_t, int64_t>> heads;
  for (int64_t b = 0; b < shape.batch; ++b)
    for (int64_t h = 0; h < shape.heads; ++h)
      if ((!options.batch || shape.batch == 1 || b == *options.batch) &&
          (!options.head || shape.heads == 1 || h == *options.head))
        heads.emplace_back(b, h);
  return heads;
}

/// "sliding_window.py: window = 9"
std::string titleOf(const Mod& mod, const Captures& captures) {
  const std::set<std::string> needed = capturesOfMask(mod);
  Captures shown;
  for (const auto& [name, value] : captures.all())
    if (needed.count(name)) std::visit([&](auto known) { shown.set(name, known); }, value);
  const std::string values = valuesText(shown);
  const std::string name = std::filesystem::path(mod.name()).filename().string();
  return name + (values.empty() ? "" : ": " + values) + (mod.hasMaskMod() ? "" : " (the mod masks nothing)");
}

std::string sizeText(const BlockMaskShape& shape, const ProblemShape& problem) {
  const std::string scope = scopeText(shape, problem);
  return fmt::format("Q_LEN {} x KV_LEN {}, {} x {} blocks of {} x {}{}", shape.qLen, shape.kvLen, shape.qBlocks(),
                     shape.kvBlocks(), shape.qBlock, shape.kvBlock, scope.empty() ? "" : "; " + scope);
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
  ATTNC_TRY_AS(operands, options.problem.find(mod, Elements::OfMask, /*withScores=*/false));
  const ProblemShape& problem = operands->problem;
  if (problem.batch == 0 || problem.qHeads == 0 || problem.qLen == 0)
    return Error::environment("the problem has no queries", "give it some: --shape");
  const BlockMaskShape shape = smallestMask(mod, problem, options.qBlock, options.kvBlock);
  const auto [b, h] = headsShown(options, shape, problem).front();
  ATTNC_TRY_AS(maps, queryMaps(mod, operands->captures, problem, options.queries, b, h));
  std::string title = titleOf(mod, operands->captures);
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

/// Tells of a mask for programs: its blocks, and which heads of it look the same. If a picture was written, its file.
std::string maskJson(const Mod& mod, const HostOperands& operands, const BlockMask& mask,
                     const std::vector<LikeHeads>& groups, const std::string& output) {
  const BlockMaskShape& shape = mask.shape();
  const int64_t all = shape.batch * shape.heads * shape.qBlocks() * shape.kvBlocks();
  JsonReport json{{"ok", true},
                  {"mod", mod.name()},
                  {"problem", problemJson(operands.problem)},
                  {"values", valuesJson(operands.captures)},
                  {"block", {shape.qBlock, shape.kvBlock}},
                  {"batch", shape.batch},
                  {"heads", shape.heads},
                  {"qBlocks", shape.qBlocks()},
                  {"kvBlocks", shape.kvBlocks()},
                  {"blocks", all},
                  {"full", mask.fullBlocks()},
                  {"partial", mask.liveBlocks() - mask.fullBlocks()},
                  {"empty", all - mask.liveBlocks()},
                  {"likeHeads", JsonReport::array()}};
  for (const LikeHeads& group : groups) json["likeHeads"].push_back(group.heads);
  if (!output.empty()) json["output"] = output;
  return jsonText(json);
}

Status draw(const Mod& mod, const MaskOptions& options) {
  ATTNC_TRY_AS(operands, options.problem.find(mod, Elements::OfMask, /*withScores=*/false));
  const ProblemShape& problem = operands->problem;
  const BlockMaskShape shape = smallestMask(mod, problem, options.qBlock, options.kvBlock);
  const auto heads = headsShown(options, shape, problem);
  const auto [qBegin, qEnd] = within("--rows", options.rows, problem.qLen);
  const auto [kvBegin, kvEnd] = within("--columns", options.columns, problem.kvLen);
  ATTNC_TRY(checkSize(shape));
  std::optional<Progress> progress(std::in_place, "looking at the mask");
  ATTNC_TRY_AS(mask, BlockMask::build(mod, operands->captures, problem, shape));
  ATTNC_TRY_AS(reader, MaskReader::create(mod, operands->captures, problem));
  const bool asText = options.output.empty() && !options.json;
  const CellLimits limits = asText ? terminalCells() : pictureCells();
  const std::vector<LikeHeads> groups =
      likeHeads(*mask, *reader, heads, {qBegin, qEnd, kvBegin, kvEnd}, limits, asText ? kMostTextMaps : kMostPanels);
  progress.reset();
  const std::string title = titleOf(mod, operands->captures), size = sizeText(shape, problem);
  if (asText)
    return printResult(title + "\n" + size + "\n\n" + mapInColor(mapText(groups, shape) + "\n" + sharesText(*mask)));
  if (!options.output.empty())
    ATTNC_TRY(writeWholeFile(options.output, {svgOf(maskPicture(*mask, groups, {title, size}), title + "; " + size)}));
  return options.json ? printResult(maskJson(mod, *operands, *mask, groups, options.output)) : Status();
}

int runMask(MaskOptions& options) {
  refuseUnlessSvg(options.output);
  if (options.json && options.output == "-")
    throw wrongUsage("--json", "stdout would carry a picture and its facts", "give the picture a file: -o mask.svg");
  refuseOntoInput("-o", options.output, {options.problem.run.mod.path, options.problem.run.input});
  auto mod = options.problem.loadMod();
  if (!mod) return reportEither(mod.error(), options.json);
  auto status = options.queries.empty() ? draw(*mod, options) : drawQueries(*mod, options);
  return status ? kDone : reportEither(status.error(), options.json);
}

/// Parses "3,4": coordinates, or one position.
std::vector<int64_t> parseQuery(const std::string& text) {
  std::vector<int64_t> numbers;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    int64_t number = 0;
    if (!parseInteger(text.substr(at, comma - at), number) || numbers.size() == 3)
      throw CLI::ValidationError("--query", inQuotes(text) + " is neither a position nor coordinates: 12 or 3,4");
    numbers.push_back(number);
    at = comma + 1;
  }
  return numbers;
}

/// Parses "128", or "64,256": rows and columns.
void parseBlock(MaskOptions& options, const std::string& text) {
  const bool isOne = text.find(',') == std::string::npos;
  const std::vector<int64_t> sides = parseExtents("--block", text, isOne ? "N" : "Q,KV");
  for (int64_t side : sides)
    if (side != 64 && side != 128 && side != 256)
      throw CLI::ValidationError("--block", inQuotes(text) + ": blocks have sides of 64, 128 or 256");
  options.qBlock = int(sides.front());
  options.kvBlock = int(sides.back());
}

void addOptions(CLI::App& command, MaskOptions& options) {
  options.problem.addTo(command);
  command
      .add_option("-o,--output", options.output, "A picture instead, an SVG; appears whole or not at all. -: stdout")
      ->type_name("FILE");
  command
      .add_option_function<std::string>(
          "--block", [&options](const std::string& text) { parseBlock(options, text); },
          "Rows and columns of a block: 64, 128 or 256, default 128; or two of them")
      ->type_name("N|Q,KV");
  const auto addIndex = [&](const char* name, std::optional<int64_t>& index, const char* help) {
    command.add_option(name, index, help)->type_name("N")->check(CLI::NonNegativeNumber);
  };
  addIndex("-b,--batch", options.batch, "This batch entry alone");
  addIndex("--head", options.head, "This head alone");
  const auto addRange = [&](const char* name, std::optional<std::pair<int64_t, int64_t>>& range, const char* help) {
    command
        .add_option_function<std::string>(
            name, [name, &range](const std::string& text) { range = parseRange(name, text); }, help)
        ->type_name("FIRST:END");
  };
  addRange("--rows", options.rows, "A part of the scores alone: these rows (q_idx)");
  addRange("--columns", options.columns, "And these columns (kv_idx)");
  command
      .add_option_function<std::vector<std::string>>(
          "--query",
          [&options](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) options.queries.push_back(parseQuery(text));
          },
          "Of a mod with a grid: the keys that this query sees, laid out in space. Its coordinates, or its position")
      ->type_name("Y,X|N")
      ->excludes("--rows")
      ->excludes("--columns")
      ->excludes("--block");
  command.add_flag("--json", options.json, "For programs: the blocks, and which heads look the same; no map")
      ->excludes("--query");
}

} // namespace

void addMask(CLI::App& app, int& exitCode) {
  auto options = std::make_shared<MaskOptions>();
  CLI::App* command = app.add_subcommand("mask", "Draw the mask of a mod: which blocks are computed");
  addOptions(*command, *options);
  command->footer(
      "Each block of the score matrix is full (every score lives), partial (mask_mod decides score by score) or empty\n"
      "(skipped): this is what kernels are told. Where few scores are shown, partial blocks are drawn score by score:\n"
      "some 560 rows and columns in a terminal of 80 columns, 512 in a picture. Heads and batch entries that look the "
      "same\n"
      "are drawn once.\n\n"
      "Examples:\n"
      "  attnc mask sliding_window.py --set window=1000\n"
      "  attnc mask sliding_window.py --set window=5 --shape 24\n"
      "  attnc mask document.py --in batch.safetensors -o documents.svg\n"
      "  attnc mask sliding_window.py --set window=1000 --rows 896:1152 --columns 0:256 -o corner.svg\n"
      "  attnc mask neighborhood2d.py -D HEIGHT=24 -D WIDTH=32 --shape 768 --query 12,15 --query 0,31 -o corner.svg");
  command->callback([options, &exitCode] { exitCode = runMask(*options); });
}

} // namespace attnc::cli
