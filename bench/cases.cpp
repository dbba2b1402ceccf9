#include "cases.h"

#include "attnc/explain.h"
#include "support/try.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <utility>

namespace attnc::bench {

std::map<std::string, Family> familiesByName() {
  std::map<std::string, Family> families;
  for (Family family : kAllFamilies) families.emplace(familyName(family), family);
  return families;
}

std::vector<Case> readCases(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read it");
  std::vector<Case> cases;
  for (const nlohmann::json& row : nlohmann::json::parse(file)) {
    Case c;
    c.id = row.at("id");
    c.kind = row.at("kind");
    c.variant = row.at("variant");
    c.params = row.at("params");
    c.dtype = row.at("dtype") == "fp16" ? DType::F16 : DType::BF16;
    c.pageSize = row.value("page_size", 0);
    c.fp8Kv = row.value("kv_dtype", "") == "e4m3";
    c.problem = {row.at("batch"), row.at("q_heads"), row.at("kv_heads"), row.at("q_len"), row.at("kv_len")};
    c.headDim = row.at("head_dim");
    if (row.contains("document_lengths")) c.documentLengths = row["document_lengths"].get<std::vector<int64_t>>();
    if (row.contains("kv_lengths")) c.kvLengths = row["kv_lengths"].get<std::vector<int32_t>>();
    if (row.contains("q_std")) c.qStd = row["q_std"];
    cases.push_back(std::move(c));
  }
  return cases;
}

Case packedCase(Case c) {
  c.packed = true;
  c.variant = "causal";
  const std::vector<int64_t> lengths = c.documentLengths; // of each sequence of the batch, which become one row
  for (int64_t b = 1; b < c.problem.batch; ++b)
    c.documentLengths.insert(c.documentLengths.end(), lengths.begin(), lengths.end());
  c.problem.qLen *= std::exchange(c.problem.batch, 1);
  c.problem.kvLen = c.problem.qLen;
  c.id += "-packed";
  return c;
}

Case deterministicCase(Case c) {
  c.deterministic = true;
  c.id += "-deterministic";
  return c;
}

Expected<CaseMod> caseMod(const Case& c, const std::string& mods) {
  CaseMod result;
  ParseOptions options;
  if (c.variant == "neighborhood2d") {
    options.defines = {{"WIDTH", c.params.at("width").dump()},
                       {"HEIGHT", c.params.at("height").dump()},
                       {"WINDOW", fmt::format("({}, {})", c.params.at("window").at(0).get<int>(),
                                              c.params.at("window").at(1).get<int>())}};
  }
  ATTNC_TRY_AS(mod, Mod::load(mods + "/" + c.variant + ".py", options));
  result.mod = *std::move(mod);
  if (c.variant == "alibi") // slopes of Press et al., arXiv:2108.12409
    for (int64_t h = 0; h < c.problem.qHeads; ++h)
      result.slopes.push_back(float(std::exp2(-8.0 * double(h + 1) / double(c.problem.qHeads))));
  if (c.variant == "sliding_window") result.scalars.set("window", c.params.at("window").get<int64_t>());
  if (c.variant == "prefix_lm") result.scalars.set("prefix", c.params.at("prefix").get<int64_t>());
  if (c.variant == "softcap" || c.variant == "softcap_approx")
    result.scalars.set("cap", c.params.at("cap").get<double>());
  for (size_t document = 0; !c.packed && document < c.documentLengths.size(); ++document)
    result.documentId.insert(result.documentId.end(), size_t(c.documentLengths[document]), int32_t(document));
  return result;
}

int64_t unmaskedPairs(const CaseMod& mod, const Captures& captures, const ProblemShape& problem) {
  if (!mod.mod.hasMaskMod()) return problem.qLen * problem.kvLen;
  const BlockMaskShape shape{.qLen = problem.qLen, .kvLen = problem.kvLen};
  auto mask = BlockMask::build(mod.mod, captures, problem, shape);
  auto reader = MaskReader::create(mod.mod, captures, problem);
  if (!mask || !reader) throw std::runtime_error((mask ? reader.error() : mask.error()).message);
  const BlockMaskView lists = mask->view();
  int64_t pairs = mask->fullBlocks() * shape.qBlock * shape.kvBlock;
  for (int64_t row = 0; row < shape.qBlocks(); ++row)
    for (int32_t i = 0; i < lists.partialCount[row]; ++i) {
      const int64_t kvStart = int64_t(lists.partialIndex[row * lists.indexStride + i]) * shape.kvBlock;
      for (int64_t q = row * shape.qBlock; q < std::min((row + 1) * shape.qBlock, problem.qLen); ++q)
        for (int64_t kv = kvStart; kv < std::min(kvStart + shape.kvBlock, problem.kvLen); ++kv)
          pairs += reader->isLive(0, 0, q, kv);
    }
  return pairs;
}

int64_t liveColumns(const CaseMod& mod, const Captures& captures, const Case& c) {
  const ProblemShape& p = c.problem;
  std::vector<int32_t> lengths = c.kvLengths;
  lengths.resize(size_t(p.batch), int32_t(p.kvLen));
  auto reader = MaskReader::create(mod.mod, captures, p);
  if (!reader) throw std::runtime_error(reader.error().message);
  std::map<int32_t, int64_t> byLength; // sequences of one length are alike
  const auto columnsOf = [&](int32_t length) {
    if (!mod.mod.hasMaskMod()) return int64_t(length);
    int64_t columns = 0;
    for (int64_t kv = 0; kv < length; ++kv)
      for (int64_t q = length - p.qLen; q < length; ++q)
        if (reader->isLive(0, 0, q, kv)) {
          ++columns;
          break;
        }
    return columns;
  };
  int64_t total = 0;
  for (int32_t length : lengths) {
    const auto [at, isNew] = byLength.try_emplace(length);
    if (isNew) at->second = columnsOf(length);
    total += at->second;
  }
  return total;
}

} // namespace attnc::bench
