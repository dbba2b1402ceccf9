// Ragged batches in files: q, k, v and results are [total, H, D] with cumulative lengths. Inside the command they are
// [1, H, total, D], like other tensors.
#pragma once

#include "problem/host_tensor.h"

#include "attnc/error.h"

#include <string_view>

namespace attnc::cli {

/// Converts [total, H, D] to [1, H, total, D], or [H, total] to [1, H, total]. Errors (environment) name the tensor.
Status fromPacked(std::string_view name, HostTensor& tensor);

/// Does the inverse of fromPacked().
HostTensor toPacked(const HostTensor& tensor);

/// Returns cumulative lengths, which begin at 0.
HostTensor cumulative(const HostTensor& lengths);

/// Returns the longest length.
int64_t longestOf(const HostTensor& cumulative);

} // namespace attnc::cli
