// safetensors files: named tensors in, named tensors out. https://huggingface.co/docs/safetensors gives the format:
// 8 bytes of header length, a JSON header, then the tensors' bytes, row-major, little endian.
//
// The reader trusts nothing: every length is checked against the file before anything is allocated, and every message
// names the tensor. Not done here: whether the tensors fit the attention problem (operands.h).
#pragma once

#include "attnc/error.h"
#include "attnc/tensor.h"

#include <cstdint>
#include <istream>
#include <map>
#include <string>
#include <vector>

namespace attnc::cli {

/// A dense row-major tensor in host memory that owns its bytes.
struct HostTensor {
  DType dtype = DType::F32;
  std::vector<int64_t> shape; ///< at most TensorView::kMaxRank extents
  std::vector<char> bytes;

  /// A tensor of zeros.
  static HostTensor make(DType dtype, std::vector<int64_t> shape);
  int64_t elements() const;
  /// Borrowed: valid as long as this tensor lives unchanged. The data may be written through the view.
  TensorView view() const;
};

using TensorMap = std::map<std::string, HostTensor, std::less<>>;

/// Reads a file, whole. Errors: Blame::Environment naming the file and, where there is one, the tensor.
Expected<TensorMap> readSafetensors(const std::string& path);

/// The same from a stream that holds `size` bytes; `name` is the file's name in messages.
Expected<TensorMap> readSafetensors(std::istream& stream, uint64_t size, const std::string& name);

/// Writes a file that appears whole or not at all. `metadata` goes into the header's `__metadata__`.
Status writeSafetensors(const std::string& path, const TensorMap& tensors,
                        const std::map<std::string, std::string>& metadata = {});

} // namespace attnc::cli
