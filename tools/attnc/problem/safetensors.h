// safetensors files: reads and writes named tensors. https://huggingface.co/docs/safetensors gives the format: 8 bytes
// of header length, a JSON header, then the tensors' bytes, row-major, little endian.
//
// The reader trusts nothing: every length is checked against the file before anything is allocated, and every message
// names the tensor. It reads the bytes of the wanted tensors only: the file may hold a whole model. Not done here:
// whether the tensors fit the attention problem (operands.h).
#pragma once

#include "attnc/error.h"
#include "problem/host_tensor.h"

#include <cstdint>
#include <functional>
#include <istream>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace attnc::cli {

/// How much of a tensor is read.
enum class Want { Nothing, Shape, Data };

struct FileTensors {
  NamedTensors tensors;           ///< the wanted tensors; those of Want::Shape have no bytes
  std::vector<std::string> names; ///< names of all tensors of the file, in the order of their data
};

using Wanted = std::function<Want(const std::string& name)>;
inline Want wantAll(const std::string&) { return Want::Data; }

/// Reads a file; "-" is stdin. Unwanted tensors may have any dtype and rank. Errors: Blame::Environment naming the file
/// and, if possible, the tensor.
Expected<FileTensors> readSafetensors(const std::string& path, const Wanted& wanted = wantAll);

/// Reads the tensors that `wants` names.
Expected<FileTensors> readSafetensors(const std::string& path, const std::map<std::string, Want>& wants);

/// Reads a stream of `size` bytes, or of unknown length. `name` is the file's name in messages. A stream with a size
/// must be able to seek.
Expected<FileTensors> readSafetensors(std::istream& stream, std::optional<uint64_t> size, const std::string& name,
                                      const Wanted& wanted = wantAll);

/// Writes a file that appears whole or not at all; "-" is stdout. `metadata` goes into the header's `__metadata__`.
Status writeSafetensors(const std::string& path, const NamedTensors& tensors,
                        const std::map<std::string, std::string>& metadata = {});

/// Returns "the file has 'q', 'k'" with the first names of a file: that of a model has thousands.
std::string namesText(const std::vector<std::string>& names);

} // namespace attnc::cli
