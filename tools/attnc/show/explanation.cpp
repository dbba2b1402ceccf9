#include "show/explanation.h"

#include "problem/mod_text.h"
#include "show/mask_text.h"

#include "support/ceil_div.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <vector>

namespace attnc::cli {
namespace {

/// "50.8 %"; "0 %" if the whole is 0.
std::string percent(double part, double whole) { return fmt::format("{:.1f} %", whole > 0 ? 100 * part / whole : 0); }

std::string flopsText(double flops) {
  constexpr const char* kUnits[] = {"MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"};
  size_t unit = 0;
  double number = flops * 1e-6;
  for (; number >= 1e3 && unit + 1 < std::size(kUnits); ++unit) number *= 1e-3;
  if (number >= 1e6) return fmt::format("{:.2e} {}", number, kUnits[unit]);
  return fmt::format("{:.{}f} {}", number, unit == 0 ? 3 : 2, kUnits[unit]);
}

/// Formats a number of blocks. An estimate has three digits.
std::string countText(double count, bool isEstimated) {
  if (!isEstimated) return fmt::format("{:.0f}", count);
  double unit = count < 1000 ? 1 : std::pow(10, std::floor(std::log10(count)) - 2);
  return fmt::format("about {:.0f}", std::round(count / unit) * unit);
}

std::string blocksText(const MaskCensus& census, const ProblemShape& problem, bool masks) {
  const BlockMaskShape& shape = census.shape;
  const bool isEstimated = census.estimated > 0;
  auto line = [&](const char* label, double count, const char* why = "") {
    return fmt::format("            {:8}{:>12}  {:>7}{}\n", label, countText(count, isEstimated),
                       percent(count, census.blocks), why);
  };
  const char* whyPartial = !masks && census.live > census.full ? "  cut by the ends of the lengths" : "";
  std::string scope = scopeText(shape, problem);
  if (scope.empty()) scope = "every batch entry and head has its own";
  std::string text =
      fmt::format("blocks      {:.0f} of {} x {}; {}\n", census.blocks, shape.qBlock, shape.kvBlock, scope) +
      line("live", census.live) + line("partial", census.live - census.full, whyPartial) + line("full", census.full) +
      line("empty", census.blocks - census.live);
  if (!isEstimated) return text;
  return text + fmt::format("            {:.0f} of {:.0f} undecided blocks ({}) were sampled\n", census.sampled,
                            census.estimated, percent(census.sampled, census.estimated));
}

/// Returns "2 x 8 x 8": extents of a box, without leading axes of one token.
std::string extentsText(const std::array<int, 3>& box) {
  const size_t first = box[0] > 1 ? 0 : box[1] > 1 ? 1 : 2;
  return fmt::format("{}", fmt::join(box.begin() + first, box.end(), " x "));
}

std::string boxesText(const GridCensus& census, double dense, double computed) {
  const double inBoxes = census.visited > 0 ? computed * census.live / census.visited : 0;
  const auto count = [&](double number) { return countText(number, census.isEstimate); };
  if (census.full)
    return fmt::format("boxes       {:.0f} of {} queries; {} of {} keys are listed, {:.1f} for one of queries\n",
                       census.tiles, extentsText(census.queryBox), count(census.steps), extentsText(census.keyBox),
                       census.tiles > 0 ? census.steps / census.tiles : 0) +
           fmt::format("            of these {} partial, {} full; {} of the pairs computed live\n",
                       count(census.steps - *census.full), count(*census.full), percent(census.live, census.visited)) +
           fmt::format("FLOPs       {} dense, {}{} computed ({}), {} of them of pairs that live\n", flopsText(dense),
                       census.isEstimate ? "about " : "", flopsText(computed), percent(computed, dense),
                       flopsText(inBoxes));
  std::string own[] = {extentsText(census.queryBox), "queries"}, read[] = {extentsText(census.keyBox), "keys"};
  if (census.ownsKeys) std::swap(own, read);
  return fmt::format("boxes       {:.0f} of {} {}; {} of {} {} are read, {:.1f} for one of {}\n", census.tiles, own[0],
                     own[1], count(census.steps), read[0], read[1], census.tiles > 0 ? census.steps / census.tiles : 0,
                     own[1]) +
         fmt::format("            {} of the pairs computed are of a query and a key that lies in its box{}\n",
                     percent(census.live, census.visited),
                     census.mayLieBeside ? ", or that it sees beside the grid" : "") +
         fmt::format("FLOPs       {} dense, {}{} computed ({}), {} of them in boxes of queries{}\n", flopsText(dense),
                     census.isEstimate ? "about " : "", flopsText(computed), percent(computed, dense),
                     flopsText(inBoxes), census.mayLieBeside ? " or beside them" : "");
}

/// Returns what a pass reads and writes at least. If the mask is the same for all heads that share K and V, a decode
/// kernel reads them once, and only live blocks.
std::string bytesText(const MaskCensus& census, const Preparation& preparation, double flops) {
  const KernelOptions& kernel = preparation.last().options();
  const ProblemShape& problem = preparation.problem;
  const double bytes = leastBytes(census, preparation);
  const auto share = readShareOfKv(census, preparation);
  const char* what = preparation.backward ? "q, k, v, out, lse and gradients"
                     : share              ? "q, out, and live blocks of k and v"
                                          : "q, k, v and out";
  std::string text = fmt::format("bytes       {:.2f} MB at least: {}, once; {}{:.4g} FLOP/byte\n", bytes * 1e-6, what,
                                 census.estimated > 0 ? "about " : "", bytes > 0 ? flops / bytes : 0);
  if (!share) return text;
  const double columns = double(problem.batch) * double(problem.kvHeads) * double(problem.kvLen);
  const double ofKv = Work{problem, 0, columns}.bytes(kernel) - Work{problem}.bytes(kernel);
  return text + fmt::format("K and V     {:.2f} MB, {} of them in live blocks\n", ofKv * 1e-6, percent(*share, 1));
}

// Words by the numbers of enumerators.
constexpr const char* kLoops[] = {
    "all tiles: mask_mod is evaluated for every score",
    "bounds computed by the mod: no block mask is built or read",
    "block mask: lists of the partial and the full blocks, given at launch",
    "lists of the blocks that live, which each launch makes first: no others are read",
    "boxes of keys that queries see, computed by the mod: no block mask is built or read",
    "block mask of boxes: lists of the partial and the full boxes of keys, given at launch"};
static_assert(std::size(kLoops) == size_t(KvLoop::BoxMask) + 1);

/// What is added to memory for one place where score_mod or sink_mod reads a capture.
constexpr const char* kAdditions[] = {"one addition to memory a tile",
                                      "one addition to memory a row of a tile",
                                      "one addition to memory a column of a tile",
                                      "one addition to memory a diagonal of a tile",
                                      "one addition to memory a score",
                                      "each score of a head has an element of its own",
                                      "from sums along diagonals, which the kernel of dk and dv makes",
                                      "from further columns of dq or dk: one addition to memory a row",
                                      "from lse and delta of rows: one addition to memory for 256 rows that share it"};
static_assert(std::size(kAdditions) == size_t(GradientSum::Per::Sinks) + 1);

constexpr const char* kSelects[] = {"", " + a select", " + a select by the bounds of its row, in place of mask_mod",
                                    " + a select by the box of its row, in place of mask_mod"};
static_assert(std::size(kSelects) == size_t(MaskSelect::Box) + 1);

const char* loopText(KvLoop loop, bool masks) {
  return loop == KvLoop::AllTiles && !masks ? "all tiles: the mod masks nothing" : kLoops[int(loop)];
}

/// "3 (add, 2 mul)"
std::string perElementText(const OperationCounts& count) {
  std::string names;
  for (const auto& [name, times] : count.perElement)
    names += fmt::format("{}{}{}", names.empty() ? "" : ", ", times > 1 ? std::to_string(times) + " " : "", name);
  return count.element ? fmt::format("{} ({})", count.element, names) : "0";
}

/// Returns lines "tile", "resources", "advisories".
std::string stageText(const KernelSource& source, const CompiledKernel& compiled) {
  std::string text;
  if (source.tileRows)
    text += fmt::format("tile        {} x {} (q rows x kv columns); {} warps compute, {} threads", source.tileRows,
                        source.tileColumns, source.warps, source.threads);
  else
    text += fmt::format("tile        none; {} threads", source.threads);
  if (source.kvStages) text += fmt::format("; {} stages of K and V", source.kvStages);
  if (source.qStages) text += fmt::format(", {} of Q", source.qStages);
  text += fmt::format("\nresources   {} registers, {} bytes spilled, {} bytes of shared memory\n", compiled.registers,
                      compiled.spillBytes, compiled.staticSharedBytes + compiled.dynamicSharedBytes);
  std::vector<std::string> all = compiled.advisories;
  if (std::string spills = spillText(compiled.spillBytes); !spills.empty()) all.insert(all.begin(), spills);
  return text + (all.empty() ? "advisories  none\n" : labelled("advisories", all, [](auto& one) { return one; }));
}

/// Returns whether launches of a kernel go to another family, if that takes their layout. What only the naive family
/// serves goes there only if the user names it.
bool serves(const Mod& mod, KernelOptions options, Family family) {
  if (family == Family::Naive) return false;
  options.family = family;
  options.tile.clear();
  options.blockSparse = options.maskByBoxes = false; // families build block masks of their own
  return whyNotServed(mod, options).empty();
}

} // namespace

std::string spillText(int bytes) {
  if (bytes == 0) return "";
  return fmt::format(
      "{} bytes of registers are spilled to memory, which costs speed: the mod takes more registers than "
      "the tile leaves",
      bytes);
}

std::string kernelText(const Explanation& all, Family asked) {
  const Plan& kernel = all.kernel();
  const KernelOptions& options = kernel.options();
  const std::string& passedOver = kernel.passedOver();
  const std::vector<KernelSource>& sources = all.sources;
  std::vector<std::string> templates; // without duplicates
  for (const KernelSource& source : sources)
    if (templates.empty() || templates.back() != source.templateName) templates.push_back(source.templateName);
  std::string text = fmt::format("kernel      family {} for {} ({}{}), {}{}, head dims {} and {}\n",
                                 familyName(options.family), options.arch, fmt::join(templates, ", "),
                                 passedOver.empty() ? "" : "; " + passedOver, dtypeName(options.dtype),
                                 options.features.has(Feature::RowScales) ? " with q, k and v of e4m3, scales of rows"
                                 : options.features.has(Feature::Fp8Q)    ? " with q, k and v of e4m3"
                                 : options.features.has(Feature::Fp8Kv)   ? " with k and v of e4m3"
                                                                          : "",
                                 options.headDim, options.headDimV);
  if (options.kind == KernelKind::Backward && options.features.has(Feature::Reductions))
    text += labelled("reads", all.mod.reductionGradients(), [](const CaptureInfo& gradient) {
      return fmt::format("{}: f32[{}], which a loss of the output gives", gradient.name,
                         fmt::join(gradient.extent, ", "));
    });
  if (const auto choices = choiceWords(options); !choices.empty())
    text += fmt::format("choices     {}\n", fmt::join(choices, ", "));
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources.size() > 1)
      text += fmt::format("launch      {} of {}: {} of {}\n", i + 1, sources.size(), sources[i].entry,
                          sources[i].templateName);
    text += stageText(sources[i], *all.compiled[i]);
  }
  if (!kernel.lowRank().empty()) text += fmt::format("low rank    {}\n", kernel.lowRank());
  const std::vector<FamilyInfo> families = options.kind == KernelKind::Backward ? backwardFamilies()
                                           : options.kind == KernelKind::Decode ? decodeFamilies()
                                                                                : forwardFamilies();
  const auto isOwn = [&](const FamilyInfo& info) { return info.family == options.family; };
  auto own = std::find_if(families.begin(), families.end(), // the one made for the arch, else the first
                          [&](const FamilyInfo& info) { return isOwn(info) && info.arch == options.arch; });
  if (own == families.end()) own = std::find_if(families.begin(), families.end(), isOwn);
  text += fmt::format("layouts     {}", own->layouts);
  if (own->takesAnyLayout) return text + "\n";
  const auto takesOthers = [&](const FamilyInfo& info) {
    return !isOwn(info) && serves(kernel.mod(), options, info.family);
  };
  const auto other = asked == Family::Auto ? std::find_if(own, families.end(), takesOthers) : families.end();
  if (other == families.end()) return text + "; others are an error\n";
  return text + fmt::format("; others go to family {}\n", familyName(other->family));
}

