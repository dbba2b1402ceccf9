// safetensors files: named tensors in, named tensors out. https://huggingface.co/docs/safetensors gives the format:
// 8 bytes of header length, a JSON header, then the tensors' bytes, row-major, little endian.
//
// The reader trusts nothing: every length is checked against the file before anything is allocated, and every message
// names the tensor. It reads the bytes of the wanted tensors only: the file may hold a whole model. Not done here:
// whether the tensors fit the attention problem (operands.h).
#pragma once

#include "attnc/error.h"
#include "host_tensor.h"

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
  NamedTensors tensors;           ///< what was wanted; those of Want::Shape without bytes
  std::vector<std::string> names; ///< of all tensors of the file, in the order of their data
};

using Wanted = std::function<Want(const std::string& name)>;
inline Want wantAll(const std::string&) { return Want::Data; }

/// Reads a file; "-" is stdin. Tensors that are not wanted may have any dtype and rank. Errors: Blame::Environment
/// naming the file and, where there is one, the tensor.
Expected<FileTensors> readSafetensors(const std::string& path, const Wanted& wanted = wantAll);

/// The same from a stream that holds `size` bytes, or ends somewhere; `name` is the file's name in messages. With a
/// size the stream can seek.
Expected<FileTensors> readSafetensors(std::istream& stream, std::optional<uint64_t> size, const std::string& name,
                                      const Wanted& wanted = wantAll);

/// Writes a file that appears whole or not at all; "-" is stdout. `metadata` goes into the header's `__metadata__`.
Status writeSafetensors(const std::string& path, const NamedTensors& tensors,
                        const std::map<std::string, std::string>& metadata = {});

} // namespace attnc::cli
