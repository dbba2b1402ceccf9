#include "api/kernel_label.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm/ADT/StringExtras.h>

#include <algorithm>
#include <type_traits>
#include <vector>

namespace attnc {
namespace {

/// Returns words as one.
std::string labelOf(std::string words, char between) {
  std::replace(words.begin(), words.end(), ' ', between);
  return words;
}

/// Returns the label of a feature: "row-max" for RowMax.
std::string labelOf(Feature feature) {
  constexpr std::string_view kNames[] = {
#define ATTNC_FEATURE(name, option, text) #name,
#include "attnc/features.def"
  };
  std::string label;
  for (char c : kNames[int(feature)]) {
    if (c != llvm::toLower(c) && !label.empty()) label += '-';
    label += llvm::toLower(c);
  }
  return label;
}

/// Returns labels for what not all kernels of its kind have.
std::vector<std::string> labelsOf(const KernelOptions& options) {
  std::vector<std::string> all;
  const auto add = [&](bool is, std::string name) {
    if (is) all.push_back(std::move(name));
  };
  add(options.blockSparse && !options.maskByBoxes,
      fmt::format("blocks-{}x{}", options.maskQBlock, options.maskKvBlock));
  add(options.maskByBoxes, "blocks-by-boxes");
  add(options.blockSparse && options.listsOfWholeMod, "blocks-of-whole-mod");
  add(options.kind == KernelKind::Decode, fmt::format("rows-{}", options.packedRows));
  const auto addFlag = [&](const auto& option, std::string_view label) {
    if constexpr (std::is_same_v<decltype(option), const bool&>) add(option && !label.empty(), std::string(label));
  };
#define ATTNC_OPTION(member, name, label) addFlag(options.member, label);
#include "attnc/options.def"
  options.features.forEach([&](Feature feature) { all.push_back(labelOf(feature)); });
  for (const std::string& choice : choiceWords(options)) all.push_back(labelOf(choice, '-'));
  add(options.offsets == QueryOffsets::FromLengths, "offsets-from-lengths");
  add(options.offsets == QueryOffsets::Tensor, "offsets");
  add(options.pageSize, fmt::format("pages-{}", options.pageSize));
  add(!options.tile.empty(), "tile-" + labelOf(options.tile, '+')); // those of grids have several words
  for (const std::string& name : options.gradients) all.push_back("d_" + name);
  for (const auto& [name, value] : options.pins) all.push_back(fmt::format("{}:{}", name, value));
  return all;
}

} // namespace

std::string kernelLabel(const Mod& mod, const KernelOptions& options) {
  std::string label = fmt::format("kind={} family={}", kindName(options.kind), familyName(options.family));
  if (options.kind != KernelKind::BlockMask) {
    label += fmt::format(" dtype={} head-dim={}", dtypeName(options.dtype), options.headDim);
    if (options.headDimV != options.headDim) label += fmt::format(" head-dim-v={}", options.headDimV);
  }
  label += " mod=" + mod.hash().substr(0, 12);
  const std::vector<std::string> features = labelsOf(options);
  if (!features.empty()) label += fmt::format(" with={}", fmt::join(features, ","));
  return label;
}

} // namespace attnc
