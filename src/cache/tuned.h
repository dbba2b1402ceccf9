// Which tile of a kernel was measured to be the fastest: a small JSON file for each device, mod, options and class of shapes.
//
// In: what was measured, and of what. Out: the text of a file, and back. A choice is advice: whoever reads one checks that
// its key is the one looked for, and that its tile is still one. Not: where files lie (directory.h), what a tile is.
#pragma once

#include "cache/sha256.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace attnc::cache {

/// What a choice is of. Equal keys, one choice.
struct TunedKey {
  std::string device;  ///< "NVIDIA H200"
  std::string arch;    ///< "sm_90a"
  std::string mod;     ///< its hash
  std::string options; ///< of the kernel, without its tile
  std::string shape;   ///< a class of problems
  bool operator==(const TunedKey&) const = default;
};

/// Names the file.
Digest digestOf(const TunedKey& key);

struct TunedChoice {
  TunedKey key;
  std::string kernel; ///< for people: "forward sm90 bf16 128"
  std::string tile;
  std::vector<std::pair<std::string, double>> times; ///< tile and milliseconds, the model's first
  std::string date;                                  ///< UTC, "2026-02-03T04:05:06Z"
  std::string maker; ///< the version of attnc with its templates; the times of others say nothing of this one's kernels
};

std::string encodeTuned(const TunedChoice& choice);

/// nullopt: the text is no such file, or was cut off or edited into none.
std::optional<TunedChoice> decodeTuned(const std::string& text);

/// A file of a choice as it is found.
struct TunedFile {
  std::string text;
  std::string path;
};

} // namespace attnc::cache
