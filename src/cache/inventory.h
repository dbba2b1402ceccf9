// The contents of a cache directory, for people.
//
// In: a Directory. Out: its entries with the contents of their heads, or the files that are damaged. Changes nothing,
// not even times of last use. Processes may work meanwhile: files that vanish are skipped.
#pragma once

#include "cache/directory.h"
#include "cache/scan.h"

#include "attnc/error.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace attnc::cache {

struct ListedEntry {
  std::string file; ///< below the directory's root: "v1/ab/cdef.attnc"
  uint64_t bytes = 0;
  int64_t lastUsed = 0; ///< seconds since 1970; uses are recorded hourly
  /// Key and texts, unchecked; nullopt: the file is not an entry of this format.
  std::optional<Entry> head;
};

struct ListedChoice {
  std::string file; ///< "v1/tuned/cdef.json"
  uint64_t bytes = 0;
  int64_t lastUsed = 0;              ///< as in ListedEntry
  std::optional<TunedChoice> choice; ///< nullopt: the file is damaged
};

struct DamagedFile {
  std::string file; ///< as in ListedEntry
  std::string why;
};

struct Verification {
  int64_t files = 0;   ///< number examined: entries, identities of compilers and measured choices
  int64_t foreign = 0; ///< number of entries among these with another format, written by another version of attnc
  std::vector<DamagedFile> damaged;
};

class Inventory {
public:
  explicit Inventory(Directory& directory) : directory(directory) {}

  /// Returns the entries, least recently used first; empty if the directory does not exist. Errors
  /// (Blame::Environment): a directory that cannot be opened, or is refused.
  Expected<std::vector<ListedEntry>> list();

  /// Returns the measured choices of tiles, least recently used first. Errors: those of list().
  Expected<std::vector<ListedChoice>> tuned();

  /// Reads all files whole. Errors: those of list().
  Expected<Verification> verify();

  /// Returns the number of remembered identities of compilers.
  int64_t compilers();

private:
  Expected<Fd> open();
  std::optional<ListedEntry> headOf(const Fd& version, const FoundFile& found);
  void verify(const Fd& version, const FoundFile& found, Verification& result);
  std::string whyIdentityDamaged(const Fd& folder, const FoundFile& found);
  std::string whyTunedDamaged(const Fd& folder, const FoundFile& found);

  Directory& directory;
};

/// Returns the place of a file in the form of ListedEntry::file.
std::string placeOf(const FoundFile& found);

} // namespace attnc::cache