std::string tileText(const Plan& kernel) {
  switch (kernel.tileFrom()) {
  case TileFrom::Model: return fmt::format("tile from   the model: {}\n", kernel.tile());
  case TileFrom::Tuned: return fmt::format("tile from   tuning: {} ({})\n", kernel.tile(), kernel.tunedBy());
  case TileFrom::Asked: return fmt::format("tile from   who asks: {}\n", kernel.tile());
  }
  return {};
}

std::string kindText(const Preparation& preparation, const std::vector<KernelSource>& sources) {
  const bool isDecode = preparation.kernel.options().kind == KernelKind::Decode;
  std::string text;
  if (!preparation.whyKind.empty())
    text = fmt::format("choice      {}: {}\n", isDecode ? "decode" : "forward", preparation.whyKind);
  if (!isDecode) return text;
  const ProblemShape& problem = preparation.problem;
  const KernelSource& tile = sources.back();
  const int64_t group = problem.kvHeads ? problem.qHeads / problem.kvHeads : 0;
  return text +
         fmt::format("division    {} tiles of rows (query x head of a KV head), of at most {} steps along KV, dealt "
                     "evenly to CTAs; {} bytes of workspace\n",
                     problem.batch * problem.kvHeads * ceilDiv(problem.qLen * group, tile.tileRows),
                     ceilDiv(problem.kvLen, tile.tileColumns), preparation.workspaceBytes);
}

