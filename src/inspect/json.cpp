// Explanations as JSON, for programs.
#include "attnc/explain.h"
#include "attnc/infer.h"
#include "attnc/prove.h"

#include <nlohmann/json.hpp>

#include <iterator>
#include <type_traits>
#include <variant>

namespace attnc {
/// Keeps the order of its keys.
using JsonReport = nlohmann::ordered_json;

namespace {

std::string textOf(const JsonReport& report) {
  return report.dump(2, ' ', /*ensure_ascii=*/false, JsonReport::error_handler_t::replace) + "\n";
}

// Names of enumerators, by their numbers.
constexpr const char* kCaptureKinds[] = {"tensor", "int", "float", "bool"};
constexpr const char* kLoops[] = {"allTiles", "bounds", "blockMask", "listed", "boxes", "boxMask"};
constexpr const char* kGradients[] = {"some", "stopped", "none"};
constexpr const char* kPer[] = {"tile",       "row",       "column",  "diagonal", "score",
                                "ownElement", "diagonals", "columns", "sinks"};
constexpr const char* kAnswers[] = {"proved", "refuted", "undecided"};
static_assert(std::size(kCaptureKinds) == size_t(CaptureInfo::Kind::Bool) + 1 &&
              std::size(kLoops) == size_t(KvLoop::BoxMask) + 1 &&
              std::size(kGradients) == size_t(ScoreGradient::NoScore) + 1 &&
              std::size(kPer) == size_t(GradientSum::Per::Sinks) + 1 &&
              std::size(kAnswers) == size_t(Proof::Answer::Undecided) + 1);

} // namespace

// Parts of explanations. JsonReport finds these functions for elements of vectors; so they are in no unnamed namespace.

/// Makes JSON of a struct, whose keys are the names of these members.
#define ATTNC_JSON(Type, ...)                                                                                          \
  static void to_json(JsonReport& nlohmann_json_j, const Type& nlohmann_json_t) {                                      \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(NLOHMANN_JSON_TO, __VA_ARGS__))                                           \
  }

ATTNC_JSON(ModFunction, name, line)
ATTNC_JSON(OperationCounts, launch, head, row, column, element, perElement)
ATTNC_JSON(LaunchCondition, words, line)
ATTNC_JSON(WideOperation, words, line)
ATTNC_JSON(GatherProof, capture, index, line, proven, why)
ATTNC_JSON(TileWork, tiles, heads, section, maskBatch, maskHeads, steps, masked, firstRow, clusterCtas, clusterHeads,
           ctasPerMultiprocessor, longest, mean, isEstimate)
ATTNC_JSON(PassTime, gpu, clock, ms, medianError, worstError, rows)
ATTNC_JSON(PassCost, kernel, tiles, steps, maskedSteps, loneTile, widths, slots, imbalance, products, scores, perScore,
           perMaskedScore, bytes, otherBytes)

static void to_json(JsonReport& json, const CaptureInfo& capture) {
  json = {{"name", capture.name}, {"kind", kCaptureKinds[int(capture.kind)]}};
  if (capture.kind == CaptureInfo::Kind::Tensor)
    json.update({{"dtype", dtypeName(capture.dtype)}, {"shape", capture.extent}});
}

static void to_json(JsonReport& json, const Diagnostic& found) {
  json = {{"id", found.id},
          {"file", found.file},
          {"line", found.line},
          {"column", found.column},
          {"message", found.message}};
  if (found.severity == Severity::Warning) json["severity"] = "warning";
  if (!found.hint.empty()) json["hint"] = found.hint;
}

/// No "per": no gradient arrives.
static void to_json(JsonReport& json, const GradientSum& sum) {
  json = {{"capture", sum.capture}, {"ofEachTerm", sum.ofEachTerm}};
  if (sum.per) json["per"] = kPer[int(*sum.per)];
}

/// No "times": once.
static void to_json(JsonReport& json, const ModOperation& place) {
  json = {{"function", place.function},
          {"line", place.line},
          {"op", place.name},
          {"expression", place.expression},
          {"level", place.level}};
  if (place.times > 1) json["times"] = place.times;
}

/// "cells" has a letter for each cell, a text for each row. e: empty, p: partial, m: some blocks full, f: full, u:
/// unknown.
static void to_json(JsonReport& json, const BlockMap& map) {
  json = {{"heads", map.heads}, {"qStep", map.qStep}, {"kvStep", map.kvStep}, {"cells", JsonReport::array()}};
  for (int64_t row = 0; row < map.rows; ++row) {
    std::string letters;
    for (int64_t column = 0; column < map.columns; ++column)
      letters += "epmfu"[size_t(map.cells[size_t(row * map.columns + column)])];
    json["cells"].push_back(letters);
  }
}

