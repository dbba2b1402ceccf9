#include "infer/find.h"

#include "infer/texts.h"

#include <fmt/format.h>

#include <array>
#include <numeric>

namespace attnc::inferred {
namespace {

/// Returns the condition of a table of bits.
Expr bitsOf(const Problem& problem) {
  const Relation& must = problem.must;
  const int64_t words = (must.columns + 31) / 32;
  std::vector<int32_t> values;
  for (int64_t at = 0; at < must.allRows(); ++at)
    for (int64_t i = 0; i < words; ++i) values.push_back(int32_t(must.row(at)[i / 2] >> (i % 2 * 32)));
  const TablePtr table =
      tableOf(problem, "bits", false, {"Q_LEN", fmt::format("{}", words)}, {must.rows, words}, std::move(values));
  Atom atom;
  const std::string bit =
      fmt::format("({}{} >> (kv_idx % 32)) & 1", mark(table), indexOf(problem, {"q_idx", "kv_idx // 32"}));
  atom.text = fmt::format("({}) == 1", bit);
  atom.negated = fmt::format("({}) == 0", bit);
  atom.what = "a table of bits: no formula was found";
  atom.whatNegated = atom.what;
  atom.tables = {table};
  atom.rows = must;
  atom.index.resize(size_t(must.allRows()));
  std::iota(atom.index.begin(), atom.index.end(), 0);
  return Expr::leaf(std::make_shared<const Atom>(std::move(atom)));
}

constexpr double kMostCost = 480; // beyond, a table of bits is shorter

/// Calls `solve` for queries at or behind their keys, and for the others.
std::optional<Expr> byTriangles(const Problem& problem) {
  Atom causal;
  causal.kind = Atom::Kind::DistanceLow;
  causal.variable = "q_idx - kv_idx", causal.left = "q_idx", causal.right = "kv_idx";
  causal.text = "q_idx >= kv_idx", causal.negated = "q_idx < kv_idx";
  for (int64_t at = 0; at < problem.must.allRows(); ++at) {
    causal.begin.push_back(0);
    causal.end.push_back(int32_t(std::min(at % problem.rows() + 1, problem.columns())));
  }
  const auto atom = std::make_shared<const Atom>(std::move(causal));
  std::vector<Expr> parts;
  for (const bool isUpper : {false, true}) {
    Problem part = problem;
    for (int64_t at = 0; at < part.must.allRows(); ++at)
      for (Relation* one : {&part.must, &part.dead}) {
        if (isUpper)
          atom->andNotInto(at, one->row(at), one->words);
        else
          atom->andInto(at, one->row(at), one->words);
      }
    auto found = solve(part, Tier::Blocks);
    if (!found) return {};
    parts.push_back(Expr::join(Expr::Kind::And, {Expr::leaf(atom, isUpper), *std::move(found)}));
  }
  return Expr::join(Expr::Kind::Or, std::move(parts));
}

bool readsRemainders(const Expr& expr) {
  bool reads = false;
  forEachLeaf(expr, [&](const Atom& atom, bool) { reads |= atom.left.find('%') != std::string::npos; });
  return reads;
}

Problem whole(const Relation& mask, int64_t batch, int64_t heads) {
  Problem problem{mask,  mask,   {"q_idx", 0, "Q_LEN", {}, {}}, {"kv_idx", 0, "KV_LEN", {}, {}}, batch, heads, true,
                  false, nullptr};
  for (int64_t at = 0; at < mask.allRows(); ++at)
    for (int64_t i = 0; i < mask.words; ++i) problem.dead.row(at)[i] = ~mask.row(at)[i] & ones(0, mask.columns, i);
  return problem;
}

/// Returns how many words may be looked at in one search.
int64_t budgetOf(const Relation& mask) { return int64_t(mask.bits.size()) * 700 + (int64_t(1) << 25); }

constexpr int64_t kSample = 512; // rows and columns

/// Returns the first rows and columns of the slice with the most edges along its rows.
Relation sampleOf(const Relation& mask) {
  int64_t busiest = 0, most = -1;
  for (int64_t slice = 0; slice < mask.slices; ++slice) {
    int64_t edges = 0;
    const Word* bits = mask.row(slice * mask.rows);
    for (int64_t i = 0; i < mask.rows * mask.words; ++i) edges += countOf(bits[i] ^ bits[i] << 1);
    if (edges > most) most = edges, busiest = slice;
  }
  Relation sample(1, std::min(mask.rows, kSample), std::min(mask.columns, kSample));
  for (int64_t at = 0; at < sample.rows; ++at)
    std::copy_n(mask.row(busiest * mask.rows + at), sample.words, sample.row(at));
  return sample;
}

} // namespace

Expr tableOfBits(const Relation& mask, int64_t batch, int64_t heads) { return bitsOf(whole(mask, batch, heads)); }

Expr find(const Relation& mask, int64_t batch, int64_t heads, bool isQuick) {
  const int64_t most = budgetOf(mask);
  int64_t budget = most;
  Problem problem = whole(mask, batch, heads);
  problem.budget = &budget;
  problem.allowance = most;
  std::array<AtomsOfTiers, 2> known;
  problem.known = known.data();
  std::optional<Problem> sample;
  if (int64_t(mask.bits.size()) > 2 * kSample * kSample / 64) {
    sample = whole(sampleOf(mask), 1, 1);
    sample->budget = &budget, sample->allowance = budgetOf(sample->must);
  }
  std::optional<Expr> best;
  const auto take = [&](std::optional<Expr> found, double bonus = 0) {
    if (found && (!best || found->cost() - bonus < best->cost())) best = std::move(found);
  };
  double enough = 0;
  const auto isDescribed = [&](const auto& search) { // what has no description by itself has none next to others
    if (!sample) return true;
    budget = sample->allowance;
    const std::optional<Expr> found = search(*sample);
    if (found) enough = found->costOfText();
    return found && found->cost() < kMostCost;
  };
  for (const Tier tier : {Tier::Formula, Tier::Lines, Tier::Blocks}) {
    if (isQuick && tier == Tier::Blocks) break;
    if (best && best->cost() < (tier == Tier::Lines ? 105 : 220)) break;
    if (!isDescribed([&](const Problem& part) { return solve(part, tier); })) continue;
    budget = most;
    take(solve(problem, tier, 0, enough));
  }
  problem.known = nullptr;
  if (best && readsRemainders(*best)) { // coordinates of both axes, if they say the same
    problem.isGrid = true;
    budget = most;
    take(solve(problem, Tier::Formula), 60);
    problem.isGrid = false;
  }
  if (!isQuick && (!best || best->cost() > kMostCost / 2) && isDescribed(byTriangles)) {
    budget = most;
    take(byTriangles(problem));
  }
  return best && best->cost() < kMostCost ? *std::move(best) : bitsOf(problem);
}

} // namespace attnc::inferred