std::string workText(const MaskCensus& census, const std::optional<GridCensus>& grid, const Preparation& preparation,
                     bool masks) {
  const ProblemShape& problem = preparation.problem;
  const KvLoop loop = preparation.last().kvLoop();
  const auto [dense, live] = flopsOf(census, grid, preparation);
  const std::string bytes = bytesText(census, preparation, live);
  if (grid) return fmt::format("KV loop     {}\n", loopText(loop, masks)) + boxesText(*grid, dense, live) + bytes;
  return fmt::format("KV loop     {}\n", loopText(loop, masks)) + blocksText(census, problem, masks) +
         fmt::format("FLOPs       {} dense, {}{} in live blocks ({})\n", flopsText(dense),
                     census.estimated > 0 ? "about " : "", flopsText(live), percent(live, dense)) +
         bytes;
}

std::string scoreText(const ScoreCost& cost, KvLoop loop) {
  const std::string cut = fmt::format("{}{}\n", perElementText(cost.partial), kSelects[int(cost.select)]);
  const std::string gradient =
      cost.gradient ? fmt::format("            gradient: {} more\n", perElementText(*cost.gradient)) : "";
  if (cost.masksAllBlocks && cost.select == MaskSelect::Mask) return "per score   all blocks: " + cut + gradient;
  std::string text = fmt::format("per score   full blocks: {}\n", perElementText(cost.full));
  if (loop != KvLoop::AllTiles) text += "            partial blocks: " + cut;
  return text + gradient;
}