static void to_json(JsonReport& json, const GpuLimits& limits) {
  json = {{"registersPerThread", limits.registersPerThread},
          {"registersPerMultiprocessor", limits.registersPerMultiprocessor},
          {"threadsPerMultiprocessor", limits.threadsPerMultiprocessor},
          {"sharedBytesPerCta", limits.sharedBytesPerCta},
          {"sharedBytesPerMultiprocessor", limits.sharedBytesPerMultiprocessor}};
  if (limits.multiprocessors) json["gpu"] = limits.gpu, json["multiprocessors"] = limits.multiprocessors;
}

namespace {

/// Returns {"mod", "functions", "choices": [{"function", "name", "line", "why", "others": [{"name", "line"}]}],
/// "masksLifted", "walksTwice", "captures", "outputs"}. A line of 0 means: not in the text.
JsonReport modJson(const Mod& mod) {
  JsonReport json{{"mod", mod.name()}, {"functions", JsonReport::array()}};
  if (mod.hasScoreMod()) json["functions"].push_back(mod.hasWeightMod() ? "weight_mod" : "score_mod");
  if (mod.hasMaskMod()) json["functions"].push_back("mask_mod");
  if (mod.hasProbMod()) json["functions"].push_back("prob_mod");
  if (mod.hasSinkMod()) json["functions"].push_back("sink_mod");
  json["choices"] = JsonReport::array();
  for (const ModChoice& choice : mod.choices()) {
    JsonReport one{{"function", choice.kind}};
    one.update(JsonReport(choice.function));
    one["why"] = choice.why;
    one["others"] = choice.others;
    json["choices"].push_back(std::move(one));
  }
  json["masksLifted"] = mod.masksLifted();
  if (mod.walksTwice()) json["walksTwice"] = true;
  json["captures"] = mod.captures();
  if (!mod.reductions().empty()) json["outputs"] = mod.reductions();
  return json;
}

JsonReport operationsJson(const ModOperations& operations) {
  JsonReport json = JsonReport::object();
  if (operations.scoreMod) json["score_mod"] = *operations.scoreMod;
  if (operations.maskMod) json["mask_mod"] = *operations.maskMod;
  if (operations.probMod) json["prob_mod"] = *operations.probMod;
  if (operations.sinkMod) json["sink_mod"] = *operations.sinkMod;
  if (operations.dScore) json["d_score"] = *operations.dScore;
  return json;
}

JsonReport valuesJson(const Captures& captures) {
  JsonReport json = JsonReport::object();
  for (const auto& [name, value] : captures.all())
    std::visit(
        [&json, &name = name](auto known) {
          if constexpr (!std::is_same_v<decltype(known), TensorView>) json[name] = known;
        },
        value);
  return json;
}

JsonReport errorJson(const Error& error) {
  JsonReport json{{"message", error.message}};
  if (!error.remedy.empty()) json["hint"] = error.remedy;
  if (!error.diagnostics.empty()) json["diagnostics"] = error.diagnostics;
  return json;
}

JsonReport tileJson(const Plan& kernel) {
  switch (kernel.tileFrom()) {
  case TileFrom::Model: return {{"tile", kernel.tile()}, {"from", "model"}};
  case TileFrom::Tuned: return {{"tile", kernel.tile()}, {"from", "tuned"}, {"tunedBy", kernel.tunedBy()}};
  case TileFrom::Asked: return {{"tile", kernel.tile()}, {"from", "asked"}};
  }
  return {};
}

JsonReport launchJson(const KernelSource& source, const CompiledKernel& compiled) {
  JsonReport json{{"entry", source.entry}, {"template", source.templateName}, {"threads", source.threads}};
  if (source.tileRows) {
    json["tile"] = {{"rows", source.tileRows}, {"columns", source.tileColumns}};
    json["warps"] = source.warps;
  }
  if (source.kvStages) json["kvStages"] = source.kvStages;
  if (source.qStages) json["qStages"] = source.qStages;
  json["registers"] = compiled.registers;
  json["spillBytes"] = compiled.spillBytes;
  json["sharedBytes"] = compiled.staticSharedBytes + compiled.dynamicSharedBytes;
  json["advisories"] = compiled.advisories;
  if (compiled.order) json["order"] = compiled.order;
  return json;
}

JsonReport kernelJson(const Explanation& all) {
  const Plan& kernel = all.kernel();
  const KernelOptions& options = kernel.options();
  JsonReport json{{"kind", std::string(kindName(options.kind))},
                  {"family", familyName(options.family)},
                  {"arch", options.arch},
                  {"dtype", dtypeName(options.dtype)},
                  {"qDtype", options.features.has(Feature::Fp8Q) ? "e4m3" : dtypeName(options.dtype)},
                  {"kvDtype", options.features.has(Feature::Fp8Kv) ? "e4m3" : dtypeName(options.dtype)},
                  {"headDim", options.headDim},
                  {"headDimV", options.headDimV}};
#define ATTNC_CHOICE(type, member, c_type, name, limit, flag, text)                                                    \
  if (options.member) json["choices"][#name] = options.member;
#include "attnc/choices.def"
  if (!kernel.passedOver().empty()) json["passedOver"] = kernel.passedOver();
  if (options.kind == KernelKind::Backward && options.features.has(Feature::Reductions))
    for (const CaptureInfo& gradient : all.mod.reductionGradients()) json["outputGradients"].push_back(gradient.name);
  if (!kernel.lowRank().empty()) json["lowRank"] = kernel.lowRank();
  json["launches"] = JsonReport::array();
  for (size_t i = 0; i < all.sources.size(); ++i)
    json["launches"].push_back(launchJson(all.sources[i], *all.compiled[i]));
  return json;
}

JsonReport blocksJson(const MaskCensus& census) {
  const BlockMaskShape& shape = census.shape;
  JsonReport json{{"qBlock", shape.qBlock},
                  {"kvBlock", shape.kvBlock},
                  {"batch", shape.batch},
                  {"heads", shape.heads},
                  {"all", census.blocks},
                  {"partial", census.live - census.full},
                  {"full", census.full},
                  {"empty", census.blocks - census.live},
                  {"isEstimate", census.estimated > 0}};
  if (census.estimated > 0) json["undecided"] = {{"blocks", census.estimated}, {"sampled", census.sampled}};
  return json;
}

JsonReport boxesJson(const GridCensus& census) {
  JsonReport json{{"queryBox", census.queryBox},    {"keyBox", census.keyBox}, {"tiles", census.tiles},
                  {"steps", census.steps},          {"pairs", census.visited}, {"livePairs", census.live},
                  {"isEstimate", census.isEstimate}};
  if (census.full) json["full"] = *census.full;
  json["differsByHead"] = census.differsByHead;
  json["queryGrid"] = census.queryGrid;
  json["keyGrid"] = census.keyGrid;
  if (census.ofFirstHead.empty()) return json;
  json["ofFirstHead"] = JsonReport::array(); // [query, begin of keys, end of keys, steps]
  for (const GridTile& tile : census.ofFirstHead)
    json["ofFirstHead"].push_back({tile.query, tile.keyBegin, tile.keyEnd, tile.steps});
  return json;
}

/// Adds {"grids": [{"extents", "before", "isDeclared", "ofQueries", "ofKeys"}], "box": {"isMask", "axes": [{"axis",
/// "begin", "end", "step", "phase"}]}}, with expressions as text; nothing for a mod without grids.
void addGrids(const ModGrids& grids, JsonReport& json) {
  for (const GridInfo& grid : grids.grids)
    json["grids"].push_back({{"extents", grid.extents},
                             {"before", grid.before},
                             {"isDeclared", grids.isDeclared},
                             {"ofQueries", grid.ofQueries},
                             {"ofKeys", grid.ofKeys}});
  if (!grids.box) return;
  json["box"] = {{"isMask", grids.box->isMask}, {"axes", JsonReport::array()}};
  for (const GridAxisRange& axis : grids.box->axes) {
    JsonReport one{{"axis", axis.axis}};
    for (auto [name, value] :
         {std::pair("begin", &axis.begin), {"end", &axis.end}, {"step", &axis.step}, {"phase", &axis.phase}})
      if (!value->empty()) one[name] = *value;
    json["box"]["axes"].push_back(std::move(one));
  }
}

JsonReport variantsJson(const std::vector<ModVariant>& variants, const std::vector<ScoreCost>& costs) {
  JsonReport all = JsonReport::array();
  for (size_t i = 0; i < variants.size(); ++i) {
    JsonReport one{{"when", variants[i].when}, {"operations", operationsJson(variants[i].operations)}};
    if (!costs.empty()) one["perScore"] = {{"full", costs[i].full.element}, {"partial", costs[i].partial.element}};
    all.push_back(std::move(one));
  }
  return all;
}

JsonReport problemJson(const ProblemShape& p) {
  return {{"B", p.batch}, {"H", p.qHeads}, {"HKV", p.kvHeads}, {"Q_LEN", p.qLen}, {"KV_LEN", p.kvLen}};
}

} // namespace

std::string toJson(const ModExplanation& all) {
  JsonReport json{{"ok", true}};
  json.update(modJson(all.mod));
  json["warnings"] = all.warnings;
  json["operations"] = operationsJson(all.operations);
  json["places"] = all.places;
  json["conditions"] = all.conditions;
  json["gathers"] = all.gathers;
  json["wide"] = all.wide;
  addGrids(all.grids, json);
  if (!all.variants.empty()) json["variants"] = variantsJson(all.variants, {});
  json["scoreGradient"] = kGradients[int(all.scoreGradient)];
  json["hash"] = all.mod.hash();
  return textOf(json);
}

std::string toJson(const Explanation& all) {
  JsonReport json = modJson(all.mod);
  json["kernel"] = kernelJson(all);
  json["tile"] = tileJson(all.kernel());
  if (!all.preparation.whyKind.empty()) json["choice"] = all.preparation.whyKind;
  json["workspaceBytes"] = all.preparation.workspaceBytes;
  json["problem"] = problemJson(all.preparation.problem);
  json["values"] = valuesJson(all.scalars);
  json["kvLoop"] = kLoops[int(all.kernel().kvLoop())];
  json["blocks"] = blocksJson(all.census);
  if (all.boxes) json["boxes"] = boxesJson(*all.boxes);
  json["flops"] = {{"dense", all.flops.dense}, {"live", all.flops.live}};
  json["bytes"] = all.bytes;
  json["flopsPerByte"] = all.bytes > 0 ? all.flops.live / all.bytes : 0;
  json["operations"] = operationsJson(all.operations);
  json["perScore"] = {{"full", all.perScore.full.element},
                      {"partial", all.perScore.partial.element},
                      {"masksAllBlocks", all.perScore.masksAllBlocks}};
  if (!all.variants.empty()) json["variants"] = variantsJson(all.variants, all.perVariant);
  if (all.perScore.gradient) json["perScore"]["gradient"] = all.perScore.gradient->element;
  json["gradients"] = all.gradients;
  json["places"] = all.places;
  json["maps"] = all.maps;
  json["limits"] = all.limits;
  if (all.work) json["work"] = *all.work;
  if (all.cost) json["cost"] = *all.cost;
  json["times"] = all.times;
  if (all.times.empty()) json["whyNoTimes"] = all.whyNoTimes;
  return textOf(json);
}

std::string toJson(const Proof& proof) {
  JsonReport json{{"answer", kAnswers[int(proof.answer)]}};
  if (!proof.by.empty()) json["by"] = proof.by;
  if (!proof.why.empty()) json["why"] = proof.why;
  if (proof.answer != Proof::Answer::Refuted) return textOf(json);
  JsonReport extents = problemJson(proof.problem), captures = JsonReport::array(), deciding = JsonReport::array();
  for (const auto& [name, extent] : proof.extents) extents[name] = extent;
  for (const ExampleCapture& capture : proof.captures)
    captures.push_back({{"name", capture.name}, {"index", capture.index}, {"value", capture.value}});
  for (const TextLine& line : proof.deciding) deciding.push_back({{"line", line.number}, {"text", line.text}});
  json["example"] = {
      {"extents", extents},       {"b", proof.b},          {"h", proof.h},
      {"q_idx", proof.qIdx},      {"kv_idx", proof.kvIdx}, {"captures", captures},
      {"picture", proof.picture}, {"deciding", deciding},  {"picture_at", {proof.pictureQIdx, proof.pictureKvIdx}}};
  if (proof.kvLength) json["example"]["kv_length"] = *proof.kvLength;
  if (proof.qOffset) json["example"]["q_offset"] = *proof.qOffset;
  return textOf(json);
}

std::string toJson(const Inference& inference) {
  constexpr const char* kForms[] = {"formula", "intervals", "table"};
  const ProblemShape& p = inference.problem;
  JsonReport json{
      {"text", inference.text},
      {"expression", inference.expression},
      {"form", kForms[int(inference.form)]},
      {"recognised", inference.recognised},
      {"other_lengths", inference.otherLengths},
      {"shape", {p.batch, p.qHeads, p.qLen, p.kvLen}},
      {"live", inference.live},
      {"blocks",
       {{"full", inference.fullBlocks}, {"partial", inference.partialBlocks}, {"empty", inference.emptyBlocks}}},
      {"seconds", inference.seconds},
      {"captures", JsonReport::array()}};
  if (const auto& noise = inference.noise)
    json["noise"] = {{"elements", noise->elements}, {"expression", noise->expression}, {"places", noise->places}};
  for (const InferredCapture& capture : inference.captures) {
    JsonReport values = JsonReport::array();
    for (size_t i = 0; i < capture.bytes.size(); i += size_t(dtypeBytes(capture.dtype)))
      if (capture.dtype == DType::Bool)
        values.push_back(int(capture.bytes[i]));
      else
        values.push_back(*reinterpret_cast<const int32_t*>(capture.bytes.data() + i));
    json["captures"].push_back({{"name", capture.name},
                                {"dtype", dtypeName(capture.dtype)},
                                {"shape", capture.shape},
                                {"values", std::move(values)}});
  }
  return json.dump(-1, ' ', /*ensure_ascii=*/false, JsonReport::error_handler_t::replace) + "\n";
}

std::string toJson(const Error& error) { return textOf({{"ok", false}, {"error", errorJson(error)}}); }

} // namespace attnc
