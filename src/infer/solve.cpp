#include "infer/problem.h"

namespace attnc::inferred {
namespace {

constexpr int kMostLevels = 5;

void removeOutside(const Atom& atom, Relation& from) {
  for (int64_t at = 0; at < from.allRows(); ++at) atom.andInto(at, from.row(at), from.words);
}

int64_t countOutside(const Atom& atom, const Relation& of) {
  int64_t sum = 0;
  for (int64_t at = 0; at < of.allRows(); ++at) sum += atom.countOutside(at, of.row(at), of.words);
  return sum;
}

/// Chooses atoms that exclude as much as they can of `dead`, which keeps what is left. If something is left, atoms
/// count that exclude a share of at least `least`.
std::vector<AtomPtr> cover(std::vector<AtomPtr> atoms, Relation& dead, int64_t* budget, double least) {
  const Relation original = dead;
  if (budget) *budget -= int64_t(dead.bits.size()) * int64_t(atoms.size() + 4) * 2;
  std::vector<AtomPtr> chosen;
  std::vector<int64_t> marginal; // what each excludes after those before
  while (!atoms.empty()) {
    size_t best = atoms.size();
    double bestGain = 0;
    std::vector<AtomPtr> useful;
    for (AtomPtr& atom : atoms) {
      const int64_t count = countOutside(*atom, dead);
      if (count == 0) continue;
      const double gain = double(count) / (5 + atom->cost);
      if (gain > bestGain) bestGain = gain, best = useful.size();
      useful.push_back(std::move(atom));
    }
    if (useful.empty()) break;
    marginal.push_back(countOutside(*useful[best], dead));
    removeOutside(*useful[best], dead);
    chosen.push_back(useful[best]);
    useful.erase(useful.begin() + int64_t(best));
    atoms = std::move(useful);
  }
  if (least > 0 && !dead.empty()) {
    const double all = double(original.count()) * least;
    std::vector<AtomPtr> kept;
    dead = original;
    for (size_t i = 0; i < chosen.size(); ++i)
      if (double(marginal[i]) >= all) {
        removeOutside(*chosen[i], dead);
        kept.push_back(chosen[i]);
      }
    chosen = std::move(kept);
  }
  // An atom whose work the others do is dropped, the dearest first.
  std::vector<AtomPtr> order = chosen;
  std::stable_sort(order.begin(), order.end(), [](const AtomPtr& a, const AtomPtr& b) { return a->cost > b->cost; });
  for (const AtomPtr& candidate : order) {
    if (chosen.size() <= 1) break;
    Relation left = original;
    for (const AtomPtr& atom : chosen)
      if (atom != candidate) removeOutside(*atom, left);
    if (left.bits == dead.bits) std::erase(chosen, candidate);
  }
  return chosen;
}

std::vector<AtomPtr> knownAtoms(const Problem& problem, Tier tier, int depth) {
  if (!problem.known) return atomsOf(problem, tier, depth);
  const auto [place, isNew] = problem.known->try_emplace(tier);
  if (isNew) place->second = atomsOf(problem, tier, depth);
  return place->second;
}

/// must & ~(dead & ~(...)): what must live has conditions in common. What they let through has conditions as well, and
/// so on.
std::optional<Expr> alternate(const Problem& problem, Tier first, Tier tier, int depth, int levels, double least,
                              bool isFirst = true) {
  if (problem.must.empty()) return Expr{Expr::Kind::False, false, nullptr, {}};
  if (problem.dead.empty()) return Expr{};
  if (levels == 0) return {};
  Problem rest{problem.dead,  problem.must,    problem.q,      problem.kv,    problem.batch,
               problem.heads, problem.isWhole, problem.isGrid, problem.budget};
  std::vector<Expr> parts;
  for (AtomPtr& atom : cover(knownAtoms(problem, isFirst ? first : tier, depth), rest.must, problem.budget, least))
    parts.push_back(Expr::leaf(std::move(atom)));
  if (parts.empty() && !isFirst) return {};
  auto inner = alternate(rest, first, tier, depth, levels - 1, least, false);
  if (!inner) return {};
  parts.push_back(inner->negated());
  return Expr::join(Expr::Kind::And, std::move(parts));
}

bool fits(const Expr& expr, const Problem& problem) {
  std::vector<Word> words(size_t(problem.must.words), 0);
  for (int64_t at = 0; at < problem.must.allRows(); ++at) {
    expr.row(at, words.data(), problem.columns());
    const Word *must = problem.must.row(at), *dead = problem.dead.row(at);
    for (int64_t i = 0; i < problem.must.words; ++i)
      if ((must[i] & ~words[size_t(i)]) | (dead[i] & words[size_t(i)])) return false;
  }
  return true;
}

/// Collects the expressions that lack one leaf of `expr`.
void without(const Expr& expr, std::vector<Expr>& all) {
  for (size_t i = 0; i < expr.parts.size(); ++i) {
    const auto put = [&](const Expr* part) {
      std::vector<Expr> parts = expr.parts;
      if (part)
        parts[i] = *part;
      else
        parts.erase(parts.begin() + int64_t(i));
      all.push_back(Expr::join(expr.kind, std::move(parts)));
    };
    if (expr.parts[i].kind == Expr::Kind::Leaf) {
      put(nullptr);
      continue;
    }
    std::vector<Expr> inner;
    without(expr.parts[i], inner);
    for (const Expr& part : inner) put(&part);
  }
}

Expr pruned(Expr expr, const Problem& problem) {
  for (bool isSmaller = true; isSmaller;) {
    isSmaller = false;
    std::vector<Expr> all;
    without(expr, all);
    std::stable_sort(all.begin(), all.end(), [](const Expr& a, const Expr& b) { return a.cost() < b.cost(); });
    for (Expr& candidate : all)
      if (candidate.cost() < expr.cost() && fits(candidate, problem)) {
        expr = std::move(candidate);
        isSmaller = true;
        break;
      }
  }
  return expr;
}

} // namespace

std::optional<Expr> solve(const Problem& problem, Tier tier, int depth, double enough) {
  std::optional<Expr> best;
  Problem turned = problem;
  std::swap(turned.must, turned.dead);
  if (turned.known) ++turned.known;
  const int levels = depth == 0 ? kMostLevels : depth == 1 ? 3 : 2;
  for (const double least : {0.1, 0.0})
    for (const Tier first : {Tier::Formula, tier}) {
      if (depth > 0 && least > 0) continue;
      if (first != tier && tier == Tier::Lines && least == 0) continue;
      if (problem.isWhole && problem.budget) *problem.budget = problem.allowance;
      for (const bool flips : {false, true}) {
        if (problem.budget && *problem.budget < 0) break;
        auto found = alternate(flips ? turned : problem, first, tier, depth, levels, least);
        if (!found) continue;
        Expr expr = pruned(flips ? found->negated() : *std::move(found), problem);
        if (!best || expr.cost() < best->cost()) best = std::move(expr);
        if (best->costByPosition() < (depth == 0 ? 70 : 60) || best->costOfText() <= enough) return best;
      }
      if (tier == Tier::Formula) break;
    }
  return best;
}

} // namespace attnc::inferred
