#include "api/tuned.h"

#include "api/options_key.h"
#include "api/pack_maker.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm/Support/MathExtras.h>

#include <algorithm>

namespace attnc {

std::string tunedByOf(const cache::TunedChoice& choice, const std::string& path) {
  return fmt::format("{}, {}", path.empty() ? "this process" : path, choice.date);
}

std::string shapeClassOf(const plan::LaunchOperands& operands, KernelKind kind) {
  const ProblemShape& problem = operands.problem;
  const auto log2 = [](int64_t length) { return length > 0 ? int(llvm::Log2_64(uint64_t(length))) : 0; };
  std::string text = fmt::format("gqa {}, q 2^{}, kv 2^{}", problem.kvHeads ? problem.qHeads / problem.kvHeads : 1,
                                 log2(problem.qLen), log2(problem.kvLen));
  if (kind == KernelKind::Decode) text += fmt::format(", heads 2^{}", log2(problem.batch * problem.kvHeads));
  if (operands.grids)
    text +=
        fmt::format(", grids {} and {}", fmt::join(operands.grids->queries, "x"), fmt::join(operands.grids->keys, "x"));
  if (operands.grids && operands.grids->before)
    text += fmt::format(" behind {} and {}", operands.grids->before->queries, operands.grids->before->keys);
  return text;
}

cache::TunedKey tunedKey(const std::string& device, const Mod& mod, const KernelOptions& options,
                         const std::string& shapeClass) {
  KernelOptions of = options;
  of.tile.clear();
  of.noBoxes = false; // the family is settled
  of.features.set(Feature::RowMax, false);
  return {device, options.arch, mod.hash(), optionsKey(of), shapeClass};
}

std::optional<FoundChoice> TunedChoices::read(const cache::TunedKey& key, const Candidates& candidates) const {
  const auto file = cache.findTuned(cache::digestOf(key));
  if (!file) return std::nullopt;
  const auto ignored = [&](const std::string& why) {
    log.line(fmt::format("tuned choice {} ignored: {}", file->path, why));
    return std::nullopt;
  };
  const std::optional<cache::TunedChoice> choice = cache::decodeTuned(file->text);
  if (!choice) return ignored("it is damaged");
  if (choice->key != key)
    return ignored(fmt::format("it is of another kernel, problem or device ({})", choice->key.device));
  if (choice->maker != packMaker())
    return ignored(fmt::format("it was made by {}, and this is {}", choice->maker, packMaker()));
  const Expected<std::vector<std::string>> tiles = candidates();
  if (!tiles || std::find(tiles->begin(), tiles->end(), choice->tile) == tiles->end())
    return ignored(fmt::format("there is no tile `{}`", choice->tile));
  return FoundChoice{choice->tile, tunedByOf(*choice, file->path)};
}

std::optional<FoundChoice> TunedChoices::find(const cache::TunedKey& key, const Candidates& candidates) {
  const cache::Digest digest = cache::digestOf(key);
  {
    std::lock_guard lock(mutex);
    if (auto found = known.find(digest); found != known.end()) return found->second;
  }
  std::optional<FoundChoice> choice = read(key, candidates);
  std::lock_guard lock(mutex);
  return known.emplace(digest, std::move(choice)).first->second;
}

std::string TunedChoices::keep(const cache::TunedChoice& choice) {
  const cache::Digest digest = cache::digestOf(choice.key);
  std::string path = cache.publishTuned(digest, cache::encodeTuned(choice));
  std::lock_guard lock(mutex);
  known[digest] = FoundChoice{choice.tile, tunedByOf(choice, path)};
  return path;
}

} // namespace attnc
