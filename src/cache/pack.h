// A pack: values compiled ahead of time, in one file.
//
//   "ATTNCPAK" | u32 format | u32 zero | u64 head bytes | head | SHA-256 of all before | values
//   head: maker | number of values | for each: digest of its content | name | offset | bytes | its SHA-256
//
// Numbers are little endian; offsets count from the first value. In: a path that the user names, as for a library:
// unlike a cache directory, it is trusted whoever owns it. Out: values by the digest of what they were compiled from,
// whichever build of the compiler made them. The head is checked when a pack is opened, a value when it is read. The
// file stays open, so a pack may be replaced by rename while processes use it. Not: the meaning of values, or which
// makers are acceptable.
#pragma once

#include "cache/sha256.h"
#include "support/file_ops.h"

#include "attnc/error.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <vector>

namespace attnc::cache {

/// A value to be packed.
struct PackedValue {
  Digest content;   ///< digest of everything that determines the bytes except the compiler
  std::string name; ///< for people
  std::string bytes;
};

/// Returns the bytes of a pack. `maker`: names the program that made the contents. Values of equal content are packed
/// once. The same values in any order give equal bytes.
std::string encodePack(const std::string& maker, std::vector<PackedValue> values);

/// An open pack. Immutable; any thread may use it.
class Pack {
public:
  /// A row of the head.
  struct Row {
    std::string name;
    uint64_t offset = 0, bytes = 0; ///< of the value; the offset is in the file
    Digest sum;                     ///< SHA-256 of the value
  };

  /// Opens a pack. Errors (Blame::Environment): the file cannot be read, is not a pack, has another format, or has a
  /// damaged head. A damaged value is only detected when it is read.
  static Expected<std::shared_ptr<const Pack>> open(const std::string& path,
                                                    std::shared_ptr<FileOps> ops = std::make_shared<FileOps>());

  const std::string& path() const { return file; }
  const std::string& maker() const { return madeBy; }
  /// Owner, group and permissions of the open file, whatever its path names meanwhile.
  const struct stat& status() const { return opened; }
  const std::map<Digest, Row>& rows() const { return index; }

  /// Returns the value of a row; nullopt if it is damaged or cannot be read.
  std::optional<std::string> read(const Row& row) const;

private:
  explicit Pack(std::shared_ptr<FileOps> ops) : ops(std::move(ops)) {}
  bool readHead(std::string_view head, uint64_t valuesBegin, uint64_t fileBytes);

  std::shared_ptr<FileOps> ops;
  std::string file, madeBy;
  Fd fd;
  struct stat opened = {};
  std::map<Digest, Row> index;
};

} // namespace attnc::cache
