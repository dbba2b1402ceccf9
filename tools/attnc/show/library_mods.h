// The library of mods (dsl/mods), as text in the program.
#pragma once

namespace attnc::cli {

struct LibraryMod {
  const char* name; ///< "alibi"
  const char* text;
};
extern const LibraryMod kLibraryMods[]; ///< sorted by name
extern const unsigned kLibraryModCount;

} // namespace attnc::cli
