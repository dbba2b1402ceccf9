// A pack: values compiled ahead of time, in one file.
//
//   "ATTNCPAK" | u32 format | u32 zero | u64 head bytes | head | SHA-256 of all before | values
//   head: maker | number of values | for each: digest of its content | name | offset | bytes | its SHA-256
//
// Numbers are little endian, offsets count from the first value. In: a path that the user names, as he names a library:
// unlike a cache directory, it is trusted whoever owns it. Out: values by the digest of what they were compiled from,
// whichever build of the compiler made them. The head is checked when a pack is opened, a value when it is read; the
// file stays open, so a pack may be replaced by rename under processes that use it. Not: what the values mean, nor
// which makers are acceptable.
#pragma once

#include "cache/file_ops.h"
#include "cache/sha256.h"

#include "attnc/error.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace attnc::cache {

/// A value to be packed.
struct PackedValue {
  Digest content;   ///< digest of everything that decides the bytes but the compiler
  std::string name; ///< for people
  std::string bytes;
};

/// The bytes of a pack. `maker`: names the program whose contents these are. Values of equal content are packed once.
/// Equal arguments in any order give equal bytes.
std::string encodePack(const std::string& maker, std::vector<PackedValue> values);

/// An open pack. Immutable; any thread may use it.
class Pack {
public:
  /// A row of the head.
  struct Row {
    std::string name;
    uint64_t offset = 0, bytes = 0; ///< of the value; the offset in the file
    Digest sum;                     ///< SHA-256 of the value
  };

  /// Errors (environment): a file that cannot be read, is no pack, is of another format, or is damaged as far as the
  /// head can tell: a value that was changed shows when it is read.
  static Expected<std::shared_ptr<const Pack>> open(const std::string& path,
                                                    std::shared_ptr<FileOps> ops = std::make_shared<FileOps>());

  const std::string& path() const { return file; }
  const std::string& maker() const { return madeBy; }
  const std::map<Digest, Row>& rows() const { return index; }

  /// The value of a row; nullopt: it is damaged, or cannot be read.
  std::optional<std::string> read(const Row& row) const;

private:
  explicit Pack(std::shared_ptr<FileOps> ops) : ops(std::move(ops)) {}
  bool readHead(std::string_view head, uint64_t valuesBegin, uint64_t fileBytes);

  std::shared_ptr<FileOps> ops;
  std::string file, madeBy;
  Fd fd;
  std::map<Digest, Row> index;
};

} // namespace attnc::cache