std::string perVariantText(const Explanation& all) {
  if (all.variants.empty()) return "";
  if (all.perVariant.empty()) return "            a tile computes all of them for each score\n";
  std::string text = "            a tile computes that of its sequence:\n";
  for (size_t i = 0; i < all.variants.size(); ++i)
    text += fmt::format("            {}: {} a score in full blocks, {} in partial ones{}\n", all.variants[i].when,
                        all.perVariant[i].full.element, all.perVariant[i].partial.element,
                        kSelects[int(all.perVariant[i].select)]);
  return text;
}

std::string timeText(const PassTime& time) {
  return fmt::format("{} ms on {} {}, median error {:.1f} %, worst {:.1f} % over {} rows", millisecondsText(time.ms),
                     time.gpu, time.clock, time.medianError, time.worstError, time.rows);
}

std::string millisecondsText(double ms) { return fmt::format("{:.{}f}", ms, ms < 1 ? 3 : ms < 10 ? 2 : 1); }

std::string timesText(const Explanation& all) {
  if (all.times.empty()) return fmt::format("time        not measured: {}\n", all.whyNoTimes);
  return labelled("time", all.times, timeText);
}

std::string gradientsText(const std::vector<GradientSum>& sums) {
  return labelled("gradients", sums, [](const GradientSum& sum) {
    return fmt::format("d_{}: {}{}", sum.capture, sum.per ? kAdditions[int(*sum.per)] : "0: no gradient arrives",
                       sum.ofEachTerm ? ", for each term of a sum" : "");
  });
}

} // namespace attnc::cli
