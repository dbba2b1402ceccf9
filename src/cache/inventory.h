// What lies in a cache directory, for people.
//
// In: a Directory. Out: its entries with what their heads say, or the files that are damaged. Looking changes nothing,
// also not what was used last. Processes may work meanwhile: what vanishes is not there.
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
  int64_t lastUsed = 0; ///< seconds since 1970; uses are noted hourly
  /// Key and texts, unchecked; nullopt: the file is no entry of this format.
  std::optional<Entry> head;
};

struct ListedChoice {
  std::string file; ///< "v1/tuned/cdef.json"
  uint64_t bytes = 0;
  int64_t lastUsed = 0;              ///< as of ListedEntry
  std::optional<TunedChoice> choice; ///< nullopt: the file is damaged
};

struct DamagedFile {
  std::string file; ///< as in ListedEntry
  std::string why;
};

struct Verification {
  int64_t files = 0;   ///< looked at: entries, identities of compilers and measured choices
  int64_t foreign = 0; ///< of these, entries of another format: another version of attnc wrote them
  std::vector<DamagedFile> damaged;
};

class Inventory {
public:
  explicit Inventory(Directory& directory) : directory(directory) {}

  /// Least recently used first. A directory that does not exist is empty. Errors (environment): one that cannot be
  /// opened, or is refused.
  Expected<std::vector<ListedEntry>> list();

  /// Measured choices of tiles, likewise. Errors as of list().
  Expected<std::vector<ListedChoice>> tuned();

  /// Reads all files whole. Errors as of list().
  Expected<Verification> verify();

  /// Identities of compilers that are remembered.
  int64_t compilers();

private:
  Expected<Fd> open();
  std::optional<ListedEntry> headOf(const Fd& version, const FoundFile& found);
  void verify(const Fd& version, const FoundFile& found, Verification& result);
  std::string whyIdentityDamaged(const Fd& folder, const FoundFile& found);
  std::string whyTunedDamaged(const Fd& folder, const FoundFile& found);

  Directory& directory;
};

/// The place of a file as ListedEntry::file.
std::string placeOf(const FoundFile& found);

} // namespace attnc::cache
