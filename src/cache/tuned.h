// The fastest measured tile of a kernel: a small JSON file for each device, mod, options and class of shapes.
//
// In: a measurement and its key. Out: the text of a file, and back. A choice is only a hint: readers check that its key
// is the one they look for, and that its tile still exists. Not: where files lie (directory.h), what a tile is.
#pragma once

#include "cache/sha256.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace attnc::cache {

/// What a choice applies to. Equal keys mean the same choice.
struct TunedKey {
  std::string device;  ///< "NVIDIA H200"
  std::string arch;    ///< "sm_90a"
  std::string mod;     ///< the mod's hash
  std::string options; ///< of the kernel, excluding its tile
  std::string shape;   ///< a class of problems
  bool operator==(const TunedKey&) const = default;
};

/// Returns the digest that names the file.
Digest digestOf(const TunedKey& key);

struct TunedChoice {
  TunedKey key;
  std::string kernel; ///< for people: "forward sm90 bf16 128"
  std::string tile;
  std::vector<std::pair<std::string, double>> times; ///< tile and milliseconds; the model's choice is first
  std::string date;                                  ///< UTC, "2026-02-03T04:05:06Z"
  std::string maker; ///< version of attnc with its templates; times are only valid for this version
};

std::string encodeTuned(const TunedChoice& choice);

/// Decodes a file; nullopt if the text is malformed, such as cut off or edited.
std::optional<TunedChoice> decodeTuned(const std::string& text);

/// A choice's file as found.
struct TunedFile {
  std::string text;
  std::string path;
};

} // namespace attnc::cache
